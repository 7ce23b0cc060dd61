"""Does a model say the digit and in the voice that it is conditioned on, and then stop?

    python scripts/tools/evaluate_digits.py CHECKPOINT DIGITS --guidance 1 2 3 --temperature 0.8

The conditions are `label` ("0" to "9") and `speaker`, as DIGIT_SPEAKER_TAKE.wav of the Free Spoken
Digit Dataset gives them. Two classifiers, trained on real recordings (see digit_classifier.py),
listen to held-out real ones, to these after the model's own codec, and to the samples: a model
cannot do better than the codec lets it, so the samples are held against the reconstructions.

Writes evaluation.json and the samples as WAVs.

N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.torch import load_file, save_file
from torch import Tensor

from audiolm.audio import resample, write_wav
from audiolm.codec import EncodecCodec
from audiolm.files import replacing
from audiolm.synthesis.sample import Sample
from digit_classifier import (
    HELD_OUT_TAKES,
    TRAINING_TAKES,
    Digit,
    DigitClassifier,
    load_classifier,
    load_digits,
    recognise,
    train_classifier,
)
from generate_conditioned import (
    add_sampling_options,
    generate_samples,
    load_conditioned,
    samplings_of,
    write_evaluation,
)

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


# ---- Pure parts


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


# ---- Scoring


class DigitScorer:
    """Both classifiers, of the digits that lie in `folder`, kept in `cache` once they are trained.

    Raises:
        ValueError, OSError: as `load_digits`, or `cache` cannot be written.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        self.held_out = load_digits(folder, HELD_OUT_TAKES)
        training = load_digits(folder, TRAINING_TAKES)
        self.speakers = sorted({speaker_of(digit) for digit in training})
        self.every = [*self.held_out, *training]
        missing = set(range(10)) - {digit.label for digit in self.held_out}
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
    """The held-out recordings as they are, and after the codec.

    Their durations are of all takes, and in whole frames of the codec, as those of samples are.
    """
    conditions = [conditions_of(digit) for digit in scorer.held_out]
    every = [conditions_of(digit) for digit in scorer.every]
    rate = codec.sample_rate
    clips = [resample(d.waveform, d.sample_rate, rate) for d in scorer.held_out]
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


# ---- Command line


def table(rows: Mapping[str, DigitEvaluation], speakers: Sequence[str]) -> str:
    """The evaluation as Markdown: accuracies, durations, and by digit."""
    best = rows["reconstructed"].scores
    real = rows["real"]
    lines = [
        "| | digit | speaker | digit, of reconstructed | speaker, of reconstructed "
        "| seconds (quartiles) | median, of real | ended |",
        "| --- |" + " --- |" * 7,
    ]
    for name, row in rows.items():
        scores = row.scores
        count = sum(map(sum, scores.digits))
        lines.append(
            f"| {name} | {scores.digit_accuracy:.1%} | {scores.speaker_accuracy:.1%} "
            f"| {_ratio(scores.digit_accuracy, best.digit_accuracy)} "
            f"| {_ratio(scores.speaker_accuracy, best.speaker_accuracy)} "
            f"| {row.duration.median:.2f} ({row.duration.lower:.2f} to {row.duration.upper:.2f}) "
            f"| {_ratio(row.duration.median, real.duration.median)} "
            f"| {'' if row.ended is None else f'{row.ended} of {count}'} |"
        )
    lines += [
        "",
        "Right, and median seconds, by digit:",
        "",
        "| | " + " | ".join(map(str, range(10))) + " |",
        "| --- |" + " --- |" * 10,
    ]
    for name, row in rows.items():
        cells = (
            f"{counts[i] / max(1, sum(counts)):.0%}, {row.duration_by_digit[i].median:.2f}"
            for i, counts in enumerate(row.scores.digits)
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Taken for another (clips):", ""]
    for name, row in rows.items():
        names = [str(i) for i in range(10)]
        mistakes = _mistakes(row.scores.digits, names) + _mistakes(row.scores.speakers, speakers)
        lines.append(f"- {name}: {', '.join(mistakes) or 'none'}")
    return "\n".join(lines)


def _ratio(value: float, of: float) -> str:
    return f"{value / of:.1%}" if of else "-"


def _mistakes(counts: Sequence[Sequence[int]], names: Sequence[str]) -> list[str]:
    """The off-diagonal of a confusion as text, the most frequent first."""
    found = [
        (count, f"{names[i]} as {names[j]} ({count})")
        for i, row in enumerate(counts)
        for j, count in enumerate(row)
        if i != j and count
    ]
    return [text for _, text in sorted(found, key=lambda one: -one[0])]


def run(options: argparse.Namespace) -> None:
    """What `main` does once the command line is read."""
    if options.samples < 1:
        raise ValueError(f"--samples {options.samples}: must be at least 1")
    samplings = samplings_of(options)
    trained, codec = load_conditioned(options.checkpoint, (LABEL, SPEAKER))
    scorer = DigitScorer(options.digits, options.cache)
    out = options.out or options.checkpoint.resolve().parent / "digits_evaluation"
    rows = evaluate_recordings(scorer, codec)
    conditions = speakers_in_turn(scorer.speakers, options.samples)
    for name, sampling in samplings.items():
        samples = generate_samples(
            trained, codec, conditions, sampling, options.seed, options.best_of
        )
        rows[name] = evaluate_samples(scorer, codec, samples, conditions)
        for i, (sample, one) in enumerate(zip(samples, conditions, strict=True)):
            file = f"{one[LABEL]}_{one[SPEAKER]}_{i % options.samples}.wav"
            write_wav(out / name.replace(" ", "_") / file, sample.waveform, codec.sample_rate)
    write_evaluation(
        out,
        options,
        trained,
        codec,
        rows,
        table(rows, scorer.speakers),
        speakers=scorer.speakers,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "digits", type=Path, help="Free Spoken Digit Dataset, DIGIT_SPEAKER_TAKE.wav"
    )
    parser.add_argument("--samples", type=int, default=20, help="of each digit")
    add_sampling_options(parser)
    parser.add_argument(
        "--out", type=Path, help="folder; default: digits_evaluation beside CHECKPOINT"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "audiolm",
        help="folder that keeps the classifiers",
    )
    options = parser.parse_args(arguments)
    try:
        run(options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
