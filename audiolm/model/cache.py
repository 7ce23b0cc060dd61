"""Keys and values of the steps so far, so that a new step costs one step's work.

Letters: B batch, H heads, S sequence steps, E head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class KeyValueCache:
    """The keys and values of one attention layer, in memory that is allocated once.

    Attributes:
        keys, values: (B, H, max steps, E); only the first `length` steps are filled.
        length: steps filled so far.
    """

    keys: Tensor
    values: Tensor
    length: int = 0

    @classmethod
    def allocate(
        cls,
        batch: int,
        num_heads: int,
        max_steps: int,
        head_dim: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> KeyValueCache:
        """An empty cache for `batch` sequences of at most `max_steps` steps."""
        shape = (batch, num_heads, max_steps, head_dim)
        return cls(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
        )

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values (B, H, S, E) of new steps; return those of all steps."""
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def rows(self, start: int, stop: int) -> KeyValueCache:
        """A cache of the sequences start ... stop - 1 that shares this one's memory.

        Its `length` is its own.
        """
        return KeyValueCache(self.keys[start:stop], self.values[start:stop], self.length)
