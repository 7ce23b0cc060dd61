"""The eager engine: the model as it is.

Letters: B samples, K codebooks, V' predicted ids (see `language_model`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from audiolm.model.conditioning import Conditions, joined
from audiolm.model.language_model import AudioLM

# The eager engine computes samples in blocks of exactly this many, short ones filled up: a matrix
# product of another height may add in another order, and a sample would depend on its batch after
# all. Up to this many rows the weights' way through memory is the cost, so filling up is cheap.
ROWS = 8


class EagerDecodeStep:
    """The model itself, on any device, in blocks of `ROWS` samples.

    Args:
        model: in eval mode.
        batch, max_steps, ring: of the caches; see `AudioLM.make_caches`.
        conditions: of the samples; None where the model has none.
    """

    def __init__(
        self,
        model: AudioLM,
        batch: int,
        max_steps: int,
        ring: bool,
        conditions: Conditions | None,
    ) -> None:
        self.model = model
        self.fill = -batch % ROWS
        self.caches = model.make_caches(batch + self.fill, max_steps, ring)
        # Of each block, cut once: a step is too short for it.
        self.conditions: list[Conditions | None] = [None] * ((batch + self.fill) // ROWS)
        if conditions is not None:
            filled = joined([conditions, *[conditions.rows(0, 1)] * self.fill])
            self.conditions = [
                filled.rows(i * ROWS, (i + 1) * ROWS) for i in range(len(self.conditions))
            ]

    def __call__(self, codes: Tensor) -> Tensor:
        """Logits (B, K, V') after codes (B, K)."""
        filled = torch.cat([codes, codes[:1].expand(self.fill, -1)])
        logits: list[Tensor] = []
        blocks = torch.split(filled[:, :, None], ROWS)
        for block, conditions in zip(blocks, self.conditions, strict=True):
            first = len(logits) * ROWS
            rows = [cache.rows(first, first + ROWS) for cache in self.caches]
            logits.append(self.model.extend(block, rows, conditions)[:, :, -1])
        for cache in self.caches:
            cache.length += 1
        return torch.cat(logits)[: len(codes)]
