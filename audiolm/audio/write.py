"""Waveforms to WAV files, at once or while they grow."""

from __future__ import annotations

import logging
import math
import os
import struct
import wave
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import soundfile
from torch import Tensor

from audiolm.audio.convert import check_rate, check_waveform
from audiolm.audio.formats.sndfile import sndfile_name
from audiolm.files import not_written, one_line, replacing, user_path

log = logging.getLogger(__name__)

_BITS = {"PCM_16": 16, "PCM_24": 24}
_HEADER = 44  # bytes
_WAV_LIMIT = 2**32 - 64  # bytes of samples: the header counts with 32 bits, and counts itself too


def wav_capacity(channels: int) -> int:
    """Samples of each channel that a 16-bit WAV file holds: 4 GiB of them."""
    return _WAV_LIMIT // (2 * channels)


def write_wav(
    path: Path | str, waveform: Tensor, sample_rate: int, subtype: str = "PCM_16"
) -> float:
    """Write ``waveform`` (C, N) as a WAV file and return the gain that was applied.

    Nothing is clipped: where the peak is over full scale (1.0), the whole waveform is divided by it
    and a warning tells the peak; else the gain is 1.0. Folders are made as needed; the file appears
    complete or not at all.

    Args:
        subtype: PCM_16 or PCM_24 (read back within one step of the input), or FLOAT (exactly).

    Raises:
        ValueError: NaN or Inf, no samples, not a float tensor (C, N), an unknown subtype.
        OSError: the file cannot be written.
    """
    check_rate(sample_rate)
    if subtype not in (*_BITS, "FLOAT"):
        raise ValueError(f"subtype is {subtype!r}: must be one of {', '.join((*_BITS, 'FLOAT'))}")
    waveform = _checked(waveform, f" to {path}")
    peak = float(waveform.abs().max())
    gain = 1.0
    if peak > 1.0:
        gain = 1.0 / peak
        log.warning(
            "%s: the peak is %+.2f dBFS; scaled by %.4f to fit full scale",
            one_line(path),
            20 * math.log10(peak),
            gain,
        )
    samples: np.ndarray[Any, Any] = (waveform.double() * gain).numpy().T
    if subtype == "FLOAT":
        samples = samples.astype(np.float32)
    else:
        samples = _integers(samples, _BITS[subtype]) << (32 - _BITS[subtype])
    with replacing(path) as temporary:
        try:
            soundfile.write(
                sndfile_name(temporary), samples, sample_rate, format="WAV", subtype=subtype
            )
        except soundfile.LibsndfileError as error:
            raise OSError(error.error_string) from error  # to which `replacing` adds the file
    return gain


class Pcm(NamedTuple):
    """Samples as 16-bit integers."""

    data: bytes
    """Little-endian, the channels of a moment side by side."""
    clipped: int
    """How many were beyond full scale, and are at it."""


def pcm_16(waveform: Tensor) -> Pcm:
    """``waveform`` (C, N) as the samples that `write_wav` writes, but clipped instead of scaled.

    Of a stream the peak is known at the end only.

    Raises:
        ValueError: NaN or Inf, no samples, not a float tensor (C, N).
    """
    waveform = _checked(waveform)
    integers = _integers(waveform.double().numpy().T, 16)
    return Pcm(integers.astype("<i2").tobytes(), int((waveform.abs() > 1).sum()))


