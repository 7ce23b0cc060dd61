"""Are the sentences that a model is told to say understood, as the recordings are?

    python scripts/tools/evaluate_speech.py CHECKPOINT --guidance 1 2 --temperature 0.8

Takes sentences that the run was trained on, and others that it held out, from the store of its
codes. What pocketsphinx understands (see speech_recogniser.py) of the real recordings, of these
after the model's own codec, and of samples of the same sentences gives three word error rates; by
each of two language models, which are the same for all three:

    general     pocketsphinx' own, of English
    collection  of the pairs of words in all texts of the store (see bigrams.py): expects what
                could be said, and so hears more of what a codec of few bits leaves

Writes evaluation.json, which has what was understood of every clip, and all clips as WAVs.

N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from audiolm.audio import read_audio, write_wav
from audiolm.batches.conditions import conditions_of
from audiolm.batches.splits import split_clips
from audiolm.files import hash64
from audiolm.model.checkpoint import TrainedModel, read_checkpoint
from audiolm.tokens import TokenStore, check_codec
from bigrams import write_bigrams
from generate_conditioned import (
    add_sampling_options,
    generate_samples,
    load_conditioned,
    samplings_of,
    write_evaluation,
)
from speech_recogniser import SpeechRecogniser, spoken_words, word_error_rate

FEWEST_WORDS = 3
"""Of a sentence: a language model of English is no help with single words out of the blue."""

HELD_IN, HELD_OUT = "held in", "held out"
GENERAL, COLLECTION = "general", "collection"


class Sentence(NamedTuple):
    """A clip of a store, and what is said in it."""

    store: TokenStore
    clip: int
    id: str
    told: dict[str, str]
    words: list[str]


@dataclass
class Rates:
    """Word error rates by one language model."""

    held_in: float
    held_out: float | None
    """None where no sentence was held out."""
    understood: dict[str, str]
    """By the clip's id."""


@dataclass
class Row:
    """One kind of clips."""

    rates: dict[str, Rates]
    """By the name of the language model."""
    seconds: float
    """Of all clips together."""
    ended: int | None = None
    """Samples that ended by themselves; None for recordings."""


# ---- Sentences


def texts_of(stores: Iterable[TokenStore], column: str) -> list[list[str]]:
    """The words of every clip that has some."""
    texts = (
        spoken_words(conditions_of(store, clip).get(column, ""))
        for store in stores
        for clip in range(len(store))
    )
    return [words for words in texts if words]


def find_sentences(
    stores: Iterable[TokenStore], trained: TrainedModel, valid_fraction: float
) -> dict[str, list[Sentence]]:
    """The sentences that fit into the model's window, held in and held out, in a fixed order.

    A text counts once, and as held out only where no clip that was trained on says the same.
    """
    assert trained.vocabulary is not None and trained.vocabulary.text is not None
    longest = trained.vocabulary.max_text_len
    found: dict[str, list[Sentence]] = {HELD_IN: [], HELD_OUT: []}
    trained_on: set[tuple[str, ...]] = set()
    for store in stores:
        split = split_clips(store, valid_fraction)
        for part, spans in ((HELD_IN, split.train), (HELD_OUT, split.valid)):
            for clip in np.unique(spans["clip"]).tolist():
                told = conditions_of(store, clip)
                text = told.get(trained.vocabulary.text, "")
                words = spoken_words(text)
                if part == HELD_IN:
                    trained_on.add(tuple(words))
                if (
                    len(words) >= FEWEST_WORDS
                    and int(store.frames[clip]) < trained.context_frames
                    and len(trained.vocabulary.readable(text)) <= longest
                ):
                    known = {c: told[c] for c in trained.vocabulary.columns if c in told}
                    name = store.record(clip)["id"]
                    found[part].append(Sentence(store, clip, name, known, words))
    return {
        HELD_IN: _once(found[HELD_IN], set()),
        HELD_OUT: _once(found[HELD_OUT], trained_on),
    }


