"""How well a codec keeps the shape of the spectrum above 1 kHz, which tells sounds of speech apart.

The measure of docs/experiments.md ("What the latents leave out"), of a codec's output. SI-SNR
follows what is low and loud, and a mel distance the level of each band; neither falls much where
formants become flat noise of their loudness, but this does.

N audio samples, M mel bands, F frames of the spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torchaudio
from torch import Tensor

NUM_MELS = 40
LOWEST = 80.0
"""Hz at which the bands begin."""
HIGHEST, TELEPHONE = 7600.0, 3600.0
"""Hz at which they end: of speech at 16 kHz; and of what a telephone lets through, so that a codec
that codes no more, or invents what is above, is measured by formants alone. 95% of half of the
sample rate where that is less."""
ABOVE = 1000.0
"""Hz above which the middle of a band lies that counts."""
WINDOW, HOP = 0.032, 0.010
"""Seconds of a Hann window, and from one to the next."""
RANGE = 50.0
"""dB below a clip's loudest band of all frames: what lies lower counts as if it lay there."""


def shape_r2(
    originals: Sequence[Tensor],
    decoded: Sequence[Tensor],
    sample_rate: int,
    highest: float = HIGHEST,
) -> float | None:
    """R2 of the shape of the spectrum from 1 kHz to `highest` Hz, decoded against original clips.

        R2 = 1 - sum (D - S)^2 / sum (S - mean over frames of S)^2

    S (bands, F) are the shapes of the original clips (1, n_i): of `NUM_MELS` mel magnitudes from
    80 Hz to `highest`, the natural logarithms of those above 1 kHz, less their mean in each frame,
    so that loudness does not count. D are those of the decoded clips (1, n_i). The sums are over
    all bands and over the frames, of all clips together, that are louder than the median one of
    their original clip.

    1 where the output has all formants in their places, 0 where it has the mean spectrum all the
    time, below 0 where it is further off than that. None where there is no shape to keep, as in
    silence.
    """
    highest = min(highest, 0.475 * sample_rate)
    first = int((_middles(highest) < ABOVE).sum())
    shapes, errors = [], []
    for original, other in zip(originals, decoded, strict=True):
        spectrum = _mel(original, sample_rate, highest)
        floor = max(float(spectrum.max()) * 10 ** (-RANGE / 20), 1e-9)
        loudness = spectrum.square().sum(0)
        chosen = loudness > loudness.median()
        shape = _shape(spectrum[first:, chosen], floor)
        found = _mel(other, sample_rate, highest)
        shapes.append(shape)
        errors.append(_shape(found[first:, chosen], floor) - shape)
    if not sum(shape.shape[1] for shape in shapes):
        return None
    joined = torch.cat(shapes, dim=1)
    total = float((joined - joined.mean(dim=1, keepdim=True)).square().sum())
    return 1 - float(torch.cat(errors, dim=1).square().sum()) / total if total > 1e-9 else None


def _mel(waveform: Tensor, sample_rate: int, highest: float) -> Tensor:
    """Magnitudes (M, F) of a waveform (1, N), float64."""
    window = round(WINDOW * sample_rate)
    spectrum = torch.stft(
        waveform[0].double(),
        window,
        hop_length=round(HOP * sample_rate),
        window=torch.hann_window(window, dtype=torch.float64),
        pad_mode="constant",
        return_complex=True,
    )
    bands = torchaudio.functional.melscale_fbanks(
        n_freqs=window // 2 + 1,
        f_min=LOWEST,
        f_max=highest,
        n_mels=NUM_MELS,
        sample_rate=sample_rate,
    )
    magnitudes: Tensor = bands.double().T @ spectrum.abs()
    return magnitudes


def _shape(spectrum: Tensor, floor: float) -> Tensor:
    """Logarithms (bands, F) of magnitudes (bands, F), less their mean in each frame."""
    logarithms = spectrum.clamp(min=floor).log()
    return logarithms - logarithms.mean(dim=0, keepdim=True)


def _middles(highest: float) -> Tensor:
    """Hz (M,) of the middles of the bands, which are equally far apart in mel."""
    low, high = (2595 * math.log10(1 + hz / 700) for hz in (LOWEST, highest))
    mel = torch.linspace(low, high, NUM_MELS + 2, dtype=torch.float64)[1:-1]
    middles: Tensor = 700 * (10 ** (mel / 2595) - 1)
    return middles
