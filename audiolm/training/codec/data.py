"""Segments of recordings for training a codec.

The recordings are decoded once, to one memory-mapped file of samples, so that a random segment of
a collection of any size is read in microseconds.

B batch, C audio channels, N audio samples.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from tqdm import tqdm

from audiolm.audio import AudioError, search_folder, stream_audio
from audiolm.batches.buckets import StepSampler
from audiolm.batches.loaders import StepLoader
from audiolm.batches.splits import split_by_hash
from audiolm.files import hash64, replacing, user_path
from audiolm.limits import COUNT, COUNT_OR_NONE, POSITIVE, SHARE_BELOW_1
from audiolm.parallel import ignore_interrupts
from audiolm.progress import audio_rate, bar_interval
from audiolm.training.codec.augment import (
    add_noise,
    add_room,
    change_speed,
    check_augment,
    source_length,
    tilt_spectrum,
)

SILENT = 10 ** (-70 / 20)  # rms of a recording with nothing in it
QUIET = 10 ** (-30 / 20)  # of its recording's rms: a segment below is a pause
TRIES = 10  # tries for a segment that is not a pause
FORMAT = 2
EMPTY = 1e-6  # of the power of the strongest band (-60 dB): what lies above has nothing in it
WINDOW = 1024  # samples, of the spectra that tell a recording's bandwidth
LOUDEST = 65504.0  # of half precision


class Segment(NamedTuple):
    """A segment of a recording, or a batch of them."""

    waveform: Tensor
    """(C, N); of a batch (B, C, N)."""
    bandwidth: Tensor
    """Hz up to which the recording has anything; of a batch (B,)."""


class Waveforms:
    """All recordings of a folder at one rate, decoded, in memory-mapped float16.

    Half precision has no full scale to clip at, and an error of -66 dB of each sample.

    Args:
        folder: of recordings, searched recursively.
        cache: folder in which the decoded samples are kept, in one of its own.
        sample_rate: Hz.
        channels: 1 or 2.
        files: those to use, such as a check has kept; None: all that are below the folder.

    Raises:
        FileNotFoundError, ValueError: no folder, no recordings, or none that can be read.
    """

    def __init__(
        self,
        folder: Path,
        cache: Path,
        sample_rate: int,
        channels: int,
        files: Sequence[Path] | None = None,
    ) -> None:
        self.folder = user_path(folder)
        self.sample_rate = sample_rate
        root = self.folder.resolve()
        files = (
            search_folder(root).files
            if files is None
            else sorted(set(files), key=lambda file: _id(file, root))
        )
        stats = [file.stat() for file in files]
        ids = [_id(file, root) for file in files]
        listing = [[i, s.st_size, s.st_mtime_ns] for i, s in zip(ids, stats, strict=True)]
        key = hashlib.sha256(
            json.dumps([FORMAT, sample_rate, channels, listing]).encode()
        ).hexdigest()[:10]
        self.path = Path(cache) / f"{self.folder.resolve().name}-{key}"
        index = self._read_index(channels)
        if index is None:
            self._decode(files, ids, channels)
            index = self._read_index(channels)
        assert index is not None
        self.ids: list[str] = index["ids"]
        self.skipped: dict[str, str] = index["skipped"]
        self.lengths: NDArray[np.int64] = np.array(index["lengths"], np.int64)
        self.rms: NDArray[np.float64] = np.array(index["rms"])
        self.bandwidths: NDArray[np.float64] = np.array(index["bandwidths"])
        """Hz of each, see `EMPTY`."""
        self._starts = np.cumsum(self.lengths) - self.lengths
        if not self.ids:
            reason = next(iter(self.skipped.items()))
            raise ValueError(
                f"{self.folder}: none of its {len(files)} recordings can be used, such as "
                f"{reason[0]}: {reason[1]}"
            )
        self._samples = np.memmap(
            self.path / "samples.f16", np.float16, "r", shape=(int(self.lengths.sum()), channels)
        )

    def _read_index(self, channels: int) -> dict[str, Any] | None:
        """What is cached, or None where that is not all there."""
        try:
            index: dict[str, Any] = json.loads(
                (self.path / "index.json").read_text(encoding="utf-8")
            )
            size = (self.path / "samples.f16").stat().st_size
            whole = size == 2 * channels * sum(index["lengths"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return index if whole else None

    def _decode(self, files: Sequence[Path], ids: Sequence[str], channels: int) -> None:
        kept, lengths, levels, bandwidths, skipped = [], [], [], [], {}
        began, total = time.perf_counter(), 0
        bar = tqdm(files, "decoding", unit="file", leave=False, mininterval=bar_interval())
        with replacing(self.path / "samples.f16") as temporary, temporary.open("wb") as out:
            for file, name in zip(bar, ids, strict=True):
                begin, length, energy = out.tell(), 0, 0.0
                power = np.zeros(WINDOW // 2 + 1)
                try:
                    for block in stream_audio(file, self.sample_rate, channels):
                        samples = _half(block)
                        if samples is None:
                            raise AudioError(file, f"samples beyond {LOUDEST:g} times full scale")
                        out.write(samples.tobytes())
                        length += block.shape[1]
                        energy += float(block.double().square().mean(dim=0).sum())
                        power += _power(block)
                    level = (energy / length) ** 0.5
                    if level < SILENT:
                        raise AudioError(file, "silent")
                except AudioError as error:
                    out.seek(begin)
                    out.truncate()
                    skipped[name] = error.reason
                    continue
                kept.append(name)
                lengths.append(length)
                levels.append(level)
                bandwidths.append(_bandwidth(power, self.sample_rate))
                total += length
                rate = audio_rate(total / self.sample_rate, time.perf_counter() - began)
                bar.set_postfix_str(rate, refresh=False)
        index = {
            "ids": kept,
            "lengths": lengths,
            "rms": levels,
            "bandwidths": bandwidths,
            "skipped": skipped,
        }
        with replacing(self.path / "index.json") as temporary:
            temporary.write_text(json.dumps(index), encoding="utf-8")

    @property
    def size(self) -> int:
        """Bytes of the decoded samples on the disk."""
        return 2 * int(self._samples.size)

    def read(self, recording: int, start: int, length: int) -> Tensor:
        """Samples (C, length) of a recording, from `start` on, as float32."""
        first = int(self._starts[recording]) + start
        part = self._samples[first : first + length]
        return torch.from_numpy(part.T.astype(np.float32))


def _id(file: Path, root: Path) -> str:
    """The path below the folder, or all of it for a file elsewhere."""
    return (file.relative_to(root) if file.is_relative_to(root) else file).as_posix()


def _half(block: Tensor) -> NDArray[np.float16] | None:
    """Samples (C, N) as (N, C) in half precision; None where one is beyond its range."""
    if float(block.abs().max()) > LOUDEST:
        return None
    return block.T.contiguous().numpy().astype(np.float16)


def _power(block: Tensor) -> NDArray[np.float64]:
    """Power spectrum (WINDOW / 2 + 1,) of samples (C, N), summed over channels and windows."""
    samples = torch.nn.functional.pad(block, (0, max(0, WINDOW - block.shape[1])))
    windows = samples.unfold(1, WINDOW, WINDOW).double() * torch.hann_window(WINDOW)
    power: NDArray[np.float64] = torch.fft.rfft(windows).abs().square().sum(dim=(0, 1)).numpy()
    return power


def _bandwidth(power: NDArray[np.float64], sample_rate: int) -> float:
    """Hz up to which a power spectrum holds more than `EMPTY` of its strongest band."""
    smooth = np.convolve(power, np.ones(5) / 5, "same")
    highest = int(np.flatnonzero(smooth >= EMPTY * smooth.max())[-1])
    return highest / WINDOW * sample_rate


def _subfolder(name: str) -> str:
    """The first folder of a recording's path; nothing for one that is in none."""
    first, slash, _ = name.partition("/")
    return first if slash else ""


