"""Clips that a model generates, beside real ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from audiolm.audio import write_wav
from audiolm.batches.conditions import conditions_record
from audiolm.batches.loaders import TokenBatches
from audiolm.codec import EncodecCodec
from audiolm.evaluation.clips import choose_windows, measure_clips, read_windows
from audiolm.evaluation.comparison import Comparison, describe_runs
from audiolm.evaluation.memorisation import longest_shared_runs
from audiolm.evaluation.published import MetricClips, measure_published
from audiolm.evaluation.validation import Metrics
from audiolm.generation import Sampling
from audiolm.model.checkpoint import TrainedModel
from audiolm.progress import waiting
from audiolm.synthesis.synthesizer import Synthesizer

BATCH = 32
"""Samples generated at a time."""


TRAINING_SETS = 5
"""Of training clips, each of as many as are generated: how much differs by chance."""


class Samples:
    """Clips that the model generates, and as many real ones to compare them with.

    The real clips are chosen, and measured, at once: what is wrong with them is found before
    minutes of generating. A conditional model gets the conditions of the validation clips.

    Args:
        trained: the model.
        data: what it was trained on, and what is for validation.
        codec: the run's.
        sampling: how codes are sampled.
        num_samples: how many are generated.
        duration: seconds of a sample at most.
        seed: of the first sample; the next ones count up.
    """

    def __init__(
        self,
        trained: TrainedModel,
        data: TokenBatches,
        codec: EncodecCodec,
        sampling: Sampling,
        num_samples: int,
        duration: float,
        seed: int,
    ) -> None:
        self.trained, self.data, self.codec = trained, data, codec
        self.sampling = sampling
        self.ends = trained.model.end_token and self.sampling.end
        stores = data.mix.stores
        validation = [split.valid for split in data.splits]
        # A model that can end is given twice the time of the longest, to see whether it does.
        longest = max(int(spans["frames"].max()) for spans in validation if len(spans))
        wanted = math.ceil(duration * codec.frame_rate)
        self.num_frames = min(wanted, longest * (2 if self.ends else 1))
        self.seeds = [seed + i for i in range(num_samples)]
        self.windows = {
            "validation": choose_windows(validation, num_samples, self.num_frames),
        }
        trained_on = [split.train for split in data.splits]
        many = choose_windows(trained_on, TRAINING_SETS * num_samples, self.num_frames)
        sets = max(1, len(many) // num_samples)
        with waiting("measuring validation and training clips"):
            training = [
                measure_clips(read_windows(stores, many[i::sets]), codec) for i in range(sets)
            ]
            validation_clips = measure_clips(
                read_windows(stores, self.windows["validation"]), codec
            )
            self.comparison = Comparison(validation_clips, training, codec)
        self.clips = {"validation": validation_clips, "training": training[0]}
        self.windows["training"] = many[::sets]

    def generate(self) -> None:
        windows = self.windows["validation"]
        like = windows[np.arange(len(self.seeds)) % len(windows)]
        job = Synthesizer(self.trained, self.codec).job(
            self.seeds,
            self.num_frames,
            sampling=self.sampling,
            conditions=None if self.data.conditions is None else self.data.conditions(like),
            batch_size=BATCH,
        )
        # Of several batches there is a bar.
        with waiting("generating samples") if len(self.seeds) <= BATCH else nullcontext():
            codes = job.codes()
        with waiting("measuring samples"):
            self.clips["generated"] = measure_clips(codes, self.codec)
        self.windows["generated"] = like

    def save(self, folder: Path) -> None:
        """The samples as sound, so that what the metrics say of one can be listened to."""
        for i, waveform in enumerate(self.clips["generated"].waveforms):
            write_wav(folder / f"sample_{i:03d}.wav", waveform, self.codec.sample_rate)

    def metrics(self, audit: bool) -> Metrics:
        generated = self.clips["generated"]
        metrics: Metrics = {
            "sampling": {**vars(self.sampling), "seeds": self.seeds},
            "sample_conditions": self._conditions("generated"),
            "clips": {
                "most_seconds": self.num_frames / self.codec.frame_rate,
                **self.comparison.metrics(generated, self.num_frames, self.ends),
                "clip_seconds": {kind: c.seconds.tolist() for kind, c in self.clips.items()},
            },
        }
        if audit:
            metrics["memorisation"] = {
                "all_codebooks": self.audit(self.data.mix.num_codebooks),
                "codebook_0": self.audit(1),
            }
        return metrics

    def audit(self, num_codebooks: int) -> dict[str, list[dict[str, Any]]]:
        """What samples and validation clips have from the training set."""
        stores = self.data.mix.stores
        trained_on = [split.train for split in self.data.splits]
        kinds = ("generated", "validation")
        both = [codes.numpy() for kind in kinds for codes in self.clips[kind].codes]
        with waiting("searching the training set for what samples share with it"):
            runs = longest_shared_runs(both, stores, trained_on, num_codebooks)
        first = len(self.clips["generated"].codes)
        of_kinds = runs[:first], runs[first:]
        return {
            kind: describe_runs(found, self.clips[kind], stores)
            for kind, found in zip(kinds, of_kinds, strict=True)
        }

    def published(self, names: Sequence[str], clap: str, recogniser: str) -> Metrics:
        kinds = {kind: self.metric_clips(kind) for kind in ("generated", "validation", "training")}
        return measure_published(names, kinds, clap, recogniser)

    def metric_clips(self, kind: str) -> MetricClips:
        clips = self.clips[kind]
        words = self.texts(kind)
        with_sound = [w for w, codes in zip(words, clips.codes, strict=True) if codes.shape[1]]
        return MetricClips(clips.waveforms, self.codec.sample_rate, with_sound)

    def _conditions(self, kind: str) -> list[dict[str, str]]:
        """What each clip is conditioned on; empty for an unconditional model."""
        conditions = self.data.conditions
        if conditions is None:
            return []
        windows = self.windows[kind].tolist()
        return [conditions_record(conditions.values(store, clip)) for store, clip, _, _ in windows]

    def texts(self, kind: str) -> list[str]:
        """The text of each clip, or its labels."""
        words, rows = self.trained.vocabulary, self._conditions(kind)
        if not rows or words is None:
            return [""] * len(self.windows[kind])
        if words.text:
            return [values.get(words.text, "") for values in rows]
        return [" ".join(values[c] for c in words.labels if c in values) for values in rows]
