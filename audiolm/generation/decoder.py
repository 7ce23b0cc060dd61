"""What reads the steps of B samples as they become known, by an engine, and gives the next logits.

A sample's logits are the same bits in every batch: passes over many steps (a prompt) go sample by
sample in every engine, and each engine has its own way for single steps.

Letters: B samples, K codebooks, V' predicted ids (see `language_model`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from audiolm.generation.engines.decode_step import DecodeStep
from audiolm.model.conditioning import Conditions
from audiolm.model.language_model import AudioLM


class Decoder:
    """Decodes B samples side by side: a prompt in one pass (prefill), then step by step.

    Args:
        model: in eval mode.
        decode_step: the engine's, with empty caches.
        conditions: of the B samples; None where the model has none.
    """

    def __init__(
        self, model: AudioLM, decode_step: DecodeStep, conditions: Conditions | None
    ) -> None:
        self.model = model
        self.decode_step = decode_step
        self.conditions = conditions

    def extend(self, new: Tensor) -> Tensor:
        """Logits (B, K, V') after `new` (B, K, n), which continues what was read before."""
        cache = self.decode_step.caches[0]
        at_once = min(new.shape[2], cache.max_steps - cache.length)
        if at_once > 1:
            logits = self._prefill(new[:, :, :at_once])
            new = new[:, :, at_once:]
        for codes in new.unbind(dim=2):
            logits = self.decode_step(codes)
        return logits

    def _prefill(self, new: Tensor) -> Tensor:
        """Logits (B, K, V') after several steps (B, K, n), each sample's read in one pass."""
        caches = self.decode_step.caches
        past, count = caches[0].length, new.shape[2]
        logits: list[Tensor] = []
        for b in range(len(new)):
            # One prompt and the same conditions for all samples: the usual case is read once.
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
        rows = [cache.rows(row, row + 1) for cache in self.decode_step.caches]
        conditions = None if self.conditions is None else self.conditions.rows(row, row + 1)
        return self.model.extend(new, rows, conditions)[:, :, -1]
