"""The loss in nats per code, and what it means in bits per second of audio.

Letters: B batch, K codebooks, T codec frames, S sequence steps, V codes in a codebook.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from audiolm.model.patterns import occupied_cells


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


def codebook_nats(logits: Tensor, steps: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy and number of codes, a codebook.

    Sums rather than means, so that batches, ranks and codebooks add up to a token-weighted mean.

    Args:
        logits: (B, K, S, V), aligned with `steps`.
        steps: (B, K, S) ids; those outside `mask` may be the special id.
        mask: (B, K, S) boolean, the cells that count.

    Returns:
        (nats (K,) float32, counts (K,) int64).
    """
    # An id outside the codes has no logit; ignore_index leaves such cells out, gradient and all.
    # In the order (B, S, K) the model's logits lie in memory already, and need no copy.
    targets = steps.masked_fill(~mask, -100).transpose(1, 2)
    nats = F.cross_entropy(
        logits.transpose(1, 2).flatten(0, 2).float(),
        targets.flatten(),
        reduction="none",
        ignore_index=-100,
    ).view(targets.shape)
    return nats.sum(dim=(0, 1)), mask.sum(dim=(0, 2))


def mean_nats(nats: Tensor, counts: Tensor) -> Tensor:
    """Token-weighted mean over codebooks: a scalar, nats per code."""
    return nats.sum() / counts.sum().clamp(min=1)


def bits_per_second(nats: Tensor, counts: Tensor, frame_rate: float) -> Tensor:
    """Bits that coding a second of audio would take under the model: a scalar.

    A frame holds one code a codebook, so the means of the codebooks are added up.
    """
    per_frame = (nats / counts.clamp(min=1)).sum()
    return per_frame * frame_rate / math.log(2)
