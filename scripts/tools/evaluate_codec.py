"""Evaluate a codec on validation recordings, beside Opus and codec2 as baselines.

    python scripts/tools/evaluate_codec.py CODEC --audio DIR --digits DIGITS --texts slt=BOOK.txt

CODEC is a codec's folder, or a checkpoint of its training (checkpoints/last.ckpt): before its
codebooks are fitted, it is evaluated without quantization (K = 0).

DIR has one subfolder a kind of sound (speech, music, demo, ...), each with recordings. Where
a metadata.csv in it says what is said in them (columns file_name and text, in English), the word
error rate is computed. Of DIGITS (Free Spoken Digit Dataset) the validation takes are a kind of
their own; the others train the classifier that names them. Everything is mono and compared at
the codec's sample rate.

Under the table of the kinds stand the lines that the decoder draws and how fast the codec encodes.
What is measured, and how, is in audiolm/evaluation/codec.

C = 1 audio channel, N audio samples, K codebooks, T codec frames, V codes in a codebook.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor

from audiolm.audio import find_audio_files, read_audio, resample
from audiolm.cli.arguments import CACHE, run_tool
from audiolm.evaluation.codec.baselines import load_baselines
from audiolm.evaluation.codec.encoding_speed import encoding_speeds, plain_codec
from audiolm.evaluation.codec.evaluated import Evaluated, load_evaluated
from audiolm.evaluation.codec.metrics import DIGITS, Clips, Metrics, evaluate
from audiolm.evaluation.codec.table import lines_markdown, markdown
from audiolm.evaluation.codec.upsampling_lines import Line, lines_of_codec
from audiolm.evaluation.digits.classifier import VALIDATION_TAKES, load_classifier, load_digits
from audiolm.evaluation.speech.word_metric import load_word_metrics
from audiolm.files import replacing

PLAIN = "the plain network of audiolm 0.1"
"""Name of what encoding speeds are compared with."""


def load_kinds(
    folder: Path, sample_rate: int, names: Sequence[str] | None = None
) -> dict[str, Clips]:
    """The recordings in each subfolder of ``folder``, mono, at ``sample_rate`` Hz.

    Args:
        names: of the subfolders to take; None takes all.

    Raises:
        ValueError, OSError: there is no subfolder, or one of them holds no readable audio.
    """
    subfolders = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not subfolders:
        raise ValueError(f"{folder}: holds no subfolders, one a kind of sound (speech, music, ...)")
    if missing := set(names or ()) - {sub.name for sub in subfolders}:
        raise ValueError(f"{folder / min(missing)}: no such folder")
    return {
        sub.name: [read_audio(path, sample_rate, 1)[0] for path in find_audio_files(sub)]
        for sub in subfolders
        if names is None or sub.name in names
    }


def evaluate_lines(codec: Evaluated, strides: Sequence[int]) -> dict[str, dict[float, Line | None]]:
    """The lines that a decoder with these strides draws."""

    def through(signal: Tensor) -> Tensor:
        (codes,) = codec.encode_batch([signal])
        return codec.decode(codes[None], signal.shape[1])[0]

    return lines_of_codec(through, strides, codec.sample_rate)


def run(options: argparse.Namespace) -> None:
    """What `main` does once the command line is read."""
    codecs = load_evaluated(options.codec, _numbers(options.num_codebooks))
    sample_rate = codecs[0].sample_rate
    if codecs[0].channels != 1:
        raise ValueError(
            f"{options.codec}: has {codecs[0].channels} channels; only mono is evaluated"
        )
    kinds = load_kinds(options.audio, sample_rate, options.kinds) if options.audio else {}
    words = load_word_metrics(options.audio, kinds, _texts(options.texts, kinds))
    labels: list[int] = []
    classifier = None
    if options.digits:
        if DIGITS in kinds:
            raise ValueError(
                f"{options.audio / DIGITS}: rename it, or omit it by --kinds; --digits "
                f"gives the kind's clips"
            )
        digits = load_digits(options.digits, VALIDATION_TAKES)
        labels = [digit.label for digit in digits]
        kinds[DIGITS] = [resample(d.waveform, d.sample_rate, sample_rate) for d in digits]
        classifier = load_classifier(options.digits, options.cache)
    metrics = Metrics(sample_rate, labels, classifier, words)
    if not kinds:
        raise ValueError("nothing to evaluate on: give --audio, --digits or both")
    if labels:
        known = float(metrics.scored(kinds[DIGITS]).float().mean())
        print(f"Digits recognised in the originals: {known:.1%} of {len(labels)}.\n")
    if find_spec("pystoi") is None:
        print("skipped STOI: pip install pystoi", file=sys.stderr)

    rows, books = [], list[float]()
    for codec in codecs:
        row, books = evaluate(codec, kinds, metrics)
        rows.append(row)
        print(f"measured {row.name}", file=sys.stderr, flush=True)  # words take minutes
    best, strides = codecs[-1], codecs[-1].settings["ratios"]
    name = rows[-1].name
    rows += load_baselines(kinds, metrics, options.cache)
    print(markdown(rows, books, best.codebook_size), end="\n\n")
    lines = evaluate_lines(best, strides)
    in_originals = lines_of_codec(lambda signal: signal, strides, sample_rate)
    print(lines_markdown(name, lines, in_originals), end="\n\n")
    speeds = encoding_speeds({name: best, PLAIN: plain_codec()})
    print(
        f"Encodes {speeds[name]:.0f} hours an hour on one thread, {PLAIN} {speeds[PLAIN]:.0f}: "
        f"{speeds[name] / speeds[PLAIN]:.2f} times as many."
    )
    if options.out:
        result = {
            "codec": best.identity(),
            "sample_rate": sample_rate,
            "clips": {kind: len(clips) for kind, clips in kinds.items()},
            "seconds": {
                kind: sum(clip.shape[1] for clip in clips) / sample_rate
                for kind, clips in kinds.items()
            },
            "words": {kind: metric.num_words for kind, metric in words.items()},
            "rows": [asdict(row) for row in rows],
            "perplexities": books,
            "lines": {"codec": _plain(lines), "originals": _plain(in_originals)},
            "encoding_speed": speeds,
        }
        with replacing(options.out) as temporary:
            temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _plain(lines: Mapping[str, Mapping[float, Line | None]]) -> dict[str, dict[str, object]]:
    return {
        signal: {
            f"{spacing:g} Hz": None if line is None else asdict(line)
            for spacing, line in found.items()
        }
        for signal, found in lines.items()
    }


def _numbers(given: str | None) -> list[int] | None:
    try:
        return None if given is None else [int(k) for k in given.split(",")]
    except ValueError as error:
        raise ValueError(f"--num-codebooks {given}: give numbers with commas, as 2,4,8") from error


def _texts(given: Sequence[str], kinds: Mapping[str, Clips]) -> dict[str, Path]:
    texts = {}
    for one in given:
        kind, separator, file = one.partition("=")
        if not separator or kind not in kinds:
            raise ValueError(
                f"--texts {one}: give KIND=FILE, KIND one of {', '.join(kinds) or '--audio'}"
            )
        texts[kind] = Path(file)
    return texts


def main() -> None:
    """Evaluate the codec that the command line names; print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "codec", type=Path, help="NAME.safetensors beside NAME.json, a folder, or a .ckpt"
    )
    parser.add_argument("--audio", type=Path, help="validation recordings, a subfolder a kind")
    parser.add_argument("--kinds", nargs="+", help="which of the subfolders; default: all")
    parser.add_argument(
        "--texts",
        nargs="+",
        default=[],
        metavar="KIND=FILE",
        help="what may be said in a kind, whose pairs of words the recogniser expects: a text a "
        "line, or a .csv with a column text; with file_name it also says what is said in the "
        "clips; default: the kind's metadata.csv",
    )
    parser.add_argument("--digits", type=Path, help="Free Spoken Digit Dataset")
    parser.add_argument(
        "--num-codebooks",
        help="K, with commas, 0 for no quantization; default: all that 3.2 kbit/s allow, "
        "and half of them",
    )
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument(
        "--cache",
        type=Path,
        default=CACHE,
        help="folder that keeps the digit classifier and the baselines' figures",
    )
    run_tool(parser, run)


if __name__ == "__main__":
    main()
