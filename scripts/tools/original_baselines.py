"""Baselines without a codec: the recordings themselves, and what is below 4 kHz in them.

N audio samples.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from audiolm.audio import resample

NARROW_RATE = 8000
"""Hz; half of it is the limit."""


def unchanged(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """The clip (1, N) as it is; no kbit/s."""
    return clip, 0.0


def below_4_khz(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """The clip (1, N) without what is above 4 kHz; no kbit/s."""
    narrow = resample(clip, sample_rate, NARROW_RATE)
    return resample(narrow, NARROW_RATE, sample_rate), 0.0