def _once(sentences: Sequence[Sentence], said: set[tuple[str, ...]]) -> list[Sentence]:
    """Those that say what is not yet `said`, in the order of a hash that splits do not use."""
    said = set(said)
    new = []
    for sentence in sorted(sentences, key=lambda one: hash64(f"judge {one.id}")):
        if tuple(sentence.words) not in said:
            said.add(tuple(sentence.words))
            new.append(sentence)
    return new


# ---- Listening


class Ears:
    """Understand clips of the chosen sentences, and keep them below `out` as WAVs.

    texts: of the whole collection, as words. language_models: `GENERAL`, `COLLECTION` or both.
    """

    def __init__(
        self,
        sentences: Mapping[str, Sequence[Sentence]],
        texts: Iterable[Sequence[str]],
        out: Path,
        language_models: Sequence[str],
    ) -> None:
        self.sentences = [one for part in (HELD_IN, HELD_OUT) for one in sentences[part]]
        self._held_in = len(sentences[HELD_IN])
        self._out = out
        write_bigrams(texts, out / "collection.arpa")
        files = {GENERAL: None, COLLECTION: out / "collection.arpa"}
        self._recognisers = {name: SpeechRecogniser(files[name]) for name in language_models}

    def judge(
        self, name: str, clips: Sequence[Tensor], sample_rate: int, ended: int | None = None
    ) -> Row:
        """Clips (1, n_i) at `sample_rate` Hz, one a sentence, in their order."""
        for sentence, clip in zip(self.sentences, clips, strict=True):
            file = sentence.id.replace("/", "_") + ".wav"
            write_wav(self._out / name.replace(" ", "_") / file, clip, sample_rate)
        rates = {}
        for model, recogniser in self._recognisers.items():
            heard = [recogniser.words(clip, sample_rate) for clip in clips]
            pairs = [(one.words, words) for one, words in zip(self.sentences, heard, strict=True)]
            held_out = pairs[self._held_in :]
            rates[model] = Rates(
                word_error_rate(pairs[: self._held_in]),
                word_error_rate(held_out) if held_out else None,
                {one.id: " ".join(words) for one, words in zip(self.sentences, heard, strict=True)},
            )
        return Row(rates, sum(clip.shape[1] for clip in clips) / sample_rate, ended)


def recording_of(sentence: Sentence, sample_rate: int) -> Tensor:
    """The clip as it was recorded: (1, N).

    Raises:
        OSError, AudioError: the file is not there any more, or cannot be read.
    """
    record = sentence.store.record(sentence.clip)
    length = None if record["end"] is None else record["end"] - record["start"]
    return read_audio(
        record["path"], sample_rate, channels=1, start=record["start"], duration=length
    )[0]


# ---- Command line


def table(rows: Mapping[str, Row], sentences: Mapping[str, Sequence[Sentence]]) -> str:
    """The rows as Markdown; the rates also as multiples of those of the reconstructions."""
    counts = {
        part: f"{len(chosen)} sentences, {sum(len(one.words) for one in chosen)} words"
        for part, chosen in sentences.items()
    }
    lines = [
        f"| language model | word error rate | held in: {counts[HELD_IN]} | of reconstructed "
        f"| held out: {counts[HELD_OUT]} | of reconstructed | seconds | ended |",
        "| --- | --- |" + " --- |" * 6,
    ]
    every = sum(map(len, sentences.values()))
    for model, best in rows["reconstructed"].rates.items():
        for name, row in rows.items():
            rates = row.rates[model]
            lines.append(
                f"| {model} | {name} "
                f"| {_rate(rates.held_in)} | {_multiple(rates.held_in, best.held_in)} "
                f"| {_rate(rates.held_out)} | {_multiple(rates.held_out, best.held_out)} "
                f"| {row.seconds:.0f} | {'' if row.ended is None else f'{row.ended} of {every}'} |"
            )
    return "\n".join(lines)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"


def _multiple(rate: float | None, of: float | None) -> str:
    return "-" if rate is None or not of else f"{rate / of:.2f}"


