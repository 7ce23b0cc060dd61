"""By how much a codec's sound is late, and the sound without that delay.

N audio samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

MAX_DELAY = 0.06
"""Seconds by which a baseline may be late or early; it is aligned before it is compared."""


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
