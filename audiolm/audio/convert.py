"""Waveforms at another rate and with other channels.

C audio channels, N audio samples. soxr resamples: at its HQ setting aliases stay below -100 dB.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import soxr
import torch
from torch import Tensor


def resample(waveform: Tensor, source_rate: int, target_rate: int) -> Tensor:
    """``waveform`` (C, N) at ``source_rate`` Hz as (C, N') at ``target_rate`` Hz, by soxr HQ.

    N' is ``floor(N * target_rate / source_rate + 1/2)``. The filter has no delay: what sounds at
    second t of the one sounds at second t of the other.

    Raises:
        ValueError: not a float32 tensor (C, N), or a rate that is not positive.
    """
    check_waveform(waveform)
    check_rate(source_rate)
    check_rate(target_rate)
    if source_rate == target_rate:
        return waveform
    samples = waveform.numpy().T
    resampled = soxr.resample(samples, source_rate, target_rate, quality="HQ")
    return torch.from_numpy(resampled.T).contiguous()


def resample_parts(parts: Iterator[Tensor], source_rate: int, target_rate: int) -> Iterator[Tensor]:
    """`resample`, a part (C, n) at a time; joined, the result is the same to the bit."""
    if source_rate == target_rate:
        yield from parts
        return
    first = next(parts)
    nothing = np.zeros((0, first.shape[0]), dtype=np.float32)
    stream = soxr.ResampleStream(
        source_rate, target_rate, first.shape[0], dtype="float32", quality="HQ"
    )
    for part in chain((first,), parts):
        samples = np.ascontiguousarray(part.T.numpy())
        yield torch.from_numpy(stream.resample_chunk(samples).T)
    yield torch.from_numpy(stream.resample_chunk(nothing, last=True).T)


def convert_channels(waveform: Tensor, channels: int) -> Tensor:
    """``waveform`` (C, N) as (channels, N), for mono or stereo.

    To mono: the mean over channels. Mono to stereo: repeated. More than two to stereo: the mono mix
    repeated, since the order of many channels is anybody's (surround, ambisonic, an array of
    microphones), so the first two need not be left and right, and the mix loses no source.

    Raises:
        ValueError: ``channels`` is not 1 or 2, or the waveform is not float32 (C, N).
    """
    check_waveform(waveform)
    if channels not in (1, 2):
        raise ValueError(f"channels is {channels}: must be 1 (mono) or 2 (stereo)")
    if waveform.shape[0] == channels:
        return waveform
    mono = waveform.mean(dim=0, keepdim=True)
    return mono.expand(channels, -1).contiguous()


def check_rate(sample_rate: int) -> None:
    """Raises ValueError for a rate (Hz) that is not positive."""
    if sample_rate <= 0:
        raise ValueError(f"sample rate is {sample_rate} Hz: must be positive")


def check_waveform(waveform: Tensor) -> None:
    """Raises ValueError for what is not a float32 tensor (C, N)."""
    if waveform.ndim != 2 or waveform.shape[0] == 0 or waveform.dtype != torch.float32:
        raise ValueError(
            f"waveform is {waveform.dtype} of shape {tuple(waveform.shape)}: "
            "must be torch.float32 of shape (channels, samples)"
        )
