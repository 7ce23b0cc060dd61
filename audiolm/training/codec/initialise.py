"""Initialise an EnCodec for training so that it passes a signal on from the first step.

With the default initialisation each of about 28 convolutions shrinks its input, and the biases
are larger than quiet audio: hundreds of steps pass before any waveform is learnt.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from encodec.model import EncodecModel
from encodec.modules.conv import SConv1d, SConvTranspose1d
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from audiolm.codec.network.layers import convolution

STANDARD_DEVIATION = 0.5


@torch.no_grad()
def initialise_on_data(model: EncodecModel, waveform: Tensor) -> None:
    """Scale every convolution so that its output has a standard deviation of 0.5 on real audio.

    In order of computation, each on what the layers before it now give; biases become 0. The last
    layer's output gets the standard deviation of the audio itself.

    Args:
        model: whose encoder and decoder are to be trained; no layer may be skipped by its forward.
        waveform: (B, C, N), a few seconds of the training audio at its training level.

    Raises:
        ValueError: the audio is silent.

    Source: layer-sequential unit variance, Mishkin and Matas 2016, "All you need is a good init".
    """
    if not float(waveform.std()) > 0:
        raise ValueError("the audio that the codec is to be initialised on is silent")
    layers = [m for m in model.modules() if isinstance(m, SConv1d | SConvTranspose1d)]
    last = [m for m in model.decoder.modules() if isinstance(m, SConv1d)][-1]
    handles: list[RemovableHandle] = []
    for layer in layers:
        conv = convolution(layer)
        assert conv.bias is not None
        conv.bias.zero_()
        wanted = float(waveform.std()) if layer is last else STANDARD_DEVIATION
        handles.append(conv.register_forward_hook(_scaling_to(wanted)))
    try:
        model.decoder(model.encoder(waveform))
    finally:
        for handle in handles:
            handle.remove()


def _scaling_to(wanted: float) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    def scale(conv: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        factor = wanted / output.std().clamp(min=1e-8)
        # Weight normalisation keeps the length of each filter in weight_g.
        weight = conv.get_parameter("weight_g" if hasattr(conv, "weight_g") else "weight")
        weight.mul_(factor)
        return output * factor

    return scale
