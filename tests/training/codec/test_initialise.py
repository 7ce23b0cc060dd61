from __future__ import annotations

from typing import Any

import pytest
import torch
from encodec.modules.conv import SConv1d, SConvTranspose1d
from torch import Tensor

from audiolm.codec import build_model
from audiolm.codec.network.layers import convolution
from audiolm.training.codec.initialise import STANDARD_DEVIATION, initialise_on_data

from ...conftest import TINY

SHAPES = [
    {},
    {"lstm": 1, "causal": True},
    {"norm": "none", "true_skip": False},
    {"channels": 2, "ratios": [2, 2, 2, 2], "n_residual_layers": 2},
]


def audio(channels: int = 1) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return 0.02 * torch.randn(4, channels, 480, generator=rng)


def deviations(model: Any, waveform: Tensor) -> list[float]:
    """Of the output of every convolution, in order of computation."""
    found: list[float] = []
    layers = [m for m in model.modules() if isinstance(m, SConv1d | SConvTranspose1d)]
    handles = [
        convolution(layer).register_forward_hook(
            lambda *a: found.append(float(a[2].detach().std()))
        )
        for layer in layers
    ]
    model.decoder(model.encoder(waveform))
    for handle in handles:
        handle.remove()
    assert len(found) == len(layers)
    return found


@pytest.mark.parametrize("change", SHAPES)
def test_every_layer_passes_the_signal_on(change: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = build_model({**TINY, **change})
    waveform = audio(model.channels)
    assert min(deviations(model, waveform)) < 0.1  # as it is by default: what is mended here
    initialise_on_data(model, waveform)
    found = deviations(model, waveform)
    assert found[:-1] == pytest.approx([STANDARD_DEVIATION] * (len(found) - 1), rel=1e-3)
    assert found[-1] == pytest.approx(float(waveform.std()), rel=1e-3)
    for layer in model.modules():
        if isinstance(layer, SConv1d | SConvTranspose1d):
            assert not convolution(layer).bias.any()
            assert not convolution(layer)._forward_hooks


def test_silence_is_refused_and_no_hook_left_after_an_error() -> None:
    model = build_model(TINY)
    with pytest.raises(ValueError, match="silent"):
        initialise_on_data(model, torch.zeros(2, 1, 240))
    with pytest.raises(RuntimeError):
        initialise_on_data(model, torch.randn(2, 3, 240))  # three channels
    before = [p.clone() for p in model.parameters()]
    model.decoder(model.encoder(audio()))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
