"""Engines: what reads the steps of B samples as they become known, and gives the next logits.

A sample's logits are the same bits in every batch: passes over many steps (a prompt) go sample by
sample in every engine, and each engine has its own way for single steps.

Letters: B samples, K codebooks, V codes in a codebook.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from audiolm.model.cache import KeyValueCache
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
        """Logits (B, K, V) after codes (B, K)."""


class Reader:
    """Reads the steps of B samples in turn.

    Args:
        model: in eval mode.
        step: the engine, with empty caches.
    """

    def __init__(self, model: AudioLM, step: Step) -> None:
        self.model = model
        self.step = step

    def read(self, new: Tensor) -> Tensor:
        """Logits (B, K, V) after `new` (B, K, n), which goes on from what was read before."""
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
        logits = [self._pass(new[:1], 0)]
        for b in range(1, len(new)):
            if past == 0 and torch.equal(new[b], new[0]):
                # One prompt for all samples, the usual case, is read once.
                for cache in caches:
                    cache.keys[b, :, :count] = cache.keys[0, :, :count]
                    cache.values[b, :, :count] = cache.values[0, :, :count]
                logits.append(logits[0])
            else:
                logits.append(self._pass(new[b : b + 1], b))
        for cache in caches:
            cache.length += count
        return torch.cat(logits)

    def _pass(self, new: Tensor, row: int) -> Tensor:
        """Logits (1, K, V) after `new` (1, K, n), which one sample's caches are given."""
        rows = [cache.rows(row, row + 1) for cache in self.step.caches]
        return self.model.extend(new, rows)[:, :, -1]


class EagerStep:
    """The model itself, on any device, in blocks of `ROWS` samples.

    Args:
        model: in eval mode.
        batch, max_steps, ring: of the caches; see `AudioLM.make_caches`.
    """

    def __init__(self, model: AudioLM, batch: int, max_steps: int, ring: bool) -> None:
        self.model = model
        self.fill = -batch % ROWS
        self.caches = model.make_caches(batch + self.fill, max_steps, ring)

    def __call__(self, codes: Tensor) -> Tensor:
        """Logits (B, K, V) after codes (B, K)."""
        filled = torch.cat([codes, codes[:1].expand(self.fill, -1)])
        logits = []
        for first in range(0, len(filled), ROWS):
            rows = [cache.rows(first, first + ROWS) for cache in self.caches]
            block = filled[first : first + ROWS, :, None]
            logits.append(self.model.extend(block, rows)[:, :, -1])
        for cache in self.caches:
            cache.length += 1
        return torch.cat(logits)[: len(codes)]
