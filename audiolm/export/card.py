"""The model card: README.md with the metadata that hubs read.

Everything in it is from the model, its run's records and its evaluation; no path of the machine
that it was trained on is.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from audiolm.export.samples import ExportedSample
from audiolm.export.settings import Export
from audiolm.hub import SCHEME
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.synthesis.request import SAMPLING

LIBRARY = "audiolm"
TASK = "text-to-audio"
"""The hubs' name for what makes sound; there is none for models without a text."""
UNKNOWN_LICENSE = "unknown"
MOST_NAMES = 50
"""Of a label, in the card."""


@dataclass(frozen=True)
class Card:
    """What the card is written from.

    Attributes:
        config: of the folder.
        parameters: how many numbers the model has.
        samples: in the folder.
        evaluation: metrics of evaluate.py; None where there are none.
        plan: of the run, as training wrote it down; None where it is not known.
        has_bundled_codec: whether the codec is the one that comes with the package.
        export: the settings.
    """

    config: Mapping[str, Any]
    parameters: int
    samples: Sequence[ExportedSample]
    evaluation: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None
    has_bundled_codec: bool
    export: Export

    def text(self) -> str:
        """The card."""
        parts = [
            f"---\n{yaml.safe_dump(self.metadata(), sort_keys=False, allow_unicode=True)}---",
            f"# {self.title}",
            *self._model(),
            *self._samples(),
            *self._use(),
            *self._evaluation(),
            *self._training(),
            *self._license(),
        ]
        return "\n\n".join(parts) + "\n"

    @property
    def title(self) -> str:
        return self.export.title or (self.export.repository or "/audiolm model").partition("/")[2]

    @property
    def place(self) -> str:
        """What stands for the folder in a command."""
        repository = self.export.repository
        return "DIR" if repository is None else f"{SCHEME}{repository}"

    def metadata(self) -> dict[str, Any]:
        """What hubs read: license, library, task, base model, metrics."""
        found: dict[str, Any] = {
            "license": self.config["license"] or UNKNOWN_LICENSE,
            "library_name": LIBRARY,
            "pipeline_tag": TASK,
            "tags": [LIBRARY, "audio", "audio-generation", "audio-tokens"],
        }
        if self.config["base_model"] is not None:
            found["base_model"] = self.config["base_model"]
        if self.evaluation is not None:
            metrics = [
                {"type": name, "name": text, "value": value}
                for name, text, value in self._validation_metrics(self.evaluation)
            ]
            dataset = {"type": "validation", "name": "validation recordings"}
            results = [{"task": {"type": TASK}, "dataset": dataset, "metrics": metrics}]
            found["model-index"] = [{"name": self.title, "results": results}]
        return found

    def _model(self) -> Iterator[str]:
        config, codec = self.config, self.config["codec"]
        seconds = config["context_frames"] / codec["frame_rate"]
        channels = {1: "mono", 2: "stereo"}[codec["channels"]]
        yield (
            "An autoregressive language model over audio tokens: a Transformer that predicts the "
            "codes of a neural codec, which turns them into sound."
        )
        rows = [
            ("parameters", f"{self.parameters:,}, {config['weights']['dtype']}"),
            (
                "trained for",
                f"{config['step']:,} steps"
                + (", average of the weights (EMA)" if config["weights"]["averaged"] else "")
                if config["step"]
                else "as its base model was",
            ),
            ("context", f"{seconds:.4g} s"),
            (
                "codec",
                f"{codec['name']}: {codec['sample_rate']:,} Hz {channels}, "
                f"{codec['frame_rate']:.4g} frames/s, {codec['num_codebooks']} codebooks of "
                f"{codec['codebook_size']:,} codes",
            ),
            ("pattern", f"{config['pattern']}"),
            ("conditions", "; ".join(self._conditions()) or "none"),
        ]
        if config["base_model"] is not None:
            rows.append(("made from", config["base_model"]))
        yield _table(["", ""], rows)

    def _conditions(self) -> Iterator[str]:
        vocabulary = self._vocabulary()
        if vocabulary is None:
            return
        for column, names in vocabulary.labels.items():
            more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
            yield f"{column} ({', '.join(map(_cell, names[:MOST_NAMES]))}{more})"
        if vocabulary.text:
            yield f"{vocabulary.text}, a text of at most {vocabulary.max_text_len:,} characters"
        if vocabulary.vector:
            yield f"{vocabulary.vector}, a vector of {vocabulary.vector_size:,} numbers"
        if vocabulary.sequence:
            what = f"vectors of {vocabulary.sequence_size:,} numbers, at most "
            if vocabulary.text_encoder:
                what = f"a description that {vocabulary.text_encoder} reads, of at most "
            unit = "tokens" if vocabulary.text_encoder else "of them"
            yield f"{vocabulary.sequence}, {what}{vocabulary.max_sequence:,} {unit}"

    def _vocabulary(self) -> ConditionVocabulary | None:
        settings = self.config["conditioning"]
        return None if settings is None else ConditionVocabulary.from_settings(settings)

    def _samples(self) -> Iterator[str]:
        if not self.samples:
            return
        yield "## Samples"
        rows = []
        for sample in self.samples:
            said = ", ".join(f"{column} {value}" for column, value in sample.conditions.items())
            length = f"{sample.seconds:.2f} s"
            rows.append(
                (f"seed {sample.seed}", _cell(said or "none"), length, self._player(sample))
            )
        yield _table(["", "conditions", "length", ""], rows)
        yield "The spectrogram of each lies beside it. None was chosen: they are the first seeds."

    def _player(self, sample: ExportedSample) -> str:
        file = f"samples/{sample.name}.wav"
        if self.export.repository is None:
            return f"[{sample.name}.wav]({file})"
        url = f"https://huggingface.co/{self.export.repository}/resolve/main/{file}"
        return f'<audio controls src="{url}"></audio>'

    def _use(self) -> Iterator[str]:
        yield "## Use"
        where = "" if self.export.repository else ", with DIR for the folder of this file"
        yield f"From a checkout of audiolm{where}:"
        generate = ["python", "scripts/generate.py", f"ckpt_path={self.place}"]
        arguments = self._arguments()
        tune = ["python", "scripts/train.py", f"init_from={self.place}", "data=folder"]
        yield _block("sh", shlex.join([*generate, *arguments]))
        conditions = self.samples[0].conditions if self.samples else {}
        given = [f"conditions={conditions!r}"] if conditions else []
        given += [f"duration={self.export.duration:g}", f"seed={self.export.seed}"]
        given += [f"{name}={value!r}" for name, value in self._changed_sampling().items()]
        yield _block(
            "python",
            f"import audiolm\n\n"
            f'synthesizer = audiolm.load("{self.place}")\n'
            f"sample = synthesizer.generate({', '.join(given)})\n"
            f'sample.save("sample.wav")',
        )
        yield "To train it further on recordings of your own, in data.path:"
        yield _block("sh", shlex.join([*tune, "data.path=RECORDINGS"]))

    def _arguments(self) -> Iterator[str]:
        for column, value in (self.samples[0].conditions if self.samples else {}).items():
            yield f"conditioning.{column}={value}"
        yield f"duration={self.export.duration:g}"
        yield f"seed={self.export.seed}"
        for name, value in self._changed_sampling().items():
            yield f"sampling.{name}={json.dumps(value, separators=(',', ':'))}"

    def _changed_sampling(self) -> dict[str, Any]:
        """The settings that are not what generate.py takes by itself."""
        usual = dataclasses.asdict(SAMPLING)
        chosen = dataclasses.asdict(self.export.sampling)
        return {name: value for name, value in chosen.items() if value != usual[name]}

    def _evaluation(self) -> Iterator[str]:
        if self.evaluation is None:
            return
        yield "## Evaluation"
        seconds = self.evaluation["validation_seconds"]
        yield f"On {seconds:,.0f} s of recordings that it was not trained on:"
        rows = [(text, f"{value:.4g}") for _, text, value in self._metrics(self.evaluation)]
        yield _table(["", "value"], rows)

    def _validation_metrics(self, found: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
        """Name, words and value of the loss and its baselines."""
        mean = next(row for row in found["nats_per_code"] if row["codebook"] == "mean")
        yield "nats_per_code", "nats per code, less is better", mean["model"]
        yield "bits_per_second", "bits per second of audio", found["bits_per_second"]

    def _metrics(self, found: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
        yield from self._validation_metrics(found)
        mean = next(row for row in found["nats_per_code"] if row["codebook"] == "mean")
        for name in ("without_conditions", "bigram", "unigram", "uniform"):
            if name in mean:
                yield name, f"nats per code, {name.replace('_', ' ')}", mean[name]
        yield "codec_bits_per_second", "bits per second, codec", found["codec_bits_per_second"]
        frechet = found.get("clips", {}).get("frechet", {})
        for name, words in (("latents", "codec latents"), ("log_mel", "log mel")):
            for kind in ("generated", "training"):
                value = frechet.get(name, {}).get(kind)
                if value is not None:
                    yield f"{name}_{kind}", f"Fréchet distance, {words}, of {kind} clips", value
        for name, kinds in found.get("published", {}).items():
            if kinds.get("generated") is not None:
                yield name, f"{name}, of samples", kinds["generated"]

    def _training(self) -> Iterator[str]:
        stores = ((self.plan or {}).get("data") or {}).get("stores") or []
        if not stores:
            return
        yield "## Training"
        amounts = [
            (what, sum(store["splits"][name][what] for store in stores))
            for name in ("train", "valid")
            for what in ("clips", "hours")
        ]
        (_, clips), (_, hours), (_, held), (_, held_hours) = amounts
        yield (
            f"On {clips:,} clips, {hours:.3g} h; {held:,} more, {held_hours:.3g} h, were for "
            f"validation. The parameters were trained from "
            f"{self.config['base_model'] or 'random ones'}."
        )

    def _license(self) -> Iterator[str]:
        yield "## License"
        license, base = self.config["license"], self.config["base_model"]
        if license is None:
            yield (
                "Whoever trained it has not said under which terms the weights may be used: ask "
                "before you do. What was recorded has terms of its own."
            )
        else:
            made = f", as those of {base} that they were made from" if base else ""
            yield f"The weights are under {license}{made}."
        kind = self.config["codec"]["kind"]
        if self.has_bundled_codec:
            yield "The codec is audiolm's own, under CC BY-SA 4.0; codec.md says from whose voices."
        elif kind == "pretrained":
            yield (
                f"The codec is Meta's {self.config['codec']['name']}, which is downloaded when it "
                f"is used, under terms of its own."
            )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(text: str) -> str:
    """A text that may hold anything, as one cell of a table and without markup."""
    plain = " ".join(text.split())
    for mark in "\\`*_{}[]<>#|":
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
