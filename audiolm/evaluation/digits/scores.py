"""What the classifiers recognise in clips of which the digit and the speaker are known.

N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.torch import load_file, save_file
from torch import Tensor

from audiolm.audio import resample
from audiolm.codec import EncodecCodec
from audiolm.evaluation.digits.classifier import (
    TRAINING_TAKES,
    VALIDATION_TAKES,
    Digit,
    DigitClassifier,
    load_classifier,
    load_digits,
    recognise,
    train_classifier,
)
from audiolm.files import replacing
from audiolm.synthesis.sample import Sample

LABEL, SPEAKER = "label", "speaker"


class Quartiles(NamedTuple):
    """Of durations, in seconds."""

    lower: float
    median: float
    upper: float


@dataclass
class DigitScores:
    """What the classifiers recognise in clips of which the digit and the speaker are known."""

    digit_accuracy: float
    speaker_accuracy: float
    digits: list[list[int]]
    """Row: the digit that it should be. Column: the one that is recognised. Clips."""
    speakers: list[list[int]]
    """The same of speakers, in the order of their names."""


@dataclass
class DigitEvaluation:
    """Clips of one kind: what is recognised, and how long they are."""

    scores: DigitScores
    duration: Quartiles
    duration_by_digit: list[Quartiles]
    ended: int | None = None
    """Samples that ended by themselves; None for recordings."""


def speaker_of(digit: Digit) -> str:
    """The speaker that a file is named after."""
    return digit.path.stem.split("_")[1]


def speakers_in_turn(
    speakers: Sequence[str], samples_of_each: int, digits: int = 10
) -> list[dict[str, str]]:
    """The conditions for so many samples of each digit, the speakers taken in turn."""
    return [
        {LABEL: str(label), SPEAKER: speakers[i % len(speakers)]}
        for label in range(digits)
        for i in range(samples_of_each)
    ]


def confusion(wanted: Sequence[int], found: Sequence[int], classes: int) -> list[list[int]]:
    """How many of each wanted class (row) are recognised as each class (column)."""
    counts = [[0] * classes for _ in range(classes)]
    for row, column in zip(wanted, found, strict=True):
        counts[row][column] += 1
    return counts


def accuracy(counts: Sequence[Sequence[int]]) -> float:
    """Share of the clips on the diagonal of a confusion."""
    return sum(row[i] for i, row in enumerate(counts)) / sum(map(sum, counts))


def durations(
    conditions: Sequence[Mapping[str, str]], seconds: Sequence[float]
) -> tuple[Quartiles, list[Quartiles]]:
    """Of all clips, and of each digit's, of which there is at least one."""
    by_digit: list[list[float]] = [[] for _ in range(10)]
    for one, length in zip(conditions, seconds, strict=True):
        by_digit[int(one[LABEL])].append(length)
    return quartiles(seconds), [quartiles(lengths) for lengths in by_digit]


def quartiles(seconds: Sequence[float]) -> Quartiles:
    """Of at least one duration, between the two nearest where it lies between."""
    lower, median, upper = np.quantile(np.asarray(seconds), [0.25, 0.5, 0.75]).tolist()
    return Quartiles(lower, median, upper)


class DigitScorer:
    """Scores by two classifiers, which are trained on the digits in `folder` and kept in `cache`.

    Raises:
        ValueError, OSError: as `load_digits`, or `cache` cannot be written.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        self.validation = load_digits(folder, VALIDATION_TAKES)
        training = load_digits(folder, TRAINING_TAKES)
        self.speakers = sorted({speaker_of(digit) for digit in training})
        self.every = [*self.validation, *training]
        missing = set(range(10)) - {digit.label for digit in self.validation}
        if missing:
            raise ValueError(f"{folder}: takes 0 to 9 lack the digits {sorted(missing)}; add them")
        self._digits = load_classifier(folder, cache)
        self._speakers = _load_speaker_classifier(training, self.speakers, cache)

    def score(
        self, clips: Sequence[Tensor], conditions: Sequence[Mapping[str, str]], rate: int
    ) -> DigitScores:
        """Score clips (1, n_i) at `rate` Hz."""
        labels = [int(one[LABEL]) for one in conditions]
        speakers = [self.speakers.index(one[SPEAKER]) for one in conditions]
        digits = confusion(labels, recognise(self._digits, clips, rate).tolist(), 10)
        voices = confusion(
            speakers, recognise(self._speakers, clips, rate).tolist(), len(self.speakers)
        )
        return DigitScores(accuracy(digits), accuracy(voices), digits, voices)


def _load_speaker_classifier(
    training: Sequence[Digit], speakers: Sequence[str], cache: Path
) -> DigitClassifier:
    """The network and the training of the digits' classifier, with speakers for classes."""
    key = hashlib.sha256(Path(sys.modules[DigitClassifier.__module__].__file__ or "").read_bytes())
    for digit in training:
        key.update(digit.path.name.encode() + digit.waveform.numpy().tobytes())
    file = cache / f"speakers_{key.hexdigest()[:16]}.safetensors"
    if not file.is_file():
        rate = training[0].sample_rate
        trained = train_classifier(
            [resample(digit.waveform, digit.sample_rate, rate) for digit in training],
            [speakers.index(speaker_of(digit)) for digit in training],
            rate,
            num_classes=len(speakers),
        )
        with replacing(file) as temporary:
            save_file(trained.state_dict(), temporary)
    classifier = DigitClassifier(len(speakers))
    classifier.load_state_dict(load_file(file))
    return classifier.eval()


def evaluate_recordings(scorer: DigitScorer, codec: EncodecCodec) -> dict[str, DigitEvaluation]:
    """The validation recordings as they are, and after the codec.

    Their durations are of all takes, and in whole frames of the codec, as those of samples are.
    """
    conditions = [conditions_of(digit) for digit in scorer.validation]
    every = [conditions_of(digit) for digit in scorer.every]
    rate = codec.sample_rate
    clips = [resample(d.waveform, d.sample_rate, rate) for d in scorer.validation]
    seconds = [
        -(-round(d.waveform.shape[1] * rate / d.sample_rate) // codec.hop_length) / codec.frame_rate
        for d in scorer.every
    ]
    # One by one: their lengths have nothing in common, and the batch would be mostly padding.
    decoded = [codec.decode(codec.encode(clip[None]), clip.shape[1])[0] for clip in clips]
    return {
        "real": DigitEvaluation(scorer.score(clips, conditions, rate), *durations(every, seconds)),
        "reconstructed": DigitEvaluation(
            scorer.score(decoded, conditions, rate), *durations(every, seconds)
        ),
    }


def conditions_of(digit: Digit) -> dict[str, str]:
    """The conditions of a model that is to say this recording."""
    return {LABEL: str(digit.label), SPEAKER: speaker_of(digit)}


def evaluate_samples(
    scorer: DigitScorer,
    codec: EncodecCodec,
    samples: Sequence[Sample],
    conditions: Sequence[Mapping[str, str]],
) -> DigitEvaluation:
    """The samples of these conditions."""
    clips = [sample.waveform for sample in samples]
    return DigitEvaluation(
        scorer.score(clips, conditions, codec.sample_rate),
        *durations(conditions, [sample.codes.shape[1] / codec.frame_rate for sample in samples]),
        ended=sum(sample.ended for sample in samples),
    )
