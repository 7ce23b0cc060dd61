"""The convolutions inside `encodec`'s, the quantizer's way back as a layer, and a fast ELU."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from encodec.modules.conv import SConv1d, SConvTranspose1d
from encodec.quantization.vq import ResidualVectorQuantizer
from torch import Tensor, nn


class Kernel(NamedTuple):
    """The numbers of a convolution along time, in steps of its input (transposed: its output)."""

    size: int
    stride: int
    dilation: int

    @property
    def span(self) -> int:
        """Steps from the first to the last that a kernel touches."""
        return (self.size - 1) * self.dilation


def convolution(layer: SConv1d | SConvTranspose1d) -> nn.Conv1d | nn.ConvTranspose1d:
    """Return torch's own layer inside."""
    conv = layer.conv.conv if isinstance(layer, SConv1d) else layer.convtr.convtr
    assert isinstance(conv, nn.Conv1d | nn.ConvTranspose1d)
    return conv


def kernel(layer: SConv1d | SConvTranspose1d) -> Kernel:
    """Return the layer's kernel size, stride and dilation."""
    conv = convolution(layer)
    return Kernel(conv.kernel_size[0], conv.stride[0], conv.dilation[0])


class Dequantizer(nn.Module):
    """Codes (B, K, T) to latents (B, dimension, T)."""

    def __init__(self, quantizer: ResidualVectorQuantizer) -> None:
        super().__init__()
        self.quantizer = quantizer

    def forward(self, codes: Tensor) -> Tensor:
        latents: Tensor = self.quantizer.decode(codes.transpose(0, 1))
        return latents


class _ELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        # exp is vectorised on a CPU, expm1 (which torch's ELU calls) is not; the difference is
        # one rounding of numbers near 1.
        y = x.clamp(max=0).exp_().sub_(1).add_(x.clamp(min=0))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        result: Tensor = torch.ops.aten.elu_backward(gradient, 1.0, 1.0, 1.0, True, y)
        return result


class FastELU(nn.ELU):
    """ELU with alpha 1, equal to `nn.ELU` within 1e-6, and four times as fast on a CPU.

    Torch's own takes about half of the time of a small EnCodec there.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        y: Tensor = _ELU.apply(x) if x.device.type == "cpu" else super().forward(x)
        return y


def use_fast_elu(module: nn.Module) -> None:
    """Replace every `nn.ELU` in `module`; it has no weights, so state dicts stay the same."""
    for name, child in module.named_children():
        if isinstance(child, nn.ELU):
            setattr(module, name, FastELU())
        else:
            use_fast_elu(child)
