"""Does a decoder draw lines? Tones at fixed frequencies, whatever the sound, from its upsampling.

A transposed convolution treats the steps of its output unlike each other, in a pattern that repeats
with every step of its input. Where it should put out silence or noise, that pattern is a tone at
the rate of its input and at multiples of it: horizontal lines in a spectrogram. With strides
5, 4, 4, 4 at 16 kHz, the last convolution draws lines at multiples of 16000 / 4 = 4000 Hz, the one
before at multiples of 1000 Hz, then 250 Hz, and the first at multiples of 50 Hz, the frame rate.
Source: Pons et al. 2021, "Upsampling artifacts in neural audio synthesis" (arXiv:2010.14356).

N audio samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SECONDS = 30.0
"""Of each signal."""
EDGE = 0.25
"""Seconds at both ends that are coded and not looked at."""
BINS_PER_LINE = 16
"""Bins from one line to the next at the finest resolution, that of the first layer's lines."""
SHORTEST = 0.064
"""Seconds of the shortest window: lines that the codes' changes have blurred show in it."""
NEIGHBOURS = (3, 7)
"""Bins on each side that a line is compared with; nearer ones see the line through the window."""
ROUNDING = 10 * math.log10(2**-30 / 12)
"""dB re full scale, of the rounding to 16 bits: added to the output's power, spread evenly over
the spectrum, so that lines do not count which no file would hold."""


@dataclass
class Line:
    """The worst line of a layer."""

    prominence: float
    """dB above the mean power of the neighbouring bins, to both sides; about 0 where none is."""
    frequency: float
    """Hz."""
    level: float
    """dB re full scale, of a window's bin: a sine of full scale would be at -4.8."""


def probe_signals(sample_rate: int) -> dict[str, Tensor]:
    """Signals (1, N) of `SECONDS`: nearly silent, noise, and noise whose power falls as 1 / f."""
    generator = torch.Generator().manual_seed(0)
    count = round(SECONDS * sample_rate)

    def white() -> Tensor:
        return torch.randn(1, count, generator=generator)

    spectrum = torch.fft.rfft(white())
    frequency = torch.fft.rfftfreq(count, 1 / sample_rate).clamp(min=40)  # no rumble below
    pink = torch.fft.irfft(spectrum / frequency.sqrt(), count)
    return {
        "nearly silent (white noise, -70 dBFS)": at_level(white(), -70),
        "white noise, -30 dBFS": at_level(white(), -30),
        "pink noise, -30 dBFS": at_level(pink, -30),
    }


def at_level(waveform: Tensor, dbfs: float) -> Tensor:
    """`waveform` with a root mean square of `dbfs` dB re full scale."""
    return waveform * (10 ** (dbfs / 20) / waveform.square().mean().sqrt())


def line_spacings(strides: Sequence[int], sample_rate: int) -> list[float]:
    """Hz between the lines of each layer, the first layer's first, from strides in the decoder's
    order."""
    products = [math.prod(strides[i:]) for i in range(len(strides))]
    return [sample_rate / product for product in products]


def measure_lines(
    waveform: Tensor, strides: Sequence[int], sample_rate: int
) -> dict[float, Line | None]:
    """The worst line of each layer in a waveform (1, N), by the spacing of its lines in Hz.

    Welch's power spectrum, with Hann windows in which each line falls on a bin: long ones of
    `BINS_PER_LINE` frames of the codec, in which tones stand out, and short ones. Of the two, the
    worse is told. A line belongs to the last layer that can draw it. None for layers whose lines
    all lie at half of the sample rate or above.
    """
    inner = round(EDGE * sample_rate)
    signal = waveform[0, inner : waveform.shape[1] - inner].double()
    worst: dict[float, Line | None] = {}
    spacings = line_spacings(strides, sample_rate)
    for i, spacing in enumerate(spacings):
        steps = math.prod(strides[i:])  # samples of one turn of the pattern
        longest = BINS_PER_LINE * math.prod(strides)
        shortest = steps * max(BINS_PER_LINE, math.ceil(SHORTEST * sample_rate / steps))
        found = [
            line
            for window in sorted({longest, min(longest, shortest)})
            for line in _lines(signal, window, window // steps, sample_rate)
            if not any(_divides(later, line.frequency) for later in spacings[i + 1 :])
        ]
        worst[spacing] = max(found, key=lambda line: line.prominence, default=None)
    return worst


def worst_line(lines: Mapping[float, Line | None]) -> Line:
    """The most prominent of all layers' lines."""
    found = [line for line in lines.values() if line is not None]
    return max(found, key=lambda line: line.prominence)


def lines_of_codec(
    through: Callable[[Tensor], Tensor], strides: Sequence[int], sample_rate: int
) -> dict[str, dict[float, Line | None]]:
    """`measure_lines` of every test signal once it went `through` the codec, (1, N) to (1, N)."""
    return {
        name: measure_lines(through(signal), strides, sample_rate)
        for name, signal in probe_signals(sample_rate).items()
    }


def _lines(signal: Tensor, window: int, step: int, sample_rate: int) -> list[Line]:
    """The bins `step`, 2 `step`, ... of windows of `window` samples, beside their neighbours."""
    power = _power_spectrum(signal, window)
    power = power + 10 ** (ROUNDING / 10) / (window // 2)
    near, far = NEIGHBOURS
    lines = []
    for k in range(step, window // 2 - far, step):
        sides = torch.cat([power[k - far : k - near + 1], power[k + near : k + far + 1]])
        prominence = 10 * math.log10(float(power[k] / sides.mean()))
        level = 10 * math.log10(float(power[k]))
        lines.append(Line(prominence, k * sample_rate / window, level))
    return lines


def _power_spectrum(signal: Tensor, window: int) -> Tensor:
    """Mean square (window // 2 + 1,) in each bin; white noise's, over all bins, add up to its."""
    hann = torch.hann_window(window, dtype=signal.dtype)
    frames = signal.unfold(0, window, window // 2) * hann
    energy = torch.fft.rfft(frames).abs().square().mean(dim=0)
    power: Tensor = 2 * energy / (window * hann.square().sum())
    return power


def _divides(spacing: float, frequency: float) -> bool:
    ratio = frequency / spacing
    return abs(ratio - round(ratio)) < 1e-6
