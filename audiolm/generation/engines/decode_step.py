"""What an engine is to the decoder: one way to decode one step.

Letters: B samples, K codebooks, V' predicted ids (see `language_model`).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from audiolm.model.cache import KeyValueCache


class DecodeStep(Protocol):
    """One engine's way to decode one step."""

    caches: list[KeyValueCache]
    """One a block, of B rows or more; the step continues from them, and appends to them."""

    def __call__(self, codes: Tensor) -> Tensor:
        """Logits (B, K, V') after codes (B, K)."""
