"""One batched pass over clips of unlike lengths that gives each what it would get alone.

Padding the waveforms with zeros does not: EnCodec's convolutions mirror the signal at its two ends,
at every layer, so a clip's last frames depend on where it ends. Here the lengths go along
through the layers, and each convolution pads each clip at that clip's own end:

    clip 0   a b c d e f g | f e        the batch is convolved as one;
    clip 1   a b c d | c b . . .        what comes of the dots is cut off by the lengths

Everything else works step by step (ELU) or from the left (LSTM): padding at the right does no harm.

B batch, C channels of a layer, N steps of a layer (samples at first, frames at last).
"""

from __future__ import annotations

from collections.abc import Sequence

from encodec.modules.conv import SConv1d, get_extra_padding_for_conv1d, pad1d
from encodec.modules.lstm import SLSTM
from encodec.modules.seanet import SEANetEncoder, SEANetResnetBlock
from torch import Tensor, nn

from audiolm.codec.network.layers import kernel

Ragged = tuple[Tensor, list[int]]  # (B, C, N) padded at the right, and each item's own length


def ragged_encode(encoder: SEANetEncoder, clips: Sequence[Tensor]) -> Ragged:
    """Clips (C, n_i) to latents (B, dimension, T), of which item i owns the first ceil(n_i / hop).

    The encoder must not use group normalisation, whose statistics take in the padding.
    """
    x = nn.utils.rnn.pad_sequence([clip.T for clip in clips], batch_first=True).transpose(1, 2)
    return _sequence(encoder.model, (x, [clip.shape[1] for clip in clips]))


def _sequence(layers: nn.Sequential, x: Ragged) -> Ragged:
    for layer in layers:
        x = _layer(layer, x)
    return x


def _layer(layer: nn.Module, x: Ragged) -> Ragged:
    if isinstance(layer, SConv1d):
        return _conv(layer, x)
    if isinstance(layer, SEANetResnetBlock):
        (residual, lengths), (shortcut, _) = _sequence(layer.block, x), _layer(layer.shortcut, x)
        return shortcut + residual, lengths
    assert isinstance(layer, nn.ELU | nn.Identity | SLSTM), type(layer)
    return layer(x[0]), x[1]


def _conv(layer: SConv1d, x: Ragged) -> Ragged:
    batch, lengths = x
    shape = kernel(layer)
    out_lengths = [-(-n // shape.stride) for n in lengths]
    if len(set(lengths)) == 1:
        return layer(batch), out_lengths
    # As in SConv1d.forward, item by item.
    total = shape.span - (shape.stride - 1)
    right = 0 if layer.causal else total // 2
    padded = []
    for item, n in zip(batch, lengths, strict=True):
        own = item[None, :, :n]
        extra = get_extra_padding_for_conv1d(own, shape.size, shape.stride, total)
        padded.append(pad1d(own, (total - right, right + extra), mode=layer.pad_mode)[0])
    width = max(p.shape[1] for p in padded)
    joined = batch.new_zeros(len(padded), batch.shape[1], width)
    for row, p in zip(joined, padded, strict=True):
        row[:, : p.shape[1]] = p
    return layer.conv(joined), out_lengths
