"""The feed-forward of every block: gated, or plain.

Letters: B batch, S sequence steps, D model width.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn


class GatedFeedForward(nn.Module):
    """SwiGLU: out(silu(gate(x)) * value(x)), gate and value in one matrix.

    Args:
        embed_dim: D, width of input and output.
        hidden_dim: width between.
        dropout: probability, for the output.

    Source: Shazeer 2020, "GLU Variants Improve Transformer".
    """

    def __init__(self, embed_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        self.in_proj = nn.Linear(embed_dim, 2 * hidden_dim, bias=False)
        self.out_proj = nn.Linear(hidden_dim, embed_dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        gate, value = self.in_proj(x).chunk(2, dim=-1)
        return self.dropout(self.out_proj(F.silu(gate) * value))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """out(gelu(in(x))), with the GELU of the error function and without biases, as in MusicGen.

    Args:
        embed_dim: D, width of input and output.
        hidden_dim: width between.
        dropout: probability, for the output.

    Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".
    """

    def __init__(self, embed_dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        self.in_proj = nn.Linear(embed_dim, hidden_dim, bias=False)
        self.out_proj = nn.Linear(hidden_dim, embed_dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        return self.dropout(self.out_proj(F.gelu(self.in_proj(x))))  # type: ignore[no-any-return]


FEEDFORWARDS: dict[str, type[GatedFeedForward | FeedForward]] = {
    "swiglu": GatedFeedForward,
    "gelu": FeedForward,
}


def feedforward_width(embed_dim: int, feedforward: str = "swiglu") -> int:
    """The hidden width of a feed-forward of 8 D^2 parameters: 4 D of the plain one.

    Of the gated one, which has three matrices, 8/3 D, rounded up to a multiple of 32.
    """
    return 4 * embed_dim if feedforward == "gelu" else 32 * math.ceil(8 * embed_dim / 3 / 32)
