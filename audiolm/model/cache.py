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

    As a `ring` it holds the last steps: when it is full, a new step takes the place of the oldest.
    Their order in memory then is not that of time, which attention does not see: a query looks at
    all of them, and rotary keys carry their position.

    Attributes:
        keys, values: (B, H, max steps, E); filled are the first `length` steps, or all.
        length: steps appended so far, also those that a ring no longer holds.
        ring: whether steps may be appended without end; otherwise `max steps` are all.
    """

    keys: Tensor
    values: Tensor
    length: int = 0
    ring: bool = False

    @classmethod
    def allocate(
        cls,
        batch: int,
        num_heads: int,
        max_steps: int,
        head_dim: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        ring: bool = False,
    ) -> KeyValueCache:
        """An empty cache for `batch` sequences of at most `max_steps` steps, or the last ones."""
        shape = (batch, num_heads, max_steps, head_dim)
        return cls(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
            ring=ring,
        )

    @property
    def max_steps(self) -> int:
        """Steps that it can hold."""
        return self.keys.shape[2]

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values (B, H, S, E) of new steps; return those of all steps held."""
        end = self.length + k.shape[2]
        # Of several steps at once the last would overwrite what the first are to see.
        assert end <= self.max_steps or (self.ring and k.shape[2] == 1)
        slot = self.length % self.max_steps
        self.keys[:, :, slot : slot + k.shape[2]] = k
        self.values[:, :, slot : slot + k.shape[2]] = v
        self.length = end
        held = min(end, self.max_steps)
        return self.keys[:, :, :held], self.values[:, :, :held]

    def rows(self, start: int, stop: int) -> KeyValueCache:
        """A cache of the sequences start ... stop - 1 that shares this one's memory.

        Its `length` is its own.
        """
        return KeyValueCache(self.keys[start:stop], self.values[start:stop], self.length, self.ring)
