"""Codebook patterns: which codes the model predicts together, and in which order.

A frame of audio has K codes, one a codebook. A pattern gives each code (k, t) a step of the
sequence that the model reads from left to right: `positions(T)` is a table (K, T) of steps, and
all else follows from it. Cells (k, s) of the steps that no code falls on hold a special id, which
is past the codes: the model reads it, is never scored on it, never samples it, and it
never reaches the codec. Training and generation share these functions.

The same four frames (columns of `codes`; k0 is the coarsest codebook) under each pattern, written
as `frame` in cell (k, s), `.` for the special id, K = 3:

    parallel        k0  0 1 2 3             S = T: fastest; codes of a frame are sampled
                    k1  0 1 2 3             independently of each other, given the past
                    k2  0 1 2 3

    delay           k0  0 1 2 3 . .         S = T + K - 1: a code sees the coarser codes
                    k1  . 0 1 2 3 .         of its own frame (Copet et al. 2023, MusicGen)
                    k2  . . 0 1 2 3         delays of one's own: MusicGen's stereo models have
                                            0,0,1,1,... for the left and right of each codebook

    flatten         k0  0 . . 1 . . 2 . . 3 . .     S = K * T: exact, and K times the steps
                    k1  . 0 . . 1 . . 2 . . 3 .
                    k2  . . 0 . . 1 . . 2 . . 3

    coarse_first    k0  0 1 2 3 . . . . .   S = 2 T + K - 2: the whole coarse line first, then
                    k1  . . . . 0 1 2 3 .   the finer ones with a delay (Borsos et al. 2023,
                    k2  . . . . . 0 1 2 3   AudioLM, has the idea; Copet et al. 2023, the layout)

Letters: B batch, K codebooks, T codec frames, S sequence steps, V codes in a codebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import repr as short_repr
from typing import Protocol

import torch
from torch import Tensor

from audiolm.files import short


class Pattern(Protocol):
    """Where each code stands in the sequence."""

    @property
    def num_codebooks(self) -> int:
        """K."""

    @property
    def fixed_length(self) -> bool:
        """Whether steps depend on T, so that T must be the trained one when generating."""

    def num_steps(self, num_frames: int) -> int:
        """S of T frames. It takes no table of them: a stream may be hours long."""

    def positions(self, num_frames: int) -> Tensor:
        """(K, T) int64: the step of code (k, t); it never falls as t or k grows."""


@dataclass(frozen=True)
class StridedPattern:
    """Codebook k of frame t at step stride * t + offsets[k]: parallel, delay and flatten.

    Args:
        stride: steps from a frame to the next.
        offsets: one a codebook, never falling, the first 0.
    """

    stride: int
    offsets: tuple[int, ...]
    fixed_length = False

    @property
    def num_codebooks(self) -> int:
        return len(self.offsets)

    def num_steps(self, num_frames: int) -> int:
        return (num_frames - 1) * self.stride + self.offsets[-1] + 1

    def positions(self, num_frames: int) -> Tensor:
        return torch.arange(num_frames) * self.stride + torch.tensor(self.offsets)[:, None]


@dataclass(frozen=True)
class CoarseFirstPattern:
    """All of codebook 0, then the others with a delay of one step each.

    The distance from a coarse code to the fine ones of its frame is T, so a model that has learnt
    T frames must always be given T frames (`fixed_length`).
    """

    num_codebooks: int
    fixed_length = True

    def num_steps(self, num_frames: int) -> int:
        delays = self.num_codebooks - 1
        return 2 * num_frames + delays - 1 if delays else num_frames

    def positions(self, num_frames: int) -> Tensor:
        frames = torch.arange(num_frames)
        fine = [num_frames + k - 1 + frames for k in range(1, self.num_codebooks)]
        return torch.stack([frames, *fine])


PATTERNS = ("parallel", "delay", "flatten", "coarse_first")


def make_pattern(name: str | Sequence[int], num_codebooks: int) -> Pattern:
    """The pattern of that name, or of these delays in frames, for K codebooks.

    Raises:
        ValueError: for an unknown name, and for delays that are not K, begin above 0 or fall.
    """
    if not isinstance(name, str):
        return _delayed(name, num_codebooks)
    if name == "parallel":
        return StridedPattern(1, (0,) * num_codebooks)
    if name == "delay":
        return StridedPattern(1, tuple(range(num_codebooks)))
    if name == "flatten":
        return StridedPattern(num_codebooks, tuple(range(num_codebooks)))
    if name == "coarse_first":
        return CoarseFirstPattern(num_codebooks)
    raise ValueError(f"pattern={short(repr(name))} is unknown; choose one of {', '.join(PATTERNS)}")


def _delayed(delays: Sequence[int], num_codebooks: int) -> StridedPattern:
    offsets = tuple(delays)
    if len(offsets) != num_codebooks:
        raise ValueError(
            f"pattern.delays={short_repr(offsets)} are {len(offsets)} for {num_codebooks} "
            f"codebooks; give one a codebook"
        )
    whole = all(isinstance(delay, int) and not isinstance(delay, bool) for delay in offsets)
    if not whole or offsets[0] != 0 or list(offsets) != sorted(offsets):
        raise ValueError(
            f"pattern.delays={short_repr(offsets)} must be whole numbers that begin with 0 and "
            f"never fall"
        )
    return StridedPattern(1, offsets)


def num_steps(positions: Tensor) -> int:
    """S of a table of positions (K, T)."""
    return int(positions.max()) + 1


def occupied_cells(positions: Tensor) -> Tensor:
    """(K, S) boolean: True where a code stands, False where the special id does."""
    cells = torch.zeros(positions.shape[0], num_steps(positions), dtype=torch.bool)
    return cells.scatter_(1, positions, True)


def interleave(codes: Tensor, positions: Tensor, special: int) -> Tensor:
    """Lay codes (B, K, T) out as steps (B, K, S); empty cells get `special`."""
    positions = positions.to(codes.device)
    steps = codes.new_full((*codes.shape[:2], num_steps(positions)), special)
    return steps.scatter_(2, positions.expand_as(codes), codes)


def deinterleave(steps: Tensor, positions: Tensor) -> Tensor:
    """Gather the codes (B, K, T) from steps (B, K, S): the inverse of `interleave`."""
    index = positions.to(steps.device).expand(steps.shape[0], *positions.shape)
    return steps.gather(2, index)
