"""How a step knows where it stands: rotary, sinusoidal or learned positions.

Letters: B batch, H heads, S sequence steps, D model width, E head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RotaryPositions(nn.Module):
    """Turns pairs of channels of queries and keys by angles that grow with the position.

    The product of a turned query and a turned key depends on their distance only. Channel i is
    paired with channel i + E / 2, and turned by position / base^(2 i / E).

    Args:
        head_dim: E, even.
        max_seq_len: the largest number of positions.
        base: the slowest pair turns once in about 2 pi * base steps.

    Raises:
        ValueError: for an odd `head_dim`.

    Source: Su et al. 2021, "RoFormer", section 3.2.2.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, head_dim: int, max_seq_len: int, base: float = 10_000.0) -> None:
        super().__init__()
        if head_dim % 2 != 0:
            raise ValueError(
                f"rotary positions need an even head width, not {head_dim}; "
                f"choose another width or number of heads, or positions=sinusoidal"
            )
        frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = torch.arange(max_seq_len, dtype=torch.float64)[:, None] * frequencies
        angles = torch.cat([angles, angles], dim=-1)  # (max_seq_len, E)
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Turn (B, H, S, E), whose steps stand at positions `first`, `first` + 1, ..."""
        steps = x.shape[2]
        cosines = self.cosines[first : first + steps]
        sines = self.sines[first : first + steps]
        one, other = x.float().chunk(2, dim=-1)
        turned = torch.cat([-other, one], dim=-1)
        # In float32 whatever x is: bfloat16 has 8 bits, and angles of neighbours would coincide.
        return (x.float() * cosines + turned * sines).to(x.dtype)


class SinusoidalPositions(nn.Module):
    """Adds sines and cosines of the position to the input, and learns nothing.

    Args:
        embed_dim: D.
        max_seq_len: the largest number of positions.

    Source: Vaswani et al. 2017, section 3.5.
    """

    table: Tensor

    def __init__(self, embed_dim: int, max_seq_len: int) -> None:
        super().__init__()
        channels = torch.arange(0, embed_dim, 2, dtype=torch.float64)
        frequencies = 10_000.0 ** (-channels / embed_dim)
        angles = torch.arange(max_seq_len, dtype=torch.float64)[:, None] * frequencies
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :embed_dim]
        self.register_buffer("table", table.float(), persistent=False)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Add positions `first`, `first` + 1, ... to (B, S, D)."""
        return x + self.table[first : first + x.shape[1]]


class LearnedPositions(nn.Module):
    """Adds one learned vector a position to the input.

    Args:
        embed_dim: D.
        max_seq_len: the largest number of positions.
    """

    def __init__(self, embed_dim: int, max_seq_len: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_seq_len, embed_dim)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Add positions `first`, `first` + 1, ... to (B, S, D)."""
        return x + self.table.weight[first : first + x.shape[1]]
