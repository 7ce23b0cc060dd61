"""Does a model say the digit and in the voice that it is conditioned on, and then stop?

    python scripts/tools/evaluate_digits.py CHECKPOINT DIGITS --guidance 1 2 3 --temperature 0.8

The conditions are `label` ("0" to "9") and `speaker`, as DIGIT_SPEAKER_TAKE.wav of the Free Spoken
Digit Dataset gives them. Two classifiers, trained on real recordings (audiolm/evaluation/digits),
recognise the real ones of the validation takes, these after the model's own codec, and the samples:
a model cannot do better than the codec lets it, so the samples are compared with the
reconstructions.

Writes evaluation.json and the samples as WAVs.

N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

import argparse
from pathlib import Path

from audiolm.audio import write_wav
from audiolm.cli.arguments import CACHE, add_sampling_options, run_tool, samplings_of
from audiolm.evaluation.conditioned import generate_samples, load_conditioned, write_evaluation
from audiolm.evaluation.digits.scores import (
    LABEL,
    SPEAKER,
    DigitScorer,
    evaluate_recordings,
    evaluate_samples,
    speakers_in_turn,
)
from audiolm.evaluation.digits.table import table


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
        options.checkpoint,
        trained,
        codec,
        rows,
        table(rows, scorer.speakers),
        samplings=samplings,
        seed=options.seed,
        best_of=options.best_of,
        speakers=scorer.speakers,
    )


def main() -> None:
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
        default=CACHE,
        help="folder that keeps the classifiers",
    )
    run_tool(parser, run)


if __name__ == "__main__":
    main()
