"""A long input through a SEANet encoder or decoder in pieces: bounded memory, the same result.

A convolution sees only so far. So a piece is given as much of its neighbours on both sides as the
layers can see (`context`), and of what comes out the neighbours' part is dropped:

    input     |...........|...........|.......|
    piece 1   |===========>>                       >> < context, computed and dropped
    piece 2            <<=|===========|>>
    piece 3                        <<=|=======|    the ends of the input are the layers' own

Pieces begin and end on frame boundaries, so that every layer's steps fall where they would in one
pass. An LSTM sees back without end: it is given the state that the last piece left, so that it too
comes out the same. What differs is rounding, as between any two batch shapes.

B batch, C channels, N steps (samples or frames).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from encodec.modules.conv import SConv1d, SConvTranspose1d
from encodec.modules.lstm import SLSTM
from encodec.modules.seanet import SEANetResnetBlock
from torch import Tensor, nn

from audiolm.codec.layers import kernel
from audiolm.codec.precision import full_precision


class Buffer:
    """A queue of steps: blocks (..., n) go in at the end, any number comes off the front."""

    def __init__(self) -> None:
        self._parts: deque[Tensor] = deque()
        self.size = 0

    def push(self, block: Tensor) -> None:
        self._parts.append(block)
        self.size += block.shape[-1]

    def head(self, n: int) -> Tensor:
        """The first n steps (..., n), which stay in the queue."""
        assert n <= self.size, (n, self.size)
        taken, parts = 0, []
        for part in self._parts:
            parts.append(part[..., : n - taken])
            taken += parts[-1].shape[-1]
            if taken == n:
                break
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def drop(self, n: int) -> None:
        """Forget the first n steps."""
        self.size -= n
        while n:
            first = self._parts.popleft()
            if first.shape[-1] > n:
                self._parts.appendleft(first[..., n:])
            n -= min(n, first.shape[-1])


class Context(NamedTuple):
    """How many frames to the left and to the right of its own a frame can depend on."""

    left: int
    right: int


def stream(model: nn.Sequential, blocks: Iterable[Tensor], piece: int) -> Iterator[Tensor]:
    """`model(torch.cat(blocks, -1))`, in parts whose joining along the last axis is the whole.

    `model` is the `model` of a SEANetEncoder or SEANetDecoder without group normalisation.
    Blocks (B, C, n) may have any length; memory is bounded by the longest and by `piece` (frames).
    """
    for at, layer in enumerate(model):
        if isinstance(layer, SLSTM):
            frames = _through_lstm(layer, _in_pieces(model[:at], blocks, piece))
            yield from _in_pieces(model[at + 1 :], frames, piece)
            return
    yield from _in_pieces(model, blocks, piece)


def _in_pieces(model: nn.Sequential, blocks: Iterable[Tensor], piece: int) -> Iterator[Tensor]:
    samples_in, samples_out = _strides(model)  # a frame in samples, on either side
    left, right = context(model)
    # The mirrored start of the input reaches as far to the right as the context to the left.
    piece = max(piece, left + 1)
    buffer = Buffer()
    begin = done = 0  # frames: where the buffer begins, and what has been yielded

    for block in blocks:
        buffer.push(block)
        # Strictly more: the last piece, which the layers pad as an end, must not be empty.
        while buffer.size > (until := (done - begin + piece + right) * samples_in):
            out = _run(model, buffer.head(until))
            yield out[..., (done - begin) * samples_out : (done - begin + piece) * samples_out]
            done += piece
            buffer.drop((max(0, done - left) - begin) * samples_in)
            begin = max(0, done - left)
    if buffer.size:
        yield _run(model, buffer.head(buffer.size))[..., (done - begin) * samples_out :]


def _through_lstm(layer: SLSTM, blocks: Iterable[Tensor]) -> Iterator[Tensor]:
    """`SLSTM.forward`, block by block, with the state handed on."""
    state: tuple[Tensor, Tensor] | None = None

    def step(x: Tensor) -> Tensor:  # (B, C, N)
        nonlocal state
        steps = x.permute(2, 0, 1)
        y: Tensor
        y, state = layer.lstm(steps, state)
        if layer.skip:
            y = y + steps
        return y.permute(1, 2, 0)

    for block in blocks:
        yield _run(step, block)


def _run(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with full_precision(x.device):
        return function(x)


def _strides(model: nn.Sequential) -> tuple[int, int]:
    down = up = 1
    for layer in model:
        if isinstance(layer, SConv1d):
            down *= kernel(layer).stride
        elif isinstance(layer, SConvTranspose1d):
            up *= kernel(layer).stride
    return down, up


def context(model: nn.Sequential) -> Context:
    """Compute from the kernels how far a frame of `model` can see, in whole frames.

    To the left a convolution is counted with its whole kernel, causal or not: at the end of the
    input the mirrored samples lie there.
    """
    samples_in, _ = _strides(model)
    left, right = _reach(model, 0, 0)
    return Context(-(-left // samples_in), -(-right // samples_in))


def _reach(layer: nn.Module, left: int, right: int) -> tuple[int, int]:
    """Extra input steps that a layer needs on either side for (left, right) extra output steps."""
    if isinstance(layer, nn.Sequential):
        for inner in reversed(layer):
            left, right = _reach(inner, left, right)
    elif isinstance(layer, SEANetResnetBlock):
        ways = _reach(layer.block, left, right), _reach(layer.shortcut, left, right)
        left, right = max(w[0] for w in ways), max(w[1] for w in ways)
    elif isinstance(layer, SConv1d):
        shape = kernel(layer)
        ahead = 0 if layer.causal else (shape.span - shape.stride + 1) // 2
        left, right = left * shape.stride + shape.span, right * shape.stride + ahead
    elif isinstance(layer, SConvTranspose1d):
        # Kernels are two strides long: an output step depends on two inputs.
        stride = kernel(layer).stride
        left, right = -(-left // stride) + 1, -(-right // stride) + (0 if layer.causal else 1)
    else:
        assert isinstance(layer, nn.ELU | nn.Identity), type(layer)
    return left, right
