"""Evaluate a codec on recordings it never saw, beside Opus and codec2 as baselines.

    python scripts/tools/evaluate_codec.py CODEC --audio DIR --digits DIGITS --texts slt=BOOK.txt

CODEC is a codec's folder, or a checkpoint of its training (checkpoints/last.ckpt): before its
codebooks are fitted, it is evaluated without quantization (K = 0).

DIR has one subfolder a kind of sound (speech, music, demo, ...), each with recordings. Where
a metadata.csv in it says what is said in them (columns file_name and text, in English), the word
error rate is computed. Of DIGITS (Free Spoken Digit Dataset) the validation takes are a kind of
their own; the others train the classifier that names them. Everything is mono and compared at
the codec's sample rate.

Under the table of the kinds stand the lines that the decoder draws (upsampling_lines.py) and how
fast the codec encodes (encoding_speed.py).

C = 1 audio channel, N audio samples, K codebooks, T codec frames, V codes in a codebook.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import audiolm.codec.distances
import digit_classifier
import original_baselines
import spectral_shape
import speech_recogniser
from audiolm.audio import find_audio_files, read_audio, resample, write_wav
from audiolm.codec.distances import mel_distance, si_snr
from audiolm.files import replacing
from digit_classifier import (
    HELD_OUT_TAKES,
    DigitClassifier,
    load_classifier,
    load_digits,
    recognise,
)
from encoding_speed import encoding_speeds, plain_codec
from evaluated_codec import Evaluated, kbps_of, load_evaluated
from original_baselines import below_4_khz, unchanged
from spectral_shape import TELEPHONE, shape_r2
from upsampling_lines import Line, lines_of_codec, worst_line
from word_metric import WordMetric, load_word_metrics

DIGITS = "digits"
"""The kind whose clips are validation digits."""

STOI_SECONDS = 10.0
"""Clips are joined to pieces of this length: STOI needs 0.4 s of sound, more than most digits."""

MAX_DELAY = 0.06
"""Seconds by which a baseline may be late or early; it is aligned before it is compared."""

_TOO_LITTLE = 1e-5  # what pystoi returns, with a warning, where there is too little sound

SAME = 100.0  # dB of SI-SNR: what is above is rounding

PLAIN = "the plain network of audiolm 0.1"
"""Name of what encoding speeds are compared with."""

OPUS_KBPS = 6.0
CODEC2_KBPS = 3.2
CODEC2_RATE = 8000  # Hz, the only one it knows

Clips = list[Tensor]
"""Clips (1, n_i) at one sample rate."""


@dataclass
class Measures:
    """How near a codec's sound is to the original, of one kind of sound. Means over clips."""

    si_snr: float
    """dB."""
    mel_distance: float
    """dB, see `audiolm.codec.distances`."""
    stoi: float | None
    """0 to 1; None without pystoi. Defined for speech, of little meaning for music."""
    recognised: float | None
    """Of the digits recognised in the originals, the share recognised still; None for others."""
    shape_r2: float | None = None
    """Of the shape of the spectrum above 1 kHz, see spectral_shape.py; None for silence."""
    telephone_r2: float | None = None
    """The same up to 3.6 kHz only."""
    word_error_rate: float | None = None
    """Errors a word that is said; None for kinds of unknown texts."""


@dataclass
class Row:
    """One codec at one rate on every kind."""

    name: str
    kbps: float
    """kbit/s; 0 where nothing is coded."""
    kinds: dict[str, Measures]


# ---- Measures


class Metrics:
    """Measure clips against their originals, both at ``sample_rate`` Hz.

    Args:
        labels: of the clips of kind `DIGITS`, in their order.
        classifier: recognises digits; needed where there are labels.
        words: the metrics of the kinds whose texts are known.
    """

    def __init__(
        self,
        sample_rate: int,
        labels: Sequence[int] = (),
        classifier: DigitClassifier | None = None,
        words: Mapping[str, WordMetric] | None = None,
    ) -> None:
        self.sample_rate = sample_rate
        self.words = words or {}
        self.labels = torch.tensor(labels)
        self.classifier = classifier

    def scored(self, clips: Clips) -> Tensor:
        """Which of the digits are recognised: (B,) bool."""
        assert self.classifier is not None
        return recognise(self.classifier, clips, self.sample_rate) == self.labels

    def measure(self, kind: str, originals: Clips, decoded: Clips) -> Measures:
        """Compare ``decoded`` (1, n_i) with ``originals`` (1, n_i), clip by clip."""
        pairs = list(zip(decoded, originals, strict=True))
        recognised = None
        if kind == DIGITS and self.classifier is not None:
            known = self.scored(originals)
            recognised = float(self.scored(decoded)[known].float().mean())
        return Measures(
            si_snr=_mean([float(si_snr(d[None], o[None]).mean()) for d, o in pairs]),
            mel_distance=_mean(
                [float(mel_distance(d[None], o[None], self.sample_rate)) for d, o in pairs]
            ),
            stoi=intelligibility(originals, decoded, self.sample_rate),
            recognised=recognised,
            shape_r2=shape_r2(originals, decoded, self.sample_rate),
            telephone_r2=shape_r2(originals, decoded, self.sample_rate, TELEPHONE),
            word_error_rate=(
                self.words[kind].rate(decoded, self.sample_rate) if kind in self.words else None
            ),
        )


