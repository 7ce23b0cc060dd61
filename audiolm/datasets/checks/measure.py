"""What one clip holds, by decoding it once from front to back.

Letters: C audio channels, N audio samples. Sample values are floats, full scale is -1 to 1.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audiolm.audio import read_info, reason_of, stream_audio

AUDIO = np.dtype(
    [
        ("key", np.uint64),  # see Measurement
        ("num_samples", np.int64),
        ("sample_rate", np.int32),
        ("size", np.int64),  # bytes of the file
        ("mtime_ns", np.int64),  # of its last change
    ]
)
"""What is known of a clip's audio and of the file that it was decoded from."""

MEASURED = np.dtype(
    [
        *AUDIO.descr,
        ("channels", np.int16),
        ("format", np.int16),  # index in a list of names
        ("peak", np.float32),
        ("rms", np.float32),
        ("mix_rms", np.float32),
        ("offset", np.float32),
        ("clipped", np.float32),
        ("missing", np.float32),
        ("trailing", np.int32),
    ]
)
"""A `Measurement` as a row of 68 bytes; zeros for a clip that cannot be decoded."""

NEAR_FULL_SCALE = 0.98
"""A peak from here on may be clipping: 8-bit PCM ends at 0.992, A-law at 0.984, mu-law at 0.980."""

SLACK = 0.05
"""Seconds by which a clip's end may lie beyond its file's: times in lists are rounded."""

_BLOCK = 65536  # samples of all channels together at a time: what fits a core's cache


class Measurement(NamedTuple):
    """A clip that can be decoded.

    key: 64-bit BLAKE2b of the decoded float32 samples at the file's own rate, of the rate and of
        the number of channels: the same audio has the same key, whatever its container.
    num_samples: of one channel, at `sample_rate` Hz.
    format: container and encoding, as libsndfile names them: "FLAC PCM_16".
    peak: the largest magnitude.
    rms: about each channel's mean, so that a constant is silence.
    mix_rms: the same of the mean over channels, which is what a mono codec gets.
    offset: the mean of the channel where it is furthest from zero, as a magnitude.
    clipped: share of the samples that are clipped. A sample is, where it is one of three or
        more in a row at exactly the channel's own highest (or lowest) value, and that is
        `NEAR_FULL_SCALE` or more. What was clipped and then turned down cannot be distinguished
        from a square wave and is not counted; a square wave at full scale is.
    missing: seconds that lack in the middle, by the times that the file gives its packets.
    trailing: bytes behind the samples that the header counts, which are neither read nor padding.
    """

    key: int
    num_samples: int
    sample_rate: int
    channels: int
    format: str
    peak: float
    rms: float
    mix_rms: float
    offset: float
    clipped: float
    missing: float
    trailing: int


class Fault(NamedTuple):
    """A clip that cannot be served: which rule it breaks, and why in one line without its path."""

    rule: str
    reason: str