def find_stores(checkpoint: Path, given: Sequence[Path] | None) -> tuple[list[TokenStore], float]:
    """The stores that the run of a checkpoint was trained on, and the share that it held out.

    Args:
        given: where they are now; None where they were then.

    Raises:
        ValueError, OSError: the checkpoint names none, or they are not there.
    """
    data = read_checkpoint(checkpoint)["hyper_parameters"].get("data") or {}
    paths = given or [Path(path) for path in data.get("stores", {})]
    if not paths or "valid_fraction" not in data:
        raise ValueError(f"{checkpoint} does not name the codes that it was trained on")
    if not all((path / "store.json").is_file() for path in paths):
        where = ", ".join(map(str, paths))
        raise ValueError(f"no token stores in {where}; say where they are now: --store DIR")
    return [TokenStore(path) for path in paths], data["valid_fraction"]


def run(options: argparse.Namespace) -> None:
    """What `main` does once the command line is read."""
    for name in ("held_in", "held_out"):
        if getattr(options, name) < (name == "held_in"):
            raise ValueError(f"--{name.replace('_', '-')} {getattr(options, name)}: is too few")
    samplings = samplings_of(options)
    trained, codec = load_conditioned(options.checkpoint, ())
    if trained.vocabulary is None or trained.vocabulary.text is None:
        raise ValueError(f"{options.checkpoint} is told no text; train with conditioning=text")
    stores, valid_fraction = find_stores(options.checkpoint, options.store)
    for store in stores:
        check_codec(store, trained.codec)
    sentences = find_sentences(stores, trained, valid_fraction)
    for part, most in ((HELD_IN, options.held_in), (HELD_OUT, options.held_out)):
        if len(sentences[part]) < most:
            print(f"{len(sentences[part])} sentences {part}, not {most}: there are no more")
        sentences[part] = sentences[part][:most]
    if not sentences[HELD_IN]:
        raise ValueError(
            f"no clip has a text of {FEWEST_WORDS} words or more and fits into the model's window"
        )

    rate = codec.sample_rate
    out = options.out or options.checkpoint.resolve().parent / "judged_speech"
    texts = texts_of(stores, trained.vocabulary.text)
    ears = Ears(sentences, texts, out, options.language_model)
    real = [recording_of(one, rate) for one in ears.sentences]
    codes = [torch.from_numpy(one.store.codes(one.clip).astype(np.int64)) for one in ears.sentences]
    decoded = [
        codec.decode(c[None], min(w.shape[1], c.shape[1] * codec.hop_length))[0]
        for c, w in zip(codes, real, strict=True)
    ]
    rows = {
        "real": ears.judge("real", real, rate),
        "reconstructed": ears.judge("reconstructed", decoded, rate),
    }
    told = [one.told for one in ears.sentences]
    for name, sampling in samplings.items():
        samples = generate_samples(trained, codec, told, sampling, options.seed, options.best_of)
        clips = [sample.waveform for sample in samples]
        rows[name] = ears.judge(name, clips, rate, sum(sample.ended for sample in samples))
    write_evaluation(
        out,
        options,
        trained,
        codec,
        rows,
        table(rows, sentences),
        stores=[str(store.path) for store in stores],
        sentences={
            part: {one.id: " ".join(one.words) for one in chosen}
            for part, chosen in sentences.items()
        },
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--held-in", type=int, default=50, help="sentences of the training part")
    parser.add_argument("--held-out", type=int, default=20, help="sentences of the held-out part")
    parser.add_argument("--store", type=Path, nargs="+", help="where the run's codes are now")
    parser.add_argument(
        "--language-model",
        nargs="+",
        choices=(GENERAL, COLLECTION),
        default=[GENERAL, COLLECTION],
        help="the general one takes minutes where little can be understood",
    )
    add_sampling_options(parser)
    parser.add_argument("--out", type=Path, help="folder; default: judged_speech beside CHECKPOINT")
    options = parser.parse_args(arguments)
    try:
        run(options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
