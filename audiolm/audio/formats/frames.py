"""A source made of the frames that FFmpeg decodes, by either of the two ways to call it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from audiolm.audio.errors import AudioError
from audiolm.audio.formats.source import DecodingError

FAILED = "truncated or damaged: decoding fails"
CHANGED = "damaged or joined of several: its sample rate or channels change"

_PADDING = 8192  # samples that an encoder may add behind the end: four of its longest frames
_ROUNDING = 1e-3  # s: MP4 tells the length of the trimmed track in milliseconds or finer
_JITTER = 0.015  # s: less than any frame of speech or music, more than times are rounded by
_TOLERANCE = 0.25  # s: what a decoder's delay and a rounded length explain


@dataclass(frozen=True)
class Promise:
    """How long the file says that the track is, in seconds; None: it does not say."""

    demuxer: str
    cut: bool
    """Whether the file ends before it should: then it holds less than it promises."""
    track: float | None
    """FFmpeg's duration of the track."""
    tag: str | None
    """Matroska's DURATION tag of the track, HH:MM:SS.fraction: where it ends."""
    file: float | None
    """Of the whole file: of its longest track."""
    start: float
    """When the track starts."""
    alone: bool
    """Whether the track is the file's only one."""

    @property
    def seconds(self) -> float:
        """0: nothing that could be relied on.

        FFmpeg estimates the length of ADTS and AMR from the bit rate, and those that AVI and ASF
        tell were seen a second off in whole files.
        """
        if self.demuxer in ("mov", "wv", "tta"):
            return self.track or 0.0
        if self.demuxer == "matroska":
            end = _tag_seconds(self.tag) or (self.file or 0.0 if self.alone else 0.0)
            return max(0.0, end - max(0.0, self.start))
        return 0.0

    def failed_at_once(self, path: Path, error: DecodingError) -> AudioError:
        return AudioError(path, f"{error} after 0.000 s of {self._promised_length}")

    def nothing(self, path: Path) -> AudioError:
        """For a track without a single sample."""
        if self.cut or self.seconds:
            return AudioError(path, f"truncated: 0.000 s of {self._promised_length}")
        return AudioError(path, "empty: 0 samples")

    @property
    def _promised_length(self) -> str:
        return f"{self.seconds:.3f} s" if self.seconds and not self.cut else "an unknown length"

    def trimmed(
        self, frames: Iterator[NDArray[np.float32]], sample_rate: int
    ) -> Iterator[NDArray[np.float32]]:
        """Without what an MP4's encoder added behind the end to fill its last frame."""
        if self.demuxer != "mov" or not self.seconds:
            yield from frames
            return
        end: float = math.ceil((self.seconds + _ROUNDING) * sample_rate)
        position = 0
        behind: list[NDArray[np.float32]] = []
        for frame in frames:
            position += len(frame)
            if position <= end:
                yield frame
                continue
            behind.append(frame)
            if position > end + _PADDING:  # no padding: the promise was wrong
                yield from behind
                behind, end = [], math.inf
        if behind:
            joined = np.concatenate(behind)
            yield joined[: len(joined) - int(position - end)]


def _tag_seconds(tag: str | None) -> float:
    try:
        hours, minutes, rest = (tag or "").split(":")
        value = 3600 * int(hours) + 60 * int(minutes) + float(rest)
    except ValueError:
        return 0.0
    return value if 0 < value < math.inf else 0.0


@dataclass
class Timeline:
    """Frames by the times that their file gives them."""

    missing: float = 0.0
    """Seconds between frames that follow each other."""
    _end: float | None = None

    def add(self, start: float | None, duration: float) -> None:
        """The next frame, in seconds. start: None where the file does not tell."""
        if start is None:
            start = self._end
        if start is None:
            return
        if self._end is not None and start - self._end > _JITTER:
            self.missing += start - self._end
        self._end = start + duration


@dataclass
class FrameSource:
    """A `Source` over ``frames``: samples (n, C) of any n, then the end or a DecodingError."""

    path: Path
    sample_rate: int
    channels: int
    format: str
    subtype: str
    promise: Promise
    frames: Iterator[NDArray[np.float32]]
    timeline: Timeline = field(default_factory=Timeline)
    num_samples: int | None = None
    trailing: int = 0
    can_seek: bool = False

    def __post_init__(self) -> None:
        self._frames = self.promise.trimmed(self.frames, self.sample_rate)
        self._rest = np.zeros((0, self.channels), np.float32)
        self._error: DecodingError | None = None

    @property
    def promised(self) -> float:
        return math.inf if self.promise.cut else self.promise.seconds * self.sample_rate

    @property
    def missing(self) -> float:
        return self.timeline.missing

    @property
    def tolerance(self) -> float:
        return _TOLERANCE * self.sample_rate

    def seek(self, sample: int) -> None:
        raise NotImplementedError("FFmpeg lands beside the place: decode up to it")

    def read(self, count: int) -> NDArray[np.float32]:
        """A DecodingError comes after all samples before it."""
        parts = [self._rest]
        held = len(self._rest)
        while held < count and self._error is None:
            try:
                part = next(self._frames, None)
            except DecodingError as error:
                self._error = error
                break
            if part is None:
                break
            parts.append(part)
            held += len(part)
        if held == 0 and self._error is not None:
            raise self._error
        joined = np.concatenate(parts)
        self._rest = joined[count:]
        return joined[:count]