class TrainingSegments(Dataset[Segment]):
    """Random segments (C, N), endless; item g follows from (seed, g) and the data alone.

    Each moment of the recordings is as likely as any other, but for `weights`; pauses are taken
    again. A recording shorter than a segment gives all of itself, then zeros.

    Args:
        waveforms: the recordings.
        spans: of them that are trained on, see `audiolm.batches.splits`, in samples.
        length: N.
        level: dBFS (rms) that a recording gets, sampled anew for each segment between these two.
        weights: how much more often a subfolder is sampled from than by its duration.
        seed: of everything random.
        augment: how segments are varied, see `audiolm.training.codec.augment.AUGMENT`.
    """

    def __init__(
        self,
        waveforms: Waveforms,
        spans: NDArray[Any],
        length: int,
        level: tuple[float, float],
        weights: Mapping[str, float],
        seed: int,
        augment: Mapping[str, float] | None = None,
    ) -> None:
        self.waveforms, self.spans, self.length = waveforms, spans, length
        self.level, self.seed = level, seed
        self.augment = check_augment(augment)
        names = [_subfolder(waveforms.ids[i]) for i in spans["clip"]]
        unknown = set(weights) - set(names)
        if unknown:
            raise ValueError(
                f"data.weights names {', '.join(sorted(unknown))}: not among the subfolders "
                f"({', '.join(sorted(set(names) - {''})) or 'there are none'}) that are trained on"
            )
        factor = np.array([weights.get(name, 1.0) for name in names])
        if not factor.any():
            raise ValueError(
                f"data.weights={dict(weights)} leaves nothing to train on; raise one above 0"
            )
        self._ends = np.cumsum(np.maximum(spans["frames"], length) * factor)

    def __getitem__(self, g: int) -> Segment:
        rng = np.random.default_rng([self.seed, g])
        change = self.augment["speed"]
        speed = float(rng.uniform(1 - change, 1 + change)) if change else 1.0
        wanted = source_length(self.length, speed) if change else self.length
        for _ in range(TRIES):
            position = rng.random() * self._ends[-1]
            clip, first, frames = (
                int(x) for x in self.spans[np.searchsorted(self._ends, position, side="right")]
            )
            length = min(frames, wanted)
            start = first + int(rng.integers(frames - length + 1))
            waveform = self.waveforms.read(clip, start, length)
            rms = float(self.waveforms.rms[clip])
            if float(waveform.square().mean().sqrt()) > QUIET * rms:
                break
        nyquist = self.waveforms.sample_rate / 2
        bandwidth = min(nyquist, speed * float(self.waveforms.bandwidths[clip]))
        if any(self.augment.values()):
            varied, noisy = self._varied(waveform.numpy(), rms, speed, rng)
            waveform = torch.from_numpy(np.ascontiguousarray(varied))
            bandwidth = nyquist if noisy else bandwidth
        gain = 10 ** (rng.uniform(*self.level) / 20) / rms
        padded = torch.nn.functional.pad(waveform * gain, (0, self.length - waveform.shape[1]))
        return Segment(padded, torch.tensor(bandwidth, dtype=torch.float32))

    def _varied(
        self, samples: NDArray[np.float32], rms: float, speed: float, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], bool]:
        """Samples (C, N), varied; and whether with noise, which fills the whole band."""
        options, rate = self.augment, self.waveforms.sample_rate
        if options["speed"]:
            length = min(self.length, max(1, int(samples.shape[1] / speed)))
            samples = change_speed(samples, rate, speed, length)
        if options["tilt"]:
            samples = tilt_spectrum(samples, float(rng.uniform(-1, 1)) * options["tilt"])
        if rng.random() < options["room"]:
            samples = add_room(samples, rate, rng)
        noisy = bool(rng.random() < options["noise"])
        if noisy:
            samples = add_noise(samples, rms, rng)
        return (samples if rng.random() < 0.5 else -samples), noisy