def intelligibility(originals: Clips, decoded: Clips, sample_rate: int) -> float | None:
    """Mean STOI (Taal et al., 2011) of the clips, joined and cut to pieces of `STOI_SECONDS`.

    None where pystoi is not installed or there is too little sound to tell.
    """
    if find_spec("pystoi") is None:
        return None
    from pystoi import stoi

    length = round(STOI_SECONDS * sample_rate)
    joined = torch.cat(originals, dim=1)[0], torch.cat(decoded, dim=1)[0]
    scores = []
    for original, scored in zip(*(torch.split(x.double(), length) for x in joined), strict=True):
        # A rest of less than a second holds too few of the frames that STOI correlates.
        if len(original) < sample_rate or not original.any():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            score = float(stoi(original.numpy(), scored.numpy(), sample_rate))
        if score != _TOO_LITTLE:
            scores.append(score)
    return _mean(scores) if scores else None


def perplexities(codes: Sequence[Tensor], codebook_size: int) -> list[float]:
    """How many codes of each codebook are in use: exp(entropy), 1 to V, of codes (K, t_i)."""
    joined = torch.cat(list(codes), dim=1)
    result = []
    for book in joined:
        share = torch.bincount(book, minlength=codebook_size).double() / len(book)
        result.append(float(torch.special.entr(share).sum().exp()))
    return result


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# ---- The codec


def evaluate(
    codec: Evaluated, kinds: Mapping[str, Clips], metrics: Metrics
) -> tuple[Row, list[float]]:
    """Encode and decode every clip; return the codec's row and each codebook's perplexity."""
    measures, every = {}, []
    for kind, clips in kinds.items():
        codes = codec.encode_batch(clips)
        decoded = [codec.decode(c[None], w.shape[1])[0] for c, w in zip(codes, clips, strict=True)]
        measures[kind] = metrics.measure(kind, clips, decoded)
        every += codes
    if not codec.num_codebooks:
        return Row("this codec, no quantization", 0.0, measures), []
    row = Row(f"this codec, K = {codec.num_codebooks}", kbps_of(codec), measures)
    return row, perplexities(every, codec.codebook_size)


def evaluate_lines(codec: Evaluated, strides: Sequence[int]) -> dict[str, dict[float, Line | None]]:
    """The lines that a decoder with these strides draws; see upsampling_lines.py."""

    def through(signal: Tensor) -> Tensor:
        (codes,) = codec.encode_batch([signal])
        return codec.decode(codes[None], signal.shape[1])[0]

    return lines_of_codec(through, strides, codec.sample_rate)


# ---- Baselines


