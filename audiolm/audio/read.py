"""Audio files as waveforms: whole, in blocks, or in part; and what they say of themselves."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audiolm.audio.convert import check_rate, convert_channels, resample_parts
from audiolm.audio.errors import AudioError
from audiolm.audio.formats.open import open_source
from audiolm.audio.formats.source import DecodingError, Source, seconds

_CHUNK = 16384  # samples decoded at a time: how near a decoding error is located


@dataclass(frozen=True)
class AudioInfo:
    """What a file says of itself. `num_samples` counts one channel."""

    sample_rate: int
    """Hz."""
    channels: int
    num_samples: int
    format: str
    """The container: WAV, FLAC, MP3, OGG, ... (libsndfile's names), MP4, MATROSKA, ASF, AVI, ..."""
    subtype: str
    """The encoding: PCM_16, FLOAT, VORBIS, ... (libsndfile's names), AAC, ALAC, OPUS, ..."""
    trailing: int = 0
    """Bytes behind the samples that the header counts, which are neither read nor padding."""

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.num_samples / self.sample_rate


def read_info(path: Path | str) -> AudioInfo:
    """Rate, channels, length and format. Decodes the file only where no header tells its length.

    Raises:
        AudioError: not audio, not readable, or empty. (A file that was cut passes where its header
            tells its length: `num_samples` is then what libsndfile finds; `read_audio` is the
            check.)
    """
    with open_source(path) as source:
        num_samples = source.num_samples
        if num_samples is None:
            num_samples = sum(len(chunk) for chunk in _decode(source, 0.0, None))
        if num_samples == 0:
            raise AudioError(path, _empty(source))
        return AudioInfo(
            sample_rate=source.sample_rate,
            channels=source.channels,
            num_samples=num_samples,
            format=source.format,
            subtype=source.subtype,
            trailing=source.trailing,
        )


def read_audio(
    path: Path | str,
    sample_rate: int | None = None,
    channels: int | None = None,
    start: float = 0.0,
    duration: float | None = None,
) -> tuple[Tensor, int]:
    """The samples of a file, (C, N) float32, and their rate in Hz.

    Args:
        path: a file of any format, rate and depth that libsndfile reads, or FFmpeg where it is
            there; of a file with several audio tracks, the first. Integers are divided by their
            full scale; floats are kept, also beyond -1 to 1.
        sample_rate: Hz, resampled to it (see `resample`); None keeps the file's.
        channels: 1 or 2, see `convert_channels`; None keeps the file's.
        start: seconds into the file (its audio track). The part is cut out first and resampled
            then.
        duration: seconds; None reads to the end. Where the file ends sooner, what is there.

    Raises:
        AudioError: the file cannot be read, is not audio, holds no samples (from ``start`` on),
            holds NaN or Inf, or ends before the length that its header promises. Parts that were
            not asked for are not checked.
        ValueError: an argument out of its range.
    """
    _check_request(sample_rate, channels, start, duration)
    with open_source(path) as source:
        blocks = list(_blocks(source, sample_rate, channels, 30.0, start, duration))
        return torch.cat(blocks, dim=1), sample_rate or source.sample_rate


def stream_audio(
    path: Path | str,
    sample_rate: int | None = None,
    channels: int | None = None,
    block_duration: float = 30.0,
    start: float = 0.0,
    duration: float | None = None,
) -> AudioBlocks:
    """As `read_audio`, in blocks (C, n), with memory for one block however long the file.

    Each block but the last holds ``round(block_duration * rate)`` samples. Joined, they are
    `read_audio`'s samples exactly: both come from here. A fault of the file is raised as AudioError
    where it is met, that is after the good blocks before it; an argument out of range at once.
    """
    _check_request(sample_rate, channels, start, duration)
    if not 0 < block_duration < math.inf:
        raise ValueError(f"block_duration is {block_duration} s: must be positive and finite")

    return AudioBlocks(path, sample_rate, channels, block_duration, start, duration)


class AudioBlocks(Iterator[Tensor]):
    """The blocks of `stream_audio`, and what was noticed while they were decoded."""

    def __init__(
        self,
        path: Path | str,
        sample_rate: int | None,
        channels: int | None,
        block_duration: float,
        start: float,
        duration: float | None,
    ) -> None:
        self._source: Source | None = None
        self._blocks = self._read(path, (sample_rate, channels, block_duration, start, duration))

    def __next__(self) -> Tensor:
        return next(self._blocks)

    def close(self) -> None:
        """Decode no more: the file is closed, and a program that decodes it ends."""
        self._blocks.close()

    @property
    def missing(self) -> float:
        """Seconds that lack, by the file's own times, between what was decoded so far.

        0 for formats without times, and where the ffmpeg program decodes.
        """
        return 0.0 if self._source is None else self._source.missing

    def _read(
        self,
        path: Path | str,
        request: tuple[int | None, int | None, float, float, float | None],
    ) -> Generator[Tensor, None, None]:
        with open_source(path) as source:
            self._source = source
            yield from _blocks(source, *request)


def _check_request(
    sample_rate: int | None, channels: int | None, start: float, duration: float | None
) -> None:
    if sample_rate is not None:
        check_rate(sample_rate)
    if channels not in (None, 1, 2):
        raise ValueError(f"channels is {channels}: must be 1 (mono), 2 (stereo) or None (as is)")
    if not 0 <= start < math.inf:
        raise ValueError(f"start is {start} s: must be finite and not negative")
    if duration is not None and not 0 < duration < math.inf:
        raise ValueError(f"duration is {duration} s: must be finite and positive")


def _blocks(
    source: Source,
    sample_rate: int | None,
    channels: int | None,
    block_duration: float,
    start: float,
    duration: float | None,
) -> Iterator[Tensor]:
    """Decoded, mixed, resampled, and cut into blocks (C, n)."""
    source_rate = source.sample_rate
    target_rate = sample_rate or source_rate
    size = max(1, round(block_duration * target_rate))
    pending: list[Tensor] = []
    held = 0
    empty = True
    for part in resample_parts(_mixed(source, channels, start, duration), source_rate, target_rate):
        pending.append(part)
        held += part.shape[1]
        if held < size:
            continue
        joined = torch.cat(pending, dim=1)
        whole = held - held % size
        for block in torch.split(joined[:, :whole], size, dim=1):
            yield block.contiguous()
        pending, held, empty = [joined[:, whole:]], held - whole, False
    if held:
        yield torch.cat(pending, dim=1)
    elif empty:
        at = f"at {target_rate} Hz (it has {source_rate} Hz)"
        raise AudioError(source.path, f"empty: less than one sample {at}")


def _mixed(
    source: Source, channels: int | None, start: float, duration: float | None
) -> Iterator[Tensor]:
    for chunk in _decode(source, start, duration):
        part = torch.from_numpy(chunk).T
        # Before resampling, which then has fewer channels to do.
        yield part if channels is None else convert_channels(part, channels)


def _decode(source: Source, start: float, duration: float | None) -> Iterator[NDArray[np.float32]]:
    """Checked samples (n, C) float32 of the part asked for, at the file's own rate and channels."""
    path, rate = source.path, source.sample_rate
    first = round(start * rate)
    end: float = math.inf if duration is None else first + max(1, round(duration * rate))
    position = 0
    if first and source.can_seek and source.num_samples:
        if first >= source.num_samples:
            raise AudioError(path, _empty_from(start, source.num_samples, source))
        source.seek(first)
        position = first
    while position < end:
        wanted = _CHUNK if position >= first else min(_CHUNK, first - position)
        try:
            chunk = source.read(int(min(wanted, end - position)))
        except DecodingError as error:
            of = seconds(source.promised, rate)
            raise AudioError(path, f"{error} after {position / rate:.3f} s of {of}") from error
        if len(chunk) == 0:
            break
        if position >= first:
            finite = np.isfinite(chunk).all(axis=1)
            if not finite.all():
                bad = int((~np.isfinite(chunk)).sum())
                at = f"{(position + int(finite.argmin())) / rate:.3f} s"
                raise AudioError(path, f"not finite: {bad} NaN or Inf samples from {at} on")
            yield chunk
        position += len(chunk)
    if position < min(end, source.promised - source.tolerance):
        of = seconds(source.promised, rate)
        raise AudioError(path, f"truncated: {position / rate:.3f} s of {of}")
    if position == 0:
        raise AudioError(path, _empty(source))
    if position <= first:
        raise AudioError(path, _empty_from(start, position, source))


def _empty(source: Source) -> str:
    if source.promised > 0:
        return f"truncated: 0.000 s of {seconds(source.promised, source.sample_rate)}"
    return "empty: 0 samples"


def _empty_from(start: float, num_samples: int, source: Source) -> str:
    return f"empty from {start:g} s on: the file holds {seconds(num_samples, source.sample_rate)}"
