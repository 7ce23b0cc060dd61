from __future__ import annotations

import pytest
import torch
from torch import Tensor

from audiolm.evaluation.codec.spectral_shape import TELEPHONE, shape_r2

RATE = 16000


def band(low: float, high: float, count: int, seed: int) -> Tensor:
    """Noise (1, N) of rms 0.1 between two frequencies (Hz)."""
    spectrum = torch.fft.rfft(torch.randn(count, generator=torch.Generator().manual_seed(seed)))
    frequency = torch.fft.rfftfreq(count, 1 / RATE)
    noise = torch.fft.irfft(spectrum * ((frequency >= low) & (frequency < high)), count)
    return (0.1 * noise / noise.square().mean().sqrt())[None]


def formants(places: list[float], seed: int = 0) -> Tensor:
    """0.2 s of noise around each of the places (Hz), between them as much of silence, and under all
    a vowel's low part."""
    parts = []
    for i, place in enumerate(places):
        high = band(place - 150, place + 150, RATE // 5, seed + i)
        low = band(100, 700, RATE // 5, 100 + seed + i)
        hiss = 1e-2 * band(1000, 8000, RATE // 5, 200 + seed + i)
        parts += [0.3 * high + low + hiss, torch.zeros(1, RATE // 5)]
    return torch.cat(parts, dim=1)


PLACES = [1500.0, 2600.0, 1900.0, 3100.0, 2200.0]


def test_loudness_and_phase_do_not_count() -> None:
    clip = formants(PLACES)
    assert shape_r2([clip], [clip], RATE) == 1
    # The floor is that of the original.
    assert shape_r2([clip], [-1.4 * clip], RATE) == pytest.approx(1, abs=0.02)


def test_it_falls_to_none_as_formants_become_flat_noise() -> None:
    clip = formants(PLACES)
    again = shape_r2([clip], [formants(PLACES, seed=50)], RATE)  # as noise differs from noise
    parts = [formants([place])[:, : RATE // 5] for place in PLACES]
    flat = torch.cat(
        [
            x
            for i, part in enumerate(parts)
            for x in (part.norm() * 0.01 * band(80, 8000, RATE // 5, i), torch.zeros(1, RATE // 5))
        ],
        dim=1,
    )
    blurred = shape_r2([clip], [flat], RATE)
    moved = shape_r2([clip], [formants(PLACES[::-1])], RATE)
    assert again is not None and blurred is not None and moved is not None
    assert again > 0.5 > 0.2 > blurred and moved < 0.2


def test_what_is_below_1_khz_does_not_count() -> None:
    clip = formants(PLACES)
    rumble = 0.1 * band(100, 600, clip.shape[1], 9) * (clip != 0)
    found = shape_r2([clip], [clip + rumble], RATE)
    assert found is not None and found > 0.95


def test_what_a_telephone_keeps_is_measured_apart() -> None:
    clip = formants(PLACES) + 0.01 * band(5000, 7000, RATE * 2, 3)
    narrow = torch.fft.rfft(clip)
    narrow[:, 3900 * clip.shape[1] // RATE :] = 0
    narrow_clip = torch.fft.irfft(narrow, clip.shape[1])
    whole, telephone = (
        shape_r2([clip], [narrow_clip], RATE, *highest) for highest in ((), (TELEPHONE,))
    )
    assert whole is not None and telephone is not None
    assert telephone > 0.95 and whole < telephone - 0.1


@pytest.mark.parametrize("clip", [torch.zeros(1, RATE), torch.zeros(1, 5), torch.ones(1, 1)])
def test_silence_and_next_to_nothing_have_no_shape(clip: Tensor) -> None:
    assert shape_r2([clip], [clip], RATE) in (None, 1.0)
    assert shape_r2([], [], RATE) is None


def test_a_narrow_sample_rate() -> None:
    clip = formants(PLACES)[:, ::2]
    assert shape_r2([clip], [clip], 8000) == 1
