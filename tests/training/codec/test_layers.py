from __future__ import annotations

import copy

import pytest
import torch
from encodec.modules.conv import SConv1d
from torch.nn import functional as F

from audiolm.codec import build_model
from audiolm.training.codec.layers import (
    NarrowConv1d,
    TrainingConv1d,
    reflection_pad,
    use_training_layers,
)

from ...conftest import TINY


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 3), (2, 5), (6, 0)])
def test_padding_and_its_gradient_are_those_of_torch(left: int, right: int) -> None:
    x = noise(2, 3, 7).requires_grad_()
    ours, theirs = reflection_pad(x, left, right), F.pad(x, (left, right), "reflect")
    assert torch.equal(ours, theirs)
    weights = noise(*ours.shape)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dilation", [1, 4])
@pytest.mark.parametrize("shape", [(1, 16, 7), (16, 1, 7), (16, 8, 3), (8, 16, 1)])
def test_a_narrow_convolution_is_that_of_torch(shape: tuple[int, int, int], dilation: int) -> None:
    inputs, outputs, size = shape
    ours = NarrowConv1d(inputs, outputs, size, dilation=dilation).double()
    theirs = torch.nn.Conv1d(inputs, outputs, size, dilation=dilation).double()
    theirs.load_state_dict(ours.state_dict())
    x = noise(3, inputs, 30).double().requires_grad_()
    weights = noise(3, outputs, 30 - (size - 1) * dilation).double()
    results = []
    for conv in (ours, theirs):
        y = conv(x)
        results.append([y, *torch.autograd.grad((y * weights).sum(), [x, *conv.parameters()])])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 5, 333])  # shorter than the padding, not whole frames
def test_a_codec_computes_and_learns_the_same(causal: bool, length: int) -> None:
    plain = build_model(TINY | {"causal": causal}).double()
    fast = build_model(TINY | {"causal": causal}).double()
    fast.load_state_dict(copy.copy(plain.state_dict()))
    use_training_layers(fast)
    assert list(fast.state_dict()) == list(plain.state_dict())
    kinds = {type(module) for module in fast.modules()}
    assert TrainingConv1d in kinds and NarrowConv1d in kinds and SConv1d not in kinds
    waveform = noise(2, 1, length).double()
    outputs = []
    for model in (plain, fast):
        decoded = model.decoder(model.encoder(waveform))
        decoded.square().sum().backward()
        outputs.append([decoded, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(outputs[0]) == len(outputs[1]) > 1
    for a, b in zip(*outputs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-6)
