from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from audiolm.evaluation.codec.upsampling_lines import (
    at_level,
    line_spacings,
    lines_of_codec,
    measure_lines,
    probe_signals,
    worst_line,
)

RATE = 16000
STRIDES = [5, 4, 4, 4]
NONE = 1.7
"""dB that the worst of some 160 bins stands out by, where there is no line."""


def comb(count: int, steps: int) -> Tensor:
    """A pulse every `steps` samples (1, N)."""
    pulses = torch.zeros(1, count)
    pulses[:, ::steps] = 1.0
    return pulses


def test_spacings() -> None:
    assert line_spacings(STRIDES, RATE) == [50, 250, 1000, 4000]
    assert line_spacings([8, 5, 4, 2], RATE) == [50, 400, 2000, 8000]


def test_signals_have_no_lines_and_the_levels_that_they_are_named_by() -> None:
    signals = probe_signals(RATE)
    levels = [10 * math.log10(float(x.square().mean())) for x in signals.values()]
    assert levels == pytest.approx([-70, -30, -30], abs=0.01)
    for lines in lines_of_codec(lambda signal: signal, STRIDES, RATE).values():
        assert list(lines) == [50, 250, 1000, 4000]
        assert worst_line(lines).prominence < NONE


@pytest.mark.parametrize("steps", [4, 16, 64, 320])
@pytest.mark.parametrize("name", list(probe_signals(RATE)))
def test_a_planted_comb_is_seen_and_its_layer_named(steps: int, name: str) -> None:
    signal = probe_signals(RATE)[name]
    # Each of the comb's steps / 2 lines 20 dB below the whole signal.
    level = 10 * math.log10(float(signal.square().mean())) - 20 + 10 * math.log10(steps / 2)
    planted = measure_lines(signal + at_level(comb(signal.shape[1], steps), level), STRIDES, RATE)
    plain = measure_lines(signal, STRIDES, RATE)
    guilty = planted[RATE / steps]
    assert guilty is not None and guilty.prominence > 6
    assert guilty.frequency % (RATE / steps) == 0
    finer = [spacing for spacing in planted if spacing < RATE / steps]
    for spacing in finer:  # the layers before it are not blamed
        line, before = planted[spacing], plain[spacing]
        assert line is not None and before is not None
        assert abs(line.prominence - before.prominence) < 1
    assert worst_line(planted).prominence >= guilty.prominence


def test_prominence_grows_with_the_comb_and_levels_are_right() -> None:
    signal = probe_signals(RATE)["white noise, -30 dBFS"]
    found = []
    for level in (-56, -50, -30):
        tone = math.sqrt(2) * torch.sin(2 * torch.pi * 1000 * torch.arange(signal.shape[1]) / RATE)
        lines = measure_lines(signal + at_level(tone[None], level), STRIDES, RATE)
        found.append(worst_line(lines))
    assert found[1].frequency == found[2].frequency == 1000
    assert found[2].prominence == pytest.approx(found[1].prominence + 20, abs=1)
    assert found[2].level == pytest.approx(-30 - 10 * math.log10(1.5), abs=0.2)
    assert found[0].prominence > 2


def test_blurred_lines_are_seen() -> None:
    """As where codes change from frame to frame, and with them how loud a line is."""
    signal = probe_signals(RATE)["white noise, -30 dBFS"]
    count = signal.shape[1]
    generator = torch.Generator().manual_seed(1)
    loudness = torch.randn(1, 1, count // 320, generator=generator)
    gain = torch.nn.functional.interpolate(loudness, size=count, mode="linear")[0]
    blurred = at_level(gain * comb(count, 16), -40)
    line = measure_lines(signal + blurred, STRIDES, RATE)[1000.0]
    assert line is not None and line.prominence > 3


@pytest.mark.parametrize("level", [0.0, 1e-9])
def test_what_no_file_would_hold_does_not_count(level: float) -> None:
    lines = measure_lines(level * comb(4 * RATE, 64), STRIDES, RATE)
    assert worst_line(lines).prominence < 0.1


def test_a_decoder_with_a_transposed_convolution_is_caught() -> None:
    """One random layer of stride 4 after a smooth upsampling draws the lines of the last layer."""
    torch.manual_seed(0)
    layer = torch.nn.ConvTranspose1d(1, 1, 8, stride=4, padding=2)
    assert layer.bias is not None

    @torch.no_grad()
    def through(signal: Tensor) -> Tensor:
        # Offsets of the channels before it become tones.
        return 0.01 * layer(1 + signal[None, :, ::4])[0, :, : signal.shape[1]]

    for lines in lines_of_codec(through, STRIDES, RATE).values():
        line = lines[4000.0]
        assert line is not None and line.prominence > 10


def test_layers_without_lines_below_half_of_the_rate() -> None:
    lines = measure_lines(probe_signals(RATE)["white noise, -30 dBFS"], [8, 5, 4, 2], RATE)
    assert lines[8000.0] is None and worst_line(lines).prominence < NONE