def measure(path: Path, start: float = 0.0, end: float | None = None) -> Measurement | Fault:
    """Decode seconds `start` to `end` (None: all the rest) of a file. Never raises for a bad file.

    Memory for one block, however long the file.
    """
    try:
        info = read_info(path)
        duration = None if end is None else end - start
        size = max(1, _BLOCK // info.channels)
        blocks = stream_audio(
            path, block_duration=size / info.sample_rate, start=start, duration=duration
        )
        statistics = _Statistics(info.channels, info.sample_rate)
        for block in blocks:
            statistics.add(block.numpy())
    except (OSError, ValueError) as error:
        return _fault(error)
    seconds = statistics.num_samples / info.sample_rate
    if duration is not None and seconds < duration - SLACK:
        return Fault("truncated", f"the file ends at {start + seconds:.3f} s, the clip at {end} s")
    audio_format = f"{info.format} {info.subtype}"
    return statistics.measurement(audio_format, blocks.missing, info.trailing)


def _fault(error: Exception) -> Fault:
    reason = reason_of(error)
    # The first words of an AudioError's reason are its kind.
    for kind, rule in (("truncated", "truncated"), ("not finite", "not_finite")):
        if reason.startswith(kind):
            return Fault(rule, reason)
    return Fault("unreadable", reason)


class _Statistics:
    """Sums over the blocks of a clip."""

    def __init__(self, channels: int, sample_rate: int) -> None:
        self.num_samples = 0
        self._channels = channels
        self._sample_rate = sample_rate
        self._hash = hashlib.blake2b(f"{sample_rate} {channels}\n".encode(), digest_size=8)
        self._sum = np.zeros(channels)
        self._squares = np.zeros(channels)
        self._mix_sum = self._mix_squares = 0.0
        self._highest = _Plateau(channels)
        self._lowest = _Plateau(channels)

    def add(self, block: NDArray[np.float32]) -> None:
        """The next samples (C, n)."""
        # By time, then channel: the order does not depend on where blocks end.
        self._hash.update(np.ascontiguousarray(block.T, dtype="<f4").data)
        self.num_samples += block.shape[1]
        exact = block.astype(np.float64)
        self._sum += exact.sum(axis=1)
        self._squares += np.einsum("cn,cn->c", exact, exact)
        if self._channels > 1:
            mix = exact.mean(axis=0)
            self._mix_sum += float(mix.sum())
            self._mix_squares += float(mix @ mix)
        self._highest.add(block)
        self._lowest.add(-block)

    def measurement(self, audio_format: str, missing: float, trailing: int) -> Measurement:
        mean = self._sum / self.num_samples
        variance = np.maximum(self._squares / self.num_samples - mean**2, 0.0)
        rms = math.sqrt(variance.mean())
        mix_variance = (
            self._mix_squares / self.num_samples - (self._mix_sum / self.num_samples) ** 2
        )
        clipped = self._highest.finish() + self._lowest.finish()
        return Measurement(
            key=int.from_bytes(self._hash.digest(), "little"),
            num_samples=self.num_samples,
            sample_rate=self._sample_rate,
            channels=self._channels,
            format=audio_format,
            peak=abs(
                float(np.maximum(self._highest.values, self._lowest.values).max())
            ),  # not -0.0
            rms=rms,
            mix_rms=rms if self._channels == 1 else math.sqrt(max(mix_variance, 0.0)),
            offset=float(np.abs(mean).max()),
            clipped=clipped / (self.num_samples * self._channels),
            missing=missing,
            trailing=trailing,
        )


class _Plateau:
    """The highest value of each channel, and how many samples lie in runs of 3 or more at it.

    In one pass: where a higher value comes, what was counted at the one before is void. A sample is
    counted once the two on either side of it are known, so the last four are seen again.
    """

    def __init__(self, channels: int) -> None:
        self.values: NDArray[Any] = np.full(channels, -np.inf, np.float32)
        self._counts = np.zeros(channels, np.int64)
        self._outside = np.full((channels, 2), -np.inf, np.float32)
        self._tail = self._outside

    def add(self, block: NDArray[np.float32]) -> None:
        """The next samples (C, n)."""
        peaks = block.max(axis=1)
        self._counts[peaks > self.values] = 0
        self.values = np.maximum(self.values, peaks)
        self._count(block)

    def _count(self, block: NDArray[np.float32]) -> None:
        near = self.values[:, None] >= NEAR_FULL_SCALE
        if near.any():
            at = np.concatenate([self._tail, block], axis=1) == self.values[:, None]
            at &= near
            whole = at[:, :-2] & at[:, 1:-1] & at[:, 2:]
            self._counts += (whole[:, :-2] | whole[:, 1:-1] | whole[:, 2:]).sum(axis=1)
        self._tail = np.concatenate([self._tail, block[:, -4:]], axis=1)[:, -4:]

    def finish(self) -> int:
        """Samples of all channels in runs at their channel's highest value."""
        self._count(self._outside)
        return int(self._counts.sum())