def through_opus(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """Encode a clip (1, N) with Opus and decode it; also the kbit/s used, without the container."""
    source, coded, decoded = folder / "in.wav", folder / "coded.opus", folder / "out.wav"
    gain = write_wav(source, clip, sample_rate)
    output = _call("opusenc", "--bitrate", f"{OPUS_KBPS:g}", str(source), str(coded))
    used = re.search(r"Bitrate: ([\d.]+) kbit/s \(without overhead\)", output)
    if used is None:
        raise ValueError(f"opusenc did not tell its bit rate; it said {output[-200:]!r}")
    _call("opusdec", "--quiet", "--float", "--rate", "48000", str(coded), str(decoded))
    waveform, rate = read_audio(decoded, channels=1)
    return resample(waveform, rate, sample_rate) / gain, float(used[1])


def through_codec2(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """Encode a clip (1, N) with codec2 and decode it; also the kbit/s, which never vary."""
    source, coded, decoded = folder / "in.raw", folder / "coded.bin", folder / "out.raw"
    mode = f"{1000 * CODEC2_KBPS:g}"
    # It drops a frame that is not full and is late by more than one: without silence at the end
    # the clip's last sounds would be missing.
    narrow = torch.cat([resample(clip, sample_rate, CODEC2_RATE), torch.zeros(1, 800)], dim=1)
    samples = (narrow[0].numpy() * 32768).round().clip(-32768, 32767).astype("<i2")
    source.write_bytes(samples.tobytes())
    _call("c2enc", mode, str(source), str(coded))
    _call("c2dec", mode, str(coded), str(decoded))
    back = torch.from_numpy(np.frombuffer(decoded.read_bytes(), "<i2").astype(np.float32) / 32768)
    return resample(back[None], CODEC2_RATE, sample_rate), CODEC2_KBPS


Through = Callable[[Tensor, int, Path], tuple[Tensor, float]]

BASELINES: dict[str, tuple[Through, tuple[str, ...]]] = {
    "recordings": (unchanged, ()),
    "recordings below 4 kHz": (below_4_khz, ()),
    "Opus": (through_opus, ("opusenc", "opusdec")),
    "codec2": (through_codec2, ("c2enc", "c2dec")),
}
"""Name: how it is done, and the programs that it needs."""


def evaluate_baseline(name: str, kinds: Mapping[str, Clips], metrics: Metrics) -> Row:
    """Encode and decode every clip with the baseline, align, and measure."""
    through, _ = BASELINES[name]
    decoded: dict[str, Clips] = {}
    bits = seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for kind, clips in kinds.items():
            decoded[kind] = []
            for clip in clips:
                waveform, kbps = through(clip, metrics.sample_rate, Path(folder))
                decoded[kind].append(waveform)
                bits += kbps * clip.shape[1]
                seconds += clip.shape[1]
    pairs = [pair for k in kinds for pair in zip(kinds[k], decoded[k], strict=True)]
    delay = find_delay(pairs, metrics.sample_rate)
    measures = {
        kind: metrics.measure(
            kind,
            clips,
            [shifted(d, delay, c.shape[1]) for c, d in zip(clips, decoded[kind], strict=True)],
        )
        for kind, clips in kinds.items()
    }
    return Row(name, bits / seconds, measures)


def find_delay(pairs: Sequence[tuple[Tensor, Tensor]], sample_rate: int) -> int:
    """Samples, within `MAX_DELAY`, by which the second of each pair (1, n), (1, m) is late.

    One delay for all, since it is the codec's own. First by the envelopes: a vocoder keeps them
    but not the waveform, whose correlation with the original peaks by chance. Then, within 2 ms, by
    the waveforms.
    """
    step = max(1, sample_rate // 1000)

    def envelope(waveform: Tensor) -> Tensor:
        loudness = nn.functional.avg_pool1d(waveform.abs(), 10 * step, step)
        return loudness - loudness.mean()

    # 0.1 s at least, so that there are envelopes.
    longer = [(_pad(a, 0, 100 * step), _pad(b, 0, 100 * step)) for a, b in pairs]
    envelopes = [(envelope(a), envelope(b)) for a, b in longer]
    most = round(1000 * MAX_DELAY)
    coarse = step * _lag(envelopes, range(-most, most + 1))
    return _lag(pairs, range(coarse - 2 * step, coarse + 2 * step + 1))


def _lag(pairs: Sequence[tuple[Tensor, Tensor]], lags: range) -> int:
    """The lag, in steps, at which the pairs (1, n), (1, m) are most alike (or most opposed)."""
    most = max(abs(lag) for lag in lags)
    total = torch.zeros(len(lags), dtype=torch.float64)
    for original, late in pairs:
        size = original.shape[1] + late.shape[1] + most  # no lag wraps around
        first, second = (torch.fft.rfft(x[0].double(), size) for x in (original, late))
        correlation = torch.fft.irfft(first.conj() * second, size)
        level = float(original.norm() * late.norm())
        total += correlation[torch.tensor(lags) % size] / max(level, 1e-9)
    return lags[int(total.abs().argmax())]


def shifted(waveform: Tensor, delay: int, length: int) -> Tensor:
    """``waveform`` (1, m) earlier by ``delay`` samples, cut or filled with zeros to ``length``."""
    early = waveform[:, delay:] if delay >= 0 else _pad(waveform, -delay, 0)
    return _pad(early[:, :length], 0, max(0, length - early.shape[1]))


def _pad(waveform: Tensor, left: int, right: int) -> Tensor:
    return nn.functional.pad(waveform, (left, right))


def _call(*command: str) -> str:
    """Run a program; return what it said on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise ValueError(f"{' '.join(command)} failed: {done.stderr.strip()[-200:]}")
    return done.stderr


def load_baselines(kinds: Mapping[str, Clips], metrics: Metrics, cache: Path) -> list[Row]:
    """Rows of the baselines whose programs are there, measured on first use and kept in ``cache``.

    A row is measured anew when the clips, or the code that measures, are others.
    """
    rows = []
    for name, (_, programs) in BASELINES.items():
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            print(f"skipped {name}: {', '.join(missing)} not found", file=sys.stderr)
            continue
        key = hashlib.sha256(f"{name} {metrics.sample_rate} {find_spec('pystoi') is None}".encode())
        for source in (
            __file__,
            digit_classifier.__file__,
            audiolm.codec.distances.__file__,
            original_baselines.__file__,
            spectral_shape.__file__,
            speech_recogniser.__file__,
        ):
            key.update(Path(source).read_bytes())
        for kind, clips in kinds.items():
            key.update(kind.encode())
            key.update(metrics.words[kind].key.encode() if kind in metrics.words else b"")
            for clip in clips:
                key.update(clip.numpy().tobytes())
        file = cache / f"{name.replace(' ', '_')}_{key.hexdigest()[:16]}.json"
        if not file.is_file():
            row = evaluate_baseline(name, kinds, metrics)
            with replacing(file) as temporary:
                temporary.write_text(json.dumps(asdict(row), indent=1), encoding="utf-8")
        kept = json.loads(file.read_text(encoding="utf-8"))
        measures = {kind: Measures(**values) for kind, values in kept["kinds"].items()}
        rows.append(Row(kept["name"], kept["kbps"], measures))
    return rows


# ---- Command line


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


def markdown(rows: Sequence[Row], books: Sequence[float], codebook_size: int) -> str:
    """The rows as a table for a model card, kind by kind; below, each codebook's perplexity."""
    lines = [
        "| sound | codec | kbit/s | SI-SNR | mel | STOI "
        "| R2 above 1 kHz | R2 1 to 3.6 kHz | word errors | digits |",
        "| --- | --- |" + " --- |" * 8,
    ]
    for kind in rows[0].kinds:
        for row in rows:
            measures = row.kinds[kind]
            cells = [
                kind,
                row.name,
                f"{row.kbps:.1f}" if row.kbps else "-",
                f"{measures.si_snr:.1f}" if measures.si_snr < SAME else "-",
                f"{measures.mel_distance:.1f}",
                _cell(measures.stoi, ".2f"),
                _cell(measures.shape_r2, ".2f"),
                _cell(measures.telephone_r2, ".2f"),
                _cell(measures.word_error_rate, ".1%"),
                _cell(measures.recognised, ".1%"),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "SI-SNR and mel distance in dB. Digits: recognised, of those in the originals."]
    if books:
        used = ", ".join(f"{book:.0f}" for book in books)
        lines.append(f"Perplexity of the codebooks, of {codebook_size}: {used}.")
    return "\n".join(lines)


def lines_markdown(
    name: str,
    lines: Mapping[str, Mapping[float, Line | None]],
    originals: Mapping[str, Mapping[float, Line | None]],
) -> str:
    """The lines that the codec of this name draws, beside what is measured in its input."""
    spacings = list(next(iter(lines.values())))
    heads = " | ".join(f"every {spacing:g} Hz" for spacing in spacings)
    table = [
        f"| {name}, worst line in dB | worst | {heads} | in the original |",
        "| --- | --- |" + " --- |" * len(spacings) + " --- |",
    ]
    for signal, found in lines.items():
        worst = worst_line(found)
        cells = [f"{worst.prominence:.1f} at {worst.frequency:g} Hz, {worst.level:.0f} dBFS"]
        cells += [
            _cell(None if line is None else line.prominence, ".1f") for line in found.values()
        ]
        cells += [f"{worst_line(originals[signal]).prominence:.1f}"]
        table.append(f"| {signal} | " + " | ".join(cells) + " |")
    return "\n".join(table)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


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
        digits = load_digits(options.digits, HELD_OUT_TAKES)
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the codec that the command line names; print the table, write the JSON."""
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
        default=Path.home() / ".cache" / "audiolm",
        help="folder that keeps the digit classifier and the baselines' figures",
    )
    options = parser.parse_args(arguments)
    try:
        run(options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
