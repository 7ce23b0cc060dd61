"""The loss in nats per code, and what it means in bits per second of audio.

Letters: B batch, K codebooks, T codec frames, S sequence steps, V' predicted ids of a codebook (its
V codes, and the end token (EOS) where the model has one).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from audiolm.model.patterns import Pattern, interleave, occupied_cells

CHUNK = 2**19
"""Logits whose softmax is computed at a time."""


def scored_cells(positions: Tensor, lengths: Tensor, num_frames: int) -> Tensor:
    """Which cells of the steps hold a code of the clip, rather than padding or nothing.

    Args:
        positions: (K, T) the pattern's table for T = `num_frames`.
        lengths: (B,) frames of each clip; the rest of T is padding.

    Returns:
        (B, K, S) boolean.
    """
    frame_is_real = torch.arange(num_frames, device=lengths.device) < lengths[:, None]  # (B, T)
    cells = occupied_cells(positions).to(lengths.device)
    mask = torch.zeros(len(lengths), *cells.shape, dtype=torch.bool, device=lengths.device)
    index = positions.to(lengths.device).expand(len(lengths), *positions.shape)
    return mask.scatter_(2, index, frame_is_real[:, None].expand_as(index))


def lay_out(
    codes: Tensor,
    lengths: Tensor,
    reaches_end: Tensor | None,
    pattern: Pattern,
    context_frames: int,
    special: int,
) -> tuple[Tensor, Tensor]:
    """Windows of codes as the steps that a model reads, and which cells of these it is scored on.

    The same clip of two frames with an end token (E) and without, K = 3, delay pattern:

        k0  0 1 E . .        k0  0 1 . . .
        k1  . 0 1 . .        k1  . 0 1 . .
        k2  . . 0 1 .        k2  . . 0 1 .

    Args:
        codes: (B, K, T), T <= `context_frames`.
        lengths: (B,) frames of each clip; the rest of T is padding.
        reaches_end: (B,) boolean, whether the clip's end is to be predicted, one frame behind its
            last; None for a model without an end token.
        pattern: the model's.
        context_frames: frames of a full window, which a pattern of fixed length is laid out for.
        special: id of cells that hold nothing; with `reaches_end` the one before it is the end.

    Returns:
        (steps (B, K, S) ids, mask (B, K, S) boolean).
    """
    frames = (context_frames if pattern.fixed_length else codes.shape[2]) + (
        reaches_end is not None
    )
    codes = F.pad(codes, (0, frames - codes.shape[2]))
    positions = pattern.positions(frames)
    mask = scored_cells(positions, lengths, frames)
    steps = interleave(codes, positions, special).masked_fill(~mask, special)
    if reaches_end is not None:
        at = positions[0].to(lengths.device)[lengths][reaches_end]
        steps[reaches_end, 0, at] = special - 1
        mask[reaches_end, 0, at] = True
    return steps, mask


def codebook_nats(logits: Tensor, steps: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy and number of codes, a codebook.

    Sums rather than means, so that batches, ranks and codebooks add up to a token-weighted mean.

    Args:
        logits: (B, K, S, V'), aligned with `steps`.
        steps: (B, K, S) ids; those outside `mask` may be the special id.
        mask: (B, K, S) boolean, the cells that count.

    Returns:
        (nats (K,) float32, counts (K,) int64).
    """
    # In the order (B, S, K) the model's logits lie in memory already, and need no copy.
    cells = mask.transpose(1, 2)
    # An id outside the codes has no logit: such cells take any, and count nothing.
    targets = steps.transpose(1, 2).masked_fill(~cells, 0)
    nats: Tensor = _CrossEntropy.apply(
        logits.transpose(1, 2).flatten(0, 2), targets.flatten(), cells.flatten()
    )
    return nats.view(targets.shape).sum(dim=(0, 1)), mask.sum(dim=(0, 2))


class _CrossEntropy(torch.autograd.Function):
    """Nats (M,) float32 of targets (M,) under logits (M, V'); 0 outside `counts` (M,).

    The gradient is computed at once, some rows at a time: so neither logits in float32 nor
    probabilities are ever stored whole, and a CPU finds them in its cache.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
        nats = torch.empty(targets.shape, device=logits.device)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        rows = max(1, CHUNK // logits.shape[1])
        for first in range(0, len(targets), rows):
            chunk = slice(first, first + rows)
            log_p = logits[chunk].float().log_softmax(dim=-1)
            own = targets[chunk, None]
            counted = counts[chunk, None]
            nats[chunk] = -log_p.gather(1, own).masked_fill_(~counted, 0.0)[:, 0]
            if gradient is not None:
                p = log_p.exp_()
                p.scatter_add_(1, own, torch.full_like(own, -1, dtype=p.dtype))
                gradient[chunk] = p.masked_fill_(~counted, 0.0)
        ctx.save_for_backward(gradient)
        return nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (of_logits,) = ctx.saved_tensors
        grad_logits = torch.empty_like(of_logits)
        rows = max(1, CHUNK // of_logits.shape[1])
        for first in range(0, len(gradient), rows):
            chunk = slice(first, first + rows)
            grad_logits[chunk] = of_logits[chunk] * gradient[chunk, None]  # in float32
        return grad_logits, None, None


def mean_nats(nats: Tensor, counts: Tensor) -> Tensor:
    """Token-weighted mean over codebooks: a scalar, nats per code."""
    return nats.sum() / counts.sum().clamp(min=1)


def bits_per_second(nats: Tensor, frames: Tensor | float, frame_rate: float) -> Tensor:
    """Bits that coding a second of audio would take under the model: a scalar.

    nats: (K,), summed over `frames` frames, with what the end tokens of the clips cost.
    """
    return nats.sum() / torch.as_tensor(frames).clamp(min=1) * frame_rate / math.log(2)
