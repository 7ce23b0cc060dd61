from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from audiolm.codec.distances import FLOOR, WINDOWS, MultiScaleMel, mel_distance, si_snr, time_loss

RATE = 16000


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_si_snr_is_the_ratio_of_target_to_noise_and_blind_to_gain_and_offset() -> None:
    target, other = noise(3, 1, 4000), noise(3, 1, 4000, seed=1)
    target, other = (x - x.mean(-1, keepdim=True) for x in (target, other))
    other = other - (other * target).sum(-1, keepdim=True) / target.square().sum(-1, True) * target
    for decibel in (-10.0, 0.0, 25.0):
        gain = target.norm(dim=-1, keepdim=True) / other.norm(dim=-1, keepdim=True)
        estimate = target + other * gain * 10 ** (-decibel / 20)
        wanted = torch.full((3, 1), decibel, dtype=torch.float64)
        torch.testing.assert_close(si_snr(estimate, target), wanted, atol=0.01, rtol=0)
        torch.testing.assert_close(si_snr(0.01 * estimate + 3, target), wanted, atol=0.02, rtol=0)
    assert si_snr(target, target).min() > 100
    assert bool(torch.isfinite(si_snr(torch.zeros(1, 9), torch.zeros(1, 9))).all())


def test_time_loss_is_relative_to_each_item_and_finite_in_silence() -> None:
    target = noise(2, 1, 1000) * torch.tensor([0.5, 0.05])[:, None, None]
    assert time_loss(torch.zeros_like(target), target) == pytest.approx(1)
    assert time_loss(0.5 * target, target) == pytest.approx(0.5)
    silence = torch.zeros(1, 1, 100)
    assert time_loss(silence, silence) == 0
    assert bool(torch.isfinite(time_loss(silence + 1, silence)))


def test_white_noise_has_the_same_spectrum_at_every_window() -> None:
    """Else a window would count more than others by its length alone."""
    mel = MultiScaleMel(RATE)
    spectra = mel.spectra(0.1 * noise(1, 1, 4 * RATE))
    # Bands are sums over bins: their level grows with bins a band, not with the window's length.
    level = [
        float((s.exp() - FLOOR).mean() / mel.get_buffer(f"mels_{w}").sum(0).mean())
        for s, w in zip(spectra, WINDOWS, strict=True)
    ]
    assert max(level) / min(level) < 1.1
    assert level[-1] == pytest.approx(0.1, rel=0.2)


def test_mel_distance_is_zero_on_itself_and_tells_a_gain_in_decibels() -> None:
    target = noise(2, 1, RATE) * 0.3
    assert float(mel_distance(target, target, RATE).max()) == 0
    twice = mel_distance(2 * target, target, RATE)
    assert twice.shape == (2,)
    # The floor hides a little of it in bands that hold next to nothing.
    torch.testing.assert_close(twice, torch.full((2,), 20 * math.log10(2)), atol=0.4, rtol=0)
    l1, l2 = MultiScaleMel(RATE)(2 * target, target)
    assert 0.9 * math.log(2) < float(l1) <= float(l2) < 1.02 * math.log(2)


@pytest.mark.parametrize("samples", [1, 31, 32, 33, 1023, 1024, 1025, 5000])
def test_any_length_and_the_gradient_of_silence(samples: int) -> None:
    mel = MultiScaleMel(RATE)
    estimate = torch.zeros(1, 2, samples, requires_grad=True)
    l1, l2 = mel(estimate, torch.full_like(estimate, 0.1))
    (l1 + l2).backward()
    assert estimate.grad is not None and bool(torch.isfinite(estimate.grad).all())
    assert float(l1.detach()) > 0


def test_buffers_stay_out_of_checkpoints() -> None:
    assert not MultiScaleMel(RATE).state_dict()


def test_bands_above_an_items_bandwidth_do_not_count() -> None:
    mel = MultiScaleMel(16000)
    noise = torch.randn(2, 1, 8000, generator=torch.Generator().manual_seed(0)) * 0.1
    spectrum = torch.fft.rfft(noise)
    spectrum[..., 2000:] = 0  # of 4000: nothing above 4 kHz
    narrow = torch.fft.irfft(spectrum)
    full = torch.tensor([8000.0, 8000.0])
    for with_band, without in zip(mel(narrow, noise, full), mel(narrow, noise), strict=True):
        torch.testing.assert_close(with_band, without)
    l1, _ = mel(narrow, noise, torch.tensor([3500.0, 3500.0]))
    assert float(l1) < 0.2 * float(mel(narrow, noise)[0])
    # Of two items, one of them masked: what is left is that of the other.
    half = mel(narrow, noise, torch.tensor([8000.0, 1.0]))[0]
    assert float(half) > 0.8 * float(mel(narrow[:1], noise[:1])[0])
