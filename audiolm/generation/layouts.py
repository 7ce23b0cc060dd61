"""Which codes of which steps are to be sampled: in one window, or without end.

Letters: K codebooks, P prompt frames, T codec frames, S sequence steps.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from audiolm.model.patterns import Pattern, StridedPattern, num_steps


class Layout(Protocol):
    """Frames P, P + 1, ... of a recording whose first P frames are known."""

    span: int
    """Steps from the first code of a frame to its last, at most."""

    first_step: int
    """The first with a code to sample."""

    def steps(self) -> Iterable[int]:
        """Steps in turn, from the first to sample in to the last, if there is one."""

    def to_sample(self, step: int) -> Tensor | None:
        """(K,) int64: the frame of which the step holds a code to sample, a codebook; -1 for none.

        None where there is none at all.
        """

    def steps_of(self, frame: int) -> Tensor | None:
        """(K,) int64: the steps in which the codes of a frame stand; None past the last frame."""


class WindowLayout:
    """T frames, laid out by any pattern; cells that hold none of their codes stay empty.

    Args:
        pattern: lays them out.
        prompt_frames: P.
        num_frames: T > P.
        extra: frames more that are laid out and not sampled: in training, end tokens stood there.
        device: of the results.
    """

    def __init__(
        self,
        pattern: Pattern,
        prompt_frames: int,
        num_frames: int,
        extra: int,
        device: torch.device,
    ) -> None:
        self._positions = pattern.positions(num_frames + extra)
        self._num_frames = num_frames
        self.span = num_steps(self._positions)
        frames = torch.full((pattern.num_codebooks, self.span), -1)
        sampled = torch.arange(prompt_frames, num_frames).expand(pattern.num_codebooks, -1)
        frames.scatter_(1, self._positions[:, prompt_frames:num_frames], sampled)
        self._sampled = (frames >= 0).any(dim=0).tolist()
        self._frames = frames.to(device)
        self.first_step = self._sampled.index(True)

    def steps(self) -> Iterable[int]:
        return range(self.first_step, self.span)

    def to_sample(self, step: int) -> Tensor | None:
        return self._frames[:, step] if self._sampled[step] else None

    def steps_of(self, frame: int) -> Tensor | None:
        return self._positions[:, frame] if frame < self._num_frames else None


class EndlessLayout:
    """Frames without end, so that a frame does not depend on how many follow.

    Args:
        pattern: lays them out.
        prompt_frames: P.
        device: of the results.
    """

    def __init__(self, pattern: StridedPattern, prompt_frames: int, device: torch.device) -> None:
        self._stride, self._offsets = pattern.stride, torch.tensor(pattern.offsets)
        self._device = device
        self.span = pattern.offsets[-1] + 1
        self.first_step = pattern.stride * prompt_frames
        # From here on no step holds a code of the prompt, and steps repeat but for their frames.
        self._steady = self.first_step + pattern.offsets[-1]
        self._column = functools.cache(self._made_column)

    def steps(self) -> Iterable[int]:
        return itertools.count(self.first_step)

    def to_sample(self, step: int) -> Tensor | None:
        cycles = max(step - self._steady, 0) // self._stride
        column = self._column(step - cycles * self._stride)
        return None if column is None else torch.where(column < 0, column, column + cycles)

    def steps_of(self, frame: int) -> Tensor:
        return self._stride * frame + self._offsets

    def _made_column(self, step: int) -> Tensor | None:
        since = step - self._offsets
        sampled = (since % self._stride == 0) & (since >= self.first_step)
        frames = torch.where(sampled, since // self._stride, -1)
        return frames.to(self._device) if sampled.any() else None


RING_SHARE = 3 / 4
"""Of a window's steps, those that a ring holds: as many as a step sees when re-reading, on average.
A whole window was worse on recordings longer than it: few steps of training had so long a past."""


def ring_steps(pattern: Pattern, context_frames: int) -> int:
    return max(1, int(RING_SHARE * pattern.num_steps(context_frames)))
