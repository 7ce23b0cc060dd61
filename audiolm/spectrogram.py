"""The picture of a sound: its waveform above its mel spectrogram.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
import torchaudio
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from audiolm.files import replacing

WINDOW = 0.032
"""Seconds of sound in a frame: tells the harmonics of a voice apart, and its syllables."""
HOP = 0.008
"""Seconds from one frame to the next."""
RANGE = 80.0
"""Decibels below the peak at which a spectrogram ends."""
FLOOR = -100.0
"""Decibels of silence."""

_COLUMNS = 1000  # about the pixels that a picture is wide
_TICKS = (64000, 32000, 16000, 8000, 4000, 2000, 1000, 500, 200, 100, 50, 20)  # Hz


def log_mel_spectrogram(
    waveform: Tensor, sample_rate: int, num_mels: int = 96, hop: float = HOP
) -> Tensor:
    """Mel spectrogram (mels, frames) in decibels, about 0 for a full-scale sine.

    Frame i is centred on second ``i * hop`` and beyond the ends is silence, so a clip shorter than
    a window has its frames too: ``1 + N // (hop * sample_rate)`` of them. Channels are averaged.
    Values reach from the peak to `RANGE` below it, and not below `FLOOR`, where all of silence is.
    The mel bands (HTK scale) share out 0 Hz to half the sample rate.

    Args:
        waveform: (C, N) or (N,) float samples, N >= 1.
        sample_rate: Hz.
        num_mels: bands; fewer where the rate is so low that some would hold no Fourier bin.
        hop: seconds, rounded to samples.

    Raises:
        ValueError: no samples, NaN or Inf, not floats of one of these shapes, or a rate or hop that
            is not positive.
    """
    mono = _channels(waveform, sample_rate).mean(dim=0)
    if not 0 < hop < math.inf:
        raise ValueError(f"hop is {hop} s: must be positive and finite")
    window = max(2, round(WINDOW * sample_rate))
    # Padded to over four windows, else the lowest mel bands fall between two bins.
    n_fft = 4 * 2 ** math.ceil(math.log2(window))
    spectrogram = torchaudio.transforms.MelSpectrogram(
        sample_rate,
        n_fft=n_fft,
        win_length=window,
        hop_length=max(1, round(hop * sample_rate)),
        f_max=sample_rate / 2,
        n_mels=min(num_mels, n_fft // 8),
        pad_mode="constant",
        mel_scale="htk",
    )
    # By Parseval, the power that a sine of amplitude 1 has in all the bins of its peak.
    full_scale = n_fft * torch.hann_window(window).square().sum() / 4
    power = spectrogram(mono) / full_scale
    decibels: Tensor = torchaudio.transforms.AmplitudeToDB("power", top_db=RANGE)(power)
    return decibels


def plot_spectrogram(path: Path | str, waveform: Tensor, sample_rate: int, title: str) -> None:
    """Plot ``waveform`` (C, N) or (N,) as a PNG file: waveform above, mel spectrogram below.

    The spectrogram's colours span `RANGE` decibels from its peak down. Of many channels the
    waveform's outline encloses all, and the spectrogram shows the mean. Of a long recording the
    outline misses nothing; the spectrogram shows frames so far apart that they fit.

    The figure is made without pyplot: no state is shared, nothing is shown, any thread will do.

    Raises:
        ValueError: as `log_mel_spectrogram`.
        OSError: the file cannot be written; then none is left.
    """
    waveform = _channels(waveform, sample_rate)
    duration = waveform.shape[1] / sample_rate
    figure = Figure(figsize=(10, 5.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 3), width_ratios=(50, 1))
    above = figure.add_subplot(grid[0, 0])
    below = figure.add_subplot(grid[1, 0], sharex=above)
    scale = figure.add_subplot(grid[1, 1])

    figure.suptitle(title, fontsize=11, parse_math=False, wrap=True)
    _plot_waveform(above, waveform, sample_rate)
    above.set_xlim(0, duration)

    image = plot_mel(below, waveform, sample_rate)
    below.set_xlabel("time (s)")
    below.set_ylabel("frequency")
    figure.colorbar(image, cax=scale, label="level (dBFS)")

    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def plot_mel(
    axes: Axes,
    waveform: Tensor,
    sample_rate: int,
    columns: int = _COLUMNS,
    spacing: float = 0.05,
) -> AxesImage:
    """Plot the mel spectrogram of ``waveform`` (C, N) or (N,), over seconds and Hz.

    columns: about how many frames there are: as many as can be told apart. spacing: between two
    marked frequencies at least, as a share of the axis.

    Raises:
        ValueError: as `log_mel_spectrogram`.
    """
    waveform = _channels(waveform, sample_rate)
    duration = waveform.shape[1] / sample_rate
    # Short clips get a frame a column, longer ones `HOP`, as long as that many can be
    # distinguished.
    hop = max(min(HOP, duration / columns), duration / (2 * columns))
    decibels = log_mel_spectrogram(waveform, sample_rate, hop=hop)
    hop_samples = max(1, round(hop * sample_rate))
    peak = float(decibels.max())
    top = peak if peak > FLOOR else 0.0  # silence is plotted dark
    mels, frames = decibels.shape
    image = axes.imshow(
        decibels.numpy(),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="magma",
        vmin=top - RANGE,
        vmax=top,
        extent=(
            -0.5 * hop_samples / sample_rate,
            (frames - 0.5) * hop_samples / sample_rate,
            -0.5,
            mels - 0.5,
        ),
    )
    axes.set_xlim(0, duration)
    _mark_frequencies(axes, mels, sample_rate, spacing)
    return image


def _channels(waveform: Tensor, sample_rate: int) -> Tensor:
    """Checked, as (C, N) float32 on the CPU."""
    if sample_rate <= 0:
        raise ValueError(f"sample rate is {sample_rate} Hz: must be positive")
    if not waveform.is_floating_point() or waveform.ndim not in (1, 2) or waveform.numel() == 0:
        raise ValueError(
            f"waveform is {waveform.dtype} of shape {tuple(waveform.shape)}: "
            "must be floats of shape (channels, samples) or (samples,), and not empty"
        )
    waveform = waveform.detach().cpu().float()
    bad = int((~waveform.isfinite()).sum())
    if bad:
        raise ValueError(f"waveform holds {bad} NaN or Inf samples: there is nothing to plot")
    return waveform if waveform.ndim == 2 else waveform[None]


def _plot_waveform(axes: Axes, waveform: Tensor, sample_rate: int) -> None:
    samples = waveform.numpy()
    num_samples = samples.shape[1]
    step = math.ceil(num_samples / _COLUMNS)
    starts = np.arange(0, num_samples, step)
    low = np.minimum.reduceat(samples.min(axis=0), starts)
    high = np.maximum.reduceat(samples.max(axis=0), starts)
    # One line, up and down in each column: of few samples it is the curve itself.
    outline = np.stack([low, high], axis=1).ravel()
    axes.plot(np.repeat(starts / sample_rate, 2), outline, linewidth=0.8)
    peak = float(np.abs(samples).max())
    limit = 1.05 * peak if peak > 0 else 1.0
    axes.set_ylim(-limit, limit)
    axes.set_ylabel("amplitude")
    axes.tick_params(labelbottom=False)
    axes.grid(alpha=0.3)


def _mark_frequencies(axes: Axes, mels: int, sample_rate: int, spacing: float) -> None:
    """Ticks in Hz and kHz on an axis that counts mel bands."""

    def mel(frequency: float) -> float:
        return math.log10(1 + frequency / 700)  # HTK's, but for a factor

    ticks: dict[int, float] = {}
    for frequency in _TICKS:
        # Band i is centred at (i + 1) / (mels + 1) of the scale.
        row = mel(frequency) / mel(sample_rate / 2) * (mels + 1) - 1
        crowded = ticks and min(ticks.values()) - row < spacing * mels
        if -0.5 <= row <= mels - 0.5 and not crowded:
            ticks[frequency] = row
    labels = [f"{f} Hz" if f < 1000 else f"{f // 1000} kHz" for f in ticks]
    axes.set_yticks(list(ticks.values()), labels)