class ValidationSegments(Dataset[Tensor]):
    """Up to `count` segments (C, N) from the middle of validation recordings, at one level."""

    def __init__(
        self, waveforms: Waveforms, spans: NDArray[Any], length: int, level: float, count: int
    ) -> None:
        self.waveforms, self.length, self.level = waveforms, length, level
        chosen = np.linspace(0, len(spans) - 1, min(count, len(spans))).round().astype(int)
        self.spans = spans[chosen]

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, i: int) -> Tensor:
        clip, first, frames = (int(x) for x in self.spans[i])
        length = min(frames, self.length)
        waveform = self.waveforms.read(clip, first + (frames - length) // 2, length)
        gain = 10 ** (self.level / 20) / float(self.waveforms.rms[clip])
        return torch.nn.functional.pad(waveform * gain, (0, self.length - length))


def segment_length(seconds: float, sample_rate: int, hop_length: int) -> int:
    """Samples of a segment of at least this long, in whole frames."""
    return -(-max(1, round(seconds * sample_rate)) // hop_length) * hop_length


def check_segment_settings(
    *,
    segment: float,
    valid_segment: float,
    batch_size: int,
    level: Sequence[float],
    weights: Mapping[str, float] | None,
    valid_fraction: float,
    num_valid: int,
    augment: Mapping[str, float] | None,
) -> None:
    """Raise ValueError for settings of `WaveformData` out of range, before anything is decoded."""
    COUNT.check("data.batch_size", batch_size)
    COUNT_OR_NONE.check("data.num_valid", num_valid)
    SHARE_BELOW_1.check("data.valid_fraction", valid_fraction)
    POSITIVE.check("data.segment", segment)
    POSITIVE.check("data.valid_segment", valid_segment)
    if len(level) != 2 or not all(map(_is_number, level)) or not level[0] <= level[1] <= 0:
        raise ValueError(f"data.level={list(level)} must be two levels in dBFS, low and high")
    if weights is not None and not (
        isinstance(weights, Mapping) and all(_is_number(w) and w >= 0 for w in weights.values())
    ):
        raise ValueError(
            f"data.weights={weights} must be {{SUBFOLDER: FACTOR, ...}} with factors of 0 or more"
        )
    check_augment(augment)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


class WaveformData(pl.LightningDataModule):
    """Batches (B, C, N) of segments; that of step n is a function of (seed, n).

    Args:
        waveforms: the recordings.
        hop_length: samples of a codec's frame, of which a segment holds a whole number.
        segment: seconds of a training segment, at least.
        valid_segment: seconds of a validation segment, at least.
        batch_size: B, segments a step.
        level: see `TrainingSegments`; validation segments are at the mean of the two.
        weights: see `TrainingSegments`.
        valid_fraction: share of the recordings for validation, by a hash of their names.
        num_valid: validation segments, at most.
        augment: see `TrainingSegments`; validation segments are as they are.
        seed: of the order and the crops.
        num_workers: processes that read ahead; 0 reads in the training process.

    Raises:
        ValueError: for settings out of range, and recordings too short for one segment.
    """

    def __init__(
        self,
        waveforms: Waveforms,
        hop_length: int,
        segment: float = 0.64,
        valid_segment: float = 2.0,
        batch_size: int = 4,
        level: Sequence[float] = (-38.0, -16.0),
        weights: Mapping[str, float] | None = None,
        valid_fraction: float = 0.05,
        num_valid: int = 96,
        augment: Mapping[str, float] | None = None,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        check_segment_settings(
            segment=segment,
            valid_segment=valid_segment,
            batch_size=batch_size,
            level=level,
            weights=weights,
            valid_fraction=valid_fraction,
            num_valid=num_valid,
            augment=augment,
        )
        length, valid_length = (
            segment_length(seconds, waveforms.sample_rate, hop_length)
            for seconds in (segment, valid_segment)
        )
        self.waveforms = waveforms
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.train_spans, self.valid_spans = split_by_hash(
            np.zeros(len(waveforms.ids), np.int64),
            np.array([hash64(name) for name in waveforms.ids], np.uint64),
            waveforms.lengths,
            valid_fraction,
            str(waveforms.folder),
        )
        longest = int(self.train_spans["frames"].max())
        if longest < length:
            raise ValueError(
                f"{waveforms.folder}: the longest of the recordings to train on lasts "
                f"{longest / waveforms.sample_rate:.2f} s, shorter than a segment of "
                f"{length / waveforms.sample_rate:.2f} s; add longer ones, or lower data.segment"
            )
        self.train_segments = TrainingSegments(
            waveforms, self.train_spans, length, (level[0], level[1]), weights or {}, seed, augment
        )
        self.valid_segments = ValidationSegments(
            waveforms, self.valid_spans, valid_length, sum(level) / 2, num_valid
        )

    def train_dataloader(self) -> StepLoader:
        assert self.trainer is not None
        size = self.batch_size
        sampler = StepSampler(
            lambda n: list(range(n * size, (n + 1) * size)),
            start_batch=self.trainer.global_step,
            num_batches=self.trainer.max_steps,
        )
        return StepLoader(
            self.train_segments,
            batch_sampler=sampler,
            num_workers=self.num_workers,
            worker_init_fn=ignore_interrupts,
        )

    def val_dataloader(self) -> StepLoader | list[Any]:
        if not len(self.valid_spans):
            return []
        return StepLoader(self.valid_segments, batch_size=8)