class GrowingWav:
    """A 16-bit WAV file that is written block by block, and may be played while it grows.

    Until `close` it is called ``NAME.part.wav``, beside what it will be. Its header counts what is
    there after every block. After an error or Ctrl-C too, `close` (or the end of a ``with``) makes
    what there is the file at ``path``; a killed process leaves the other name, which plays as well.
    A block that cannot be written, on a full disk, closes the file with the blocks before it.

    Args:
        path: of the finished file. Folders are made as needed.
        sample_rate: Hz.
        channels: C.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path | str, sample_rate: int, channels: int) -> None:
        check_rate(sample_rate)
        self.path = user_path(path)
        self.part = self.path.with_name(f"{self.path.stem}.part{self.path.suffix}")
        self.num_samples = 0
        """N, of each channel, so far."""
        self.clipped = 0
        """Samples of any channel that were beyond full scale."""
        self._channels = channels
        self._frame = 2 * channels  # bytes
        try:
            self.part.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.part.open("wb")
        except OSError as error:
            raise not_written(self.path, error) from error
        self._wav = wave.Wave_write(self._file)
        self._wav.setnchannels(channels)
        self._wav.setsampwidth(2)
        self._wav.setframerate(sample_rate)
        self._write(b"")  # the header

    def write(self, block: Tensor) -> None:
        """Add ``block`` (C, n), clipped to full scale.

        Raises:
            ValueError: as `pcm_16`; another C than the file's, or the file is closed.
            OSError: the disk is full, or so is the file: a WAV holds 4 GiB.
        """
        if self._file.closed:
            raise ValueError(f"{one_line(self.path)} is closed; for more sound open another file")
        pcm = pcm_16(block)
        if block.shape[0] != self._channels:
            raise ValueError(
                f"a block of shape {tuple(block.shape)} for {one_line(self.path)}: give it "
                f"({self._channels}, samples), the channels that the file was made with"
            )
        after = self.num_samples * self._frame + len(pcm.data)
        if after > _WAV_LIMIT:
            raise OSError(
                f"{one_line(self.path)} is full: a WAV file holds 4 GiB; for more than "
                f"{self.num_samples} samples write another, or raw samples"
            )
        self._write(pcm.data)
        self.num_samples = after // self._frame
        self.clipped += pcm.clipped

    def close(self) -> None:
        """Give the file its name; one without a sample is removed."""
        if self._file.closed:
            return
        self._wav.close()
        self._file.close()
        self._rename()

    def _rename(self) -> None:
        if self.num_samples:
            os.replace(self.part, self.path)
        else:
            self.part.unlink()

    def __enter__(self) -> GrowingWav:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        try:
            self._wav.writeframes(data)  # which brings the header up to date, after the samples
            self._file.flush()
        except OSError as error:
            self._close_failed()
            raise not_written(self.path, error) from error

    def _close_failed(self) -> None:
        """Close without a word over the error that there is, and keep the blocks before it."""
        for close in (self._wav.close, self._file.close):
            with suppress(OSError):  # both try once more to write what is buffered
                close()
        size = self.num_samples * self._frame
        with suppress(OSError):
            # Some of the last block may be there, counted or not.
            os.truncate(self.part, _HEADER + size)
            with self.part.open("r+b") as file:
                for position, count in ((4, _HEADER - 8 + size), (_HEADER - 4, size)):
                    file.seek(position)
                    file.write(struct.pack("<I", count))
        with suppress(OSError):
            self._rename()


def _checked(waveform: Tensor, where: str = "") -> Tensor:
    """(C, N) as float32 on the CPU; refuse what is not sound. where: it was to be written."""
    waveform = waveform.detach().cpu()
    if waveform.is_floating_point():
        waveform = waveform.float()
    check_waveform(waveform)
    if waveform.numel() == 0:
        raise ValueError(f"waveform has shape {tuple(waveform.shape)}: there is nothing to write")
    bad = int((~waveform.isfinite()).sum())
    if bad:
        raise ValueError(f"waveform holds {bad} NaN or Inf samples: not written{where}")
    return waveform


def _integers(samples: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Floats to int32 of so many bits, clipped."""
    # Not libsndfile's own conversion: it writes 32767 times the value and reads 1/32768 of it,
    # which is up to 1.5 steps off and changes a 16-bit recording on its way through.
    steps = 2 ** (bits - 1)
    integers: np.ndarray[Any, Any] = np.clip(np.rint(samples * steps), -steps, steps - 1)
    return integers.astype(np.int32)


class RawSound:
    """Writes blocks of sound as bare 16-bit little-endian samples to a binary file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.num_samples = 0
        """Of each channel, so far."""
        self.clipped = 0
        """Samples of any channel that were beyond full scale."""

    def write(self, block: Tensor) -> None:
        """Add ``block`` (C, n), clipped to full scale."""
        pcm = pcm_16(block)
        self.file.write(pcm.data)
        self.file.flush()
        self.num_samples += block.shape[1]
        self.clipped += pcm.clipped
