"""The convolutions inside `encodec`'s wrapped ones, and the quantizer's way back as a layer."""

from __future__ import annotations

from typing import NamedTuple

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
