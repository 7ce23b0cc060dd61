"""Which note sounds when: a pitch tracker for slots of equal length.

For every candidate fundamental the spectrum of a slot is summed at its harmonics, each weighing
less than the one before; the candidate of the largest sum is the pitch (subharmonic summation,
Hermes 1988, J. Acoust. Soc. Am. 83, 257-264). Candidates lie 20 cents apart over more than four
octaves and know nothing of keys or scales: that a note is legal has to come from the sound.

A slot has no pitch where it is silent, or where the harmonics of the best candidate hold too little
of its energy.

Letters: N audio samples, T slots.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from audiolm.demo.melodies import NOTE_DURATION, to_hertz

LOWEST, HIGHEST = 36, 88  # MIDI note numbers: 65 to 1319 Hz
SILENCE = -55.0  # dBFS (rms): nothing is looked for in slots below
MIN_SHARE = 0.3  # of a slot's energy that the harmonics of its pitch must hold
_CENTS = 20  # between candidates
_HARMONICS = 8
_WEIGHT = 0.8  # of a harmonic, next to the one before
_SKIPPED = 0.02  # seconds at either end of a slot, where a codec blurs notes into each other


def track_pitches(waveform: Tensor, sample_rate: int) -> list[int | None]:
    """The MIDI note number of each slot of NOTE_DURATION from the first sample on, or None.

    What is left after the last whole slot is not looked at.

    Args:
        waveform: (N,) or (1, N) float.
        sample_rate: Hz, at least 8000.

    Raises:
        ValueError: another shape, NaN or Inf, or a rate below 8000 Hz.
    """
    if waveform.ndim == 2 and waveform.shape[0] == 1:
        waveform = waveform[0]
    if waveform.ndim != 1:
        raise ValueError(f"waveform has shape {tuple(waveform.shape)}: must be (N,) or (1, N)")
    if not waveform.isfinite().all():
        raise ValueError("waveform holds NaN or Inf: no pitch can be found in it")
    if sample_rate < 8000:
        raise ValueError(f"sample_rate is {sample_rate} Hz: pitches are tracked from 8000 Hz on")
    slot = NOTE_DURATION * sample_rate
    skipped, length = (
        round(_SKIPPED * sample_rate),
        round((NOTE_DURATION - 2 * _SKIPPED) * sample_rate),
    )
    starts = [round(i * slot) + skipped for i in range(math.floor(waveform.shape[0] / slot + 1e-6))]
    if not starts:
        return []
    slots = torch.stack([waveform.double()[start : start + length] for start in starts])

    size = 2 ** math.ceil(math.log2(8 * length))  # bins finer than 20 cents of LOWEST
    window = torch.hann_window(length, dtype=torch.float64)
    power = torch.fft.rfft(slots * window, size).abs().square()  # (T, bins)
    bin_width = sample_rate / size

    candidates = torch.arange(LOWEST - 0.4, HIGHEST + 0.5, _CENTS / 100, dtype=torch.float64)
    hertz = torch.tensor([to_hertz(midi) for midi in candidates.tolist()], dtype=torch.float64)
    salience = torch.zeros(len(slots), len(candidates), dtype=torch.float64)
    for harmonic in range(1, _HARMONICS + 1):
        index = torch.round(harmonic * hertz / bin_width).long()
        audible = index < power.shape[1]
        amplitude = power[:, index.clamp(max=power.shape[1] - 1)].sqrt()
        salience += _WEIGHT ** (harmonic - 1) * amplitude * audible
    best = salience.argmax(dim=1)

    # The main lobe of a Hann window reaches two bins of an unpadded transform to either side.
    share = _harmonic_share(power, bin_width, hertz[best], 2 * sample_rate / length)
    level = 10 * torch.log10(slots.square().mean(dim=1) + 1e-20)
    pitches = torch.round(candidates[best]).int().tolist()
    voiced = ((level > SILENCE) & (share > MIN_SHARE)).tolist()
    return [pitch if sounds else None for pitch, sounds in zip(pitches, voiced, strict=True)]


def _harmonic_share(power: Tensor, bin_width: float, hertz: Tensor, reach: float) -> Tensor:
    """(T,): the share of the energy (T, bins) that lies within `reach` Hz of a harmonic of (T,)."""
    frequency = torch.arange(power.shape[1], dtype=torch.float64) * bin_width
    harmonic = torch.round(frequency / hertz[:, None]).clamp(1, _HARMONICS)
    near = (frequency - harmonic * hertz[:, None]).abs() < reach
    return (power * near).sum(dim=1) / power.sum(dim=1).clamp(min=1e-30)
