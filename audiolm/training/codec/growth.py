"""A decoder that has grown: wider or deeper than one that is trained, and computing the same.

So a larger decoder begins where a smaller one ended. Source: Chen et al. 2015, "Net2Net"
(arXiv:1511.05641), sections 2.2 and 2.3: channels are repeated, and what comes from each of the
copies is shared out among them; residual layers that are new add nothing at first.
"""

from __future__ import annotations

import torch
from encodec.modules.conv import SConv1d, SConvTranspose1d
from encodec.modules.seanet import SEANetDecoder, SEANetResnetBlock
from torch import Tensor, nn

Convolution = nn.Conv1d | nn.ConvTranspose1d

SPREAD = 0.05
"""Standard deviation of the factors by which copies differ, so that they do not learn the same."""


@torch.no_grad()
def grow_decoder(small: SEANetDecoder, large: SEANetDecoder) -> None:
    """Give `large` weights by which it computes nearly what `small` does.

    Raises:
        ValueError: its width is no multiple of that of `small`, it has fewer residual layers, or
            layers that cannot be copied (LSTMs, time group norm).
    """
    times, rest = divmod(large.n_filters, small.n_filters)
    if rest or large.n_residual_layers < small.n_residual_layers:
        raise ValueError(
            f"a decoder of {small.n_filters} filters and {small.n_residual_layers} residual layers "
            f"grows to a multiple of the filters and as many layers or more, not to "
            f"{large.n_filters} and {large.n_residual_layers}"
        )
    source = _groups(small)
    for group, layers in enumerate(_groups(large)):
        last = group == len(source) - 1
        for i, layer in enumerate(layers):
            if i < len(source[group]):
                _copy(source[group][i], layer, times, repeat_in=group > 0, repeat_out=not last)
            else:
                _silence(layer)


def _groups(decoder: SEANetDecoder) -> list[list[nn.Module]]:
    """Layers with weights: the first convolution; each up-sampling, then its blocks; the last."""
    groups: list[list[nn.Module]] = []
    for layer in decoder.model:
        if isinstance(layer, SEANetResnetBlock):
            groups[-1].append(layer)
        elif isinstance(layer, SConv1d | SConvTranspose1d):
            groups.append([layer])
        elif any(True for _ in layer.parameters()):
            raise ValueError(f"a decoder with {type(layer).__name__} layers cannot be grown")
    return groups


def _convolutions(layer: nn.Module) -> list[Convolution]:
    """The convolutions in a layer, each with its weight."""
    if any(isinstance(m, nn.GroupNorm) for m in layer.modules()):
        raise ValueError("a decoder with time group norm cannot be grown")
    return [m for m in layer.modules() if isinstance(m, nn.Conv1d | nn.ConvTranspose1d)]


def _copy(
    small: nn.Module, large: nn.Module, times: int, repeat_in: bool, repeat_out: bool
) -> None:
    for source, target in zip(_convolutions(small), _convolutions(large), strict=True):
        weight, bias = _weight(source), source.get_parameter("bias").data
        ins, outs = (0, 1) if isinstance(source, nn.ConvTranspose1d) else (1, 0)
        if repeat_in:
            weight = torch.cat([weight] * times, dim=ins) / times
        if repeat_out:
            weight, bias = torch.cat([weight] * times, dim=outs), torch.cat([bias] * times)
        if times > 1:
            weight = weight * (1 + SPREAD * torch.randn_like(weight))
        _set_weight(target, weight)
        target.get_parameter("bias").copy_(bias)


def _silence(layer: nn.Module) -> None:
    """Have a residual block add nothing: its last convolution gives zeros."""
    assert isinstance(layer, SEANetResnetBlock)
    last = _convolutions(layer.block)[-1]
    # Of a weight with a norm of its own the direction stays, which the gradient needs.
    last.get_parameter("weight_g" if _has_norm(last) else "weight").zero_()
    last.get_parameter("bias").zero_()
    if not isinstance(layer.shortcut, nn.Identity):
        (shortcut,) = _convolutions(layer.shortcut)
        _set_weight(shortcut, torch.eye(shortcut.out_channels)[..., None])
        shortcut.get_parameter("bias").zero_()


def _has_norm(layer: Convolution) -> bool:
    """Whether a convolution's norm is a parameter of its own (weight normalisation)."""
    return hasattr(layer, "weight_g")


def _weight(layer: Convolution) -> Tensor:
    """What a convolution multiplies by."""
    if not _has_norm(layer):
        return layer.get_parameter("weight")
    direction = layer.get_parameter("weight_v")
    return direction * (layer.get_parameter("weight_g") / _norm(direction))


def _set_weight(layer: Convolution, weight: Tensor) -> None:
    if _has_norm(layer):
        layer.get_parameter("weight_v").copy_(weight)
        layer.get_parameter("weight_g").copy_(_norm(weight))
    else:
        layer.get_parameter("weight").copy_(weight)


def _norm(weight: Tensor) -> Tensor:
    """Of what torch's weight normalisation keeps one norm each."""
    norm: Tensor = weight.norm(dim=(1, 2), keepdim=True)
    return norm
