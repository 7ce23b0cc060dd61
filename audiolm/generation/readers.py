"""Engines: what reads the steps of B samples as they become known, and gives the next logits.

A sample's logits are the same bits in every batch: passes over many steps (a prompt) go sample by
sample in every engine, and each engine has its own way for single steps.

Letters: B samples, K codebooks, V' predicted ids (see `language_model`).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from audiolm.model.cache import KeyValueCache
from audiolm.model.conditioning import Conditions, joined
from audiolm.model.language_model import AudioLM

# The eager engine computes samples in blocks of exactly this many, short ones filled up: a matrix
# product of another height may add in another order, and a sample would depend on its batch after
# all. Up to this many rows the weights' way through memory is the cost, so filling up is cheap.
ROWS = 8


class Step(Protocol):
    """One engine's way to read one step."""

    caches: list[KeyValueCache]
    """One a block, of B rows or more; the step goes on from them, and appends to them."""

    def __call__(self, codes: Tensor) -> Tensor:
        """Logits (B, K, V') after codes (B, K)."""


class Reader:
    """Reads the steps of B samples in turn.

    Args:
        model: in eval mode.
        step: the engine, with empty caches.
        conditions: of the B samples; None where the model has none.
    """

    def __init__(self, model: AudioLM, step: Step, conditions: Conditions | None) -> None:
        self.model = model
        self.step = step
        self.conditions = conditions

    def read(self, new: Tensor) -> Tensor:
        """Logits (B, K, V') after `new` (B, K, n), which goes on from what was read before."""
        cache = self.step.caches[0]
        at_once = min(new.shape[2], cache.max_steps - cache.length)
        if at_once > 1:
            logits = self._read_many(new[:, :, :at_once])
            new = new[:, :, at_once:]
        for codes in new.unbind(dim=2):
            logits = self.step(codes)
        return logits

    def _read_many(self, new: Tensor) -> Tensor:
        caches = self.step.caches
        past, count = caches[0].length, new.shape[2]
        logits: list[Tensor] = []
        for b in range(len(new)):
            # One prompt for all samples, told the same: the usual case is read once.
            twins = (a for a in range(b) if self._reads_same(new, a, b)) if past == 0 else iter(())
            twin = next(twins, None)
            if twin is None:
                logits.append(self._pass(new[b : b + 1], b))
                continue
            for cache in caches:
                cache.keys[b, :, :count] = cache.keys[twin, :, :count]
                cache.values[b, :, :count] = cache.values[twin, :, :count]
            logits.append(logits[twin])
        for cache in caches:
            cache.length += count
        return torch.cat(logits)

    def _reads_same(self, new: Tensor, one: int, two: int) -> bool:
        if not torch.equal(new[one], new[two]):
            return False
        return self.conditions is None or self.conditions.are_equal(one, two)

    def _pass(self, new: Tensor, row: int) -> Tensor:
        """Logits (1, K, V') after `new` (1, K, n), which one sample's caches are given."""
        rows = [cache.rows(row, row + 1) for cache in self.step.caches]
        conditions = None if self.conditions is None else self.conditions.rows(row, row + 1)
        return self.model.extend(new, rows, conditions)[:, :, -1]


class EagerStep:
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
        self.told: list[Conditions | None] = [None] * ((batch + self.fill) // ROWS)
        if conditions is not None:
            filled = joined([conditions, *[conditions.rows(0, 1)] * self.fill])
            self.told = [filled.rows(i * ROWS, (i + 1) * ROWS) for i in range(len(self.told))]

    def __call__(self, codes: Tensor) -> Tensor:
        """Logits (B, K, V') after codes (B, K)."""
        filled = torch.cat([codes, codes[:1].expand(self.fill, -1)])
        logits: list[Tensor] = []
        blocks = torch.split(filled[:, :, None], ROWS)
        for block, told in zip(blocks, self.told, strict=True):
            first = len(logits) * ROWS
            rows = [cache.rows(first, first + ROWS) for cache in self.caches]
            logits.append(self.model.extend(block, rows, told)[:, :, -1])
        for cache in self.caches:
            cache.length += 1
        return torch.cat(logits)[: len(codes)]
