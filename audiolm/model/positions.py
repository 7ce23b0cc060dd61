"""How a step knows where it stands: rotary, sinusoidal (in two layouts) or learned positions.

Letters: B batch, H heads, S sequence steps, D model width, E head width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class RotaryPositions(nn.Module):
    """Rotates pairs of channels of queries and keys by angles that grow with the position.

    The product of a rotated query and a rotated key depends on their distance only. Channel i is
    paired with channel i + E / 2, and rotated by position / base^(2 i / E).

    Args:
        head_dim: E, even.
        max_seq_len: positions whose angles are made once; those of later ones are made when used.
        base: the slowest pair rotates once in about 2 pi * base steps.

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
        self.head_dim, self.base = head_dim, base
        cosines, sines = self._made(0, max_seq_len)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Rotate (B, H, S, E), whose steps stand at positions `first`, `first` + 1, ..."""
        cosines, sines = self.angles(first, x.shape[2])
        rotated: Tensor = _Rotate.apply(x, cosines, sines)
        return rotated

    def angles(self, first: int, steps: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each (`steps`, E), of positions `first`, `first` + 1, ..."""
        last = first + steps
        if last > len(self.cosines):
            cosines, sines = self._made(first, last)
            return cosines.to(self.cosines.device), sines.to(self.sines.device)
        return self.cosines[first:last], self.sines[first:last]

    def _made(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        # In float64 until they are cosines: float32 knows 10,000,000 radians to half a radian only.
        channels = torch.arange(0, self.head_dim, 2, dtype=torch.float64)
        frequencies = self.base ** (-channels / self.head_dim)
        angles = torch.arange(first, last, dtype=torch.float64)[:, None] * frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().float(), angles.sin().float()


class _Rotate(torch.autograd.Function):
    """x rotated by angles (S, E): its gradient is rotated back, which takes no copy of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return rotate(x, cosines, sines)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cosines, sines = ctx.saved_tensors
        return rotate(gradient, cosines, -sines), None, None


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    # In float32 whatever x is: bfloat16 has 8 bits, and angles of neighbours would coincide.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    half = x.shape[-1] // 2
    signed = torch.cat([-sines[:, :half], sines[:, half:]], dim=-1)
    return (wide * cosines).addcmul_(wide.roll(half, dims=-1), signed).to(x.dtype)


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


class CosineSinePositions(nn.Module):
    """Sinusoidal positions as MusicGen has them: all cosines first, then all sines.

    Channel i < D / 2 turns by position / 10000^(i / (D / 2 - 1)).

    Args:
        embed_dim: D, even and at least 4.
        max_seq_len: the largest number of positions.

    Raises:
        ValueError: for another `embed_dim`.

    Source: Copet et al. 2023, "Simple and Controllable Music Generation", whose code they are from.
    """

    table: Tensor

    def __init__(self, embed_dim: int, max_seq_len: int) -> None:
        super().__init__()
        if embed_dim % 2 != 0 or embed_dim < 4:
            raise ValueError(
                f"positions=cosine_sine need an even width of at least 4, not {embed_dim}; choose "
                f"another embed_dim, or positions=sinusoidal"
            )
        half = embed_dim // 2
        # In float32, unlike the others: published weights were trained on these very numbers.
        slowness = math.log(10_000) / (half - 1)
        frequencies = torch.exp(torch.arange(half).float() * -slowness)
        angles = torch.arange(max_seq_len).float()[:, None] * frequencies
        table = torch.cat([angles.cos(), angles.sin()], dim=-1)
        self.register_buffer("table", table, persistent=False)

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
