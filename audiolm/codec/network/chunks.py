"""A long input through a SEANet encoder or decoder in chunks: bounded memory, the same result.

A convolution sees only so far. So a chunk is given as much of its neighbours on both sides as the
layers can see (`context`), and of what comes out the neighbours' part is dropped:

    input     |...........|...........|.......|
    chunk 1   |===========>>                       >> < context, computed and dropped
    chunk 2            <<=|===========|>>
    chunk 3                        <<=|=======|    the ends of the input are the layers' own

Chunks begin and end on frame boundaries, so that every layer's steps fall where they would in one
pass. An LSTM sees back without end: it is given the state that the last chunk left, so that it too
comes out the same. What differs is rounding, as between any two batch shapes.

Where a chunk begins and ends depends on the sizes asked for alone, not on how the input arrives;
and it is computed as soon as the input that it depends on is there. So a stream starts early, and
is the same, bit for bit, however it was cut.

B batch, C channels, N steps (samples or frames).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from encodec.modules.conv import SConv1d, SConvTranspose1d
from encodec.modules.lstm import SLSTM
from encodec.modules.seanet import SEANetResnetBlock
from torch import Tensor, nn

from audiolm.codec.network.layers import Dequantizer, kernel
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


def stream(
    model: nn.Sequential, blocks: Iterable[Tensor], sizes: Sequence[int]
) -> Iterator[Tensor]:
    """`model(torch.cat(blocks, -1))`, in parts whose joining along the last axis is the whole.

    A part is yielded once the blocks that it depends on have been read, and before any more are.

    Args:
        model: the `model` of a SEANetEncoder or SEANetDecoder without group normalisation, the
            latter behind a `Dequantizer` if wanted.
        blocks: (B, C, n), of any lengths; without end if need be.
        sizes: of the parts in turn, in frames; the last is that of all further ones. Memory is
            bounded by the largest, and by the longest block.
    """
    for at, layer in enumerate(model):
        if isinstance(layer, SLSTM):
            frames = _through_lstm(layer, _in_chunks(model[:at], blocks, sizes))
            yield from _in_chunks(model[at + 1 :], frames, sizes)
            return
    yield from _in_chunks(model, blocks, sizes)


def _in_chunks(
    model: nn.Sequential, blocks: Iterable[Tensor], sizes: Sequence[int]
) -> Iterator[Tensor]:
    samples_in, samples_out = _strides(model)  # a frame in samples, on either side
    left = context(model).left
    buffer = Buffer()
    begin = done = 0  # frames: where the buffer begins, and what has been yielded
    in_turn = itertools.chain(sizes, itertools.repeat(sizes[-1]))
    size = next(in_turn)

    for block in blocks:
        buffer.push(block)
        while buffer.size >= (until := (_needed(model, done + size) - begin) * samples_in):
            out = _run(model, buffer.head(until))
            yield out[..., (done - begin) * samples_out : (done - begin + size) * samples_out]
            done += size
            buffer.drop((max(0, done - left) - begin) * samples_in)
            begin = max(0, done - left)
            size = next(in_turn)
    if buffer.size > (done - begin) * samples_in:
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
    left = -(-_reach(model, 0) // samples_in)
    # Behind the start, whose mirrored samples reach no further to the right than `left`.
    return Context(left, _needed(model, left + 1) - (left + 1))


def _reach(layer: nn.Module, left: int) -> int:
    """Extra input steps to the left that a layer needs for `left` extra output steps."""
    if isinstance(layer, nn.Sequential):
        for inner in reversed(layer):
            left = _reach(inner, left)
    elif isinstance(layer, SEANetResnetBlock):
        left = max(_reach(layer.block, left), _reach(layer.shortcut, left))
    elif isinstance(layer, SConv1d):
        left = left * kernel(layer).stride + kernel(layer).span
    elif isinstance(layer, SConvTranspose1d):
        # Kernels are two strides long: an output step depends on two inputs.
        left = -(-left // kernel(layer).stride) + 1
    else:
        assert isinstance(layer, nn.ELU | nn.Identity | Dequantizer), type(layer)
    return left


def _needed(model: nn.Sequential, frames: int) -> int:
    """Frames of input that the first `frames` of output depend on."""
    samples_in, samples_out = _strides(model)
    return _last_input(model, frames * samples_out - 1) // samples_in + 1


def _last_input(layer: nn.Module, step: int) -> int:
    """The last input step that output steps 0 ... `step` of a layer depend on.

    At the start of the input these are the mirrored ones, if they lie further to the right.
    """
    if isinstance(layer, nn.Sequential):
        for inner in reversed(layer):
            step = _last_input(inner, step)
    elif isinstance(layer, SEANetResnetBlock):
        step = max(_last_input(layer.block, step), _last_input(layer.shortcut, step))
    elif isinstance(layer, SConv1d):
        shape = kernel(layer)
        total = shape.span - (shape.stride - 1)  # padding, as in SConv1d.forward
        left = total if layer.causal else total - total // 2
        step = max(step * shape.stride + shape.span - left, left)
    elif isinstance(layer, SConvTranspose1d):
        # Kernels are two strides long, and all that a stride adds is cut off.
        stride = kernel(layer).stride
        step = (step + (0 if layer.causal else stride - stride // 2)) // stride
    return step
