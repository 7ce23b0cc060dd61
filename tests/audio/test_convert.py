from __future__ import annotations

import math

import pytest
import torch

from audiolm.audio import convert_channels, resample

from ..signals import noise, tone

RATES = [(48000, 24000), (44100, 24000), (16000, 24000), (8000, 48000), (22050, 16000)]


@pytest.mark.parametrize(("source", "target"), RATES)
def test_resampled_length_is_rounded_half_up(source: int, target: int) -> None:
    for num_samples in [0, 1, 2, 3, 5, 9, 100, 441, 10007]:
        resampled = resample(noise(2, num_samples), source, target)
        assert resampled.shape == (2, math.floor(num_samples * target / source + 0.5))
        assert resampled.is_contiguous()


@pytest.mark.parametrize(("source", "target"), RATES)
def test_resampling_keeps_time_phase_and_level(source: int, target: int) -> None:
    for frequency in (100.0, 1000.0, 3000.0):
        got = resample(tone(frequency, 1.0, source, phase=0.3), source, target)
        wanted = tone(frequency, 1.0, target, phase=0.3)
        inner = slice(target // 8, -target // 8)  # the cut ends ring
        assert torch.allclose(got[:, inner], wanted[:, inner], atol=1e-5)


def test_resampling_keeps_a_click_where_it_is() -> None:
    waveform = torch.zeros(1, 48000)
    waveform[0, 12000] = 1.0
    assert int(resample(waveform, 48000, 24000).abs().argmax()) == 6000
    assert int(resample(waveform, 48000, 16000).abs().argmax()) == 4000


@pytest.mark.parametrize(("source", "target"), [(48000, 24000), (44100, 16000), (24000, 8000)])
def test_no_alias_of_a_tone_just_above_the_new_band(source: int, target: int) -> None:
    above = tone(target / 2 * 1.01, 1.0, source)
    inner = resample(above, source, target)[:, target // 8 : -target // 8]
    level = 20 * math.log10(float(inner.square().mean().sqrt() / above.square().mean().sqrt()))
    assert level < -100


def test_resampling_to_the_same_rate_changes_nothing() -> None:
    waveform = noise(2, 100)
    assert resample(waveform, 8000, 8000) is waveform


def test_resampling_refuses() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        resample(noise(1, 10), 8000, 0)
    with pytest.raises(ValueError, match=r"torch\.float64 of shape \(1, 10\)"):
        resample(noise(1, 10).double(), 8000, 16000)
    with pytest.raises(ValueError, match="shape"):
        resample(noise(1, 10)[0], 8000, 16000)


def test_convert_channels() -> None:
    one, two, six = noise(1, 50), noise(2, 50), noise(6, 50)
    assert torch.equal(convert_channels(one, 1), one)
    assert torch.equal(convert_channels(two, 2), two)
    assert torch.equal(convert_channels(one, 2), torch.cat([one, one]))
    assert torch.equal(convert_channels(two, 1), (two[:1] + two[1:]) / 2)
    assert torch.equal(convert_channels(six, 2), convert_channels(convert_channels(six, 1), 2))
    for channels in (0, 3, 6):
        with pytest.raises(ValueError, match=f"channels is {channels}"):
            convert_channels(six, channels)
