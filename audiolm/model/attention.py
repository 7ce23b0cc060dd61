"""Causal multi-head self-attention from scratch, in the order one learns it.

1. `scaled_dot_product_attention`: queries look at keys and average values.
2. `SingleHeadAttention`: the three projections that make queries, keys and values.
3. `MultiHeadAttention`: many heads side by side in one projection (non-causal, for encoders).
4. `CausalSelfAttention`: the same with a mask over the future and a key/value cache. Every block
   of the language model uses this class.
5. `CrossAttention`: queries of one sequence look at keys and values of another.

Letters: B batch, S sequence steps (of queries), L steps of keys, D model width, H heads,
E head width (D = H * E).

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from audiolm.model.blocked_attention import BlockedCausalAttention
from audiolm.model.cache import KeyValueCache
from audiolm.model.positions import RotaryPositions


class Kernel(Protocol):
    """softmax(q k^T / sqrt(E)) v: every kernel takes the same and gives the same.

    Args:
        q: queries (..., S, E).
        k: keys (..., L, E).
        v: values (..., L, E).
        mask: boolean, broadcast to (..., S, L); True hides a key from a query. No row may be
            hidden whole: its softmax would be 0 / 0.
        dropout: applied to the attention weights.
        is_causal: in place of a mask, hide from each of S queries the keys behind its own, L = S.

    Returns:
        (..., S, E).

    Source: Vaswani et al. 2017, equation 1.
    """

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        dropout: nn.Dropout | None = None,
        *,
        is_causal: bool = False,
    ) -> Tensor: ...


def future_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """(queries, keys) boolean, True above the diagonal: where a key lies in a query's future."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).triu(diagonal=1)


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Dropout | None = None,
    *,
    is_causal: bool = False,
) -> Tensor:
    """The `Kernel` as one writes it down."""
    if is_causal:
        mask = future_mask(q.shape[-2], k.shape[-2], q.device)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., S, L)
    if mask is not None:
        # exp(-inf) is exactly 0: a hidden step has no influence and no gradient, not a small one.
        scores = scores.masked_fill(mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ v


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Dropout | None = None,
    *,
    is_causal: bool = False,
) -> Tensor:
    """The `Kernel` that torch has.

    The scores are never stored whole, which saves memory that grows with S * L; on a GPU it is also
    faster, and with `is_causal` faster than with the mask itself.

    Source: Dao et al. 2022, "FlashAttention".
    """
    dropout_p = dropout.p if dropout is not None and dropout.training else 0.0
    # torch's boolean mask has the opposite sense: True is where a query may look.
    allowed = None if mask is None else ~mask
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, dropout_p=dropout_p, is_causal=is_causal
    )


def blocked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Dropout | None = None,
    *,
    is_causal: bool = False,
) -> Tensor:
    """The `Kernel` that is fastest where a CPU trains.

    Only what is causal and has no dropout goes by blocks (see `BlockedCausalAttention`); the rest
    is written out.
    """
    drops = dropout is not None and dropout.training and dropout.p > 0
    if is_causal and not drops:
        heads: Tensor = BlockedCausalAttention.apply(q, k, v)
        return heads
    return scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=is_causal)


def fastest_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Dropout | None = None,
    *,
    is_causal: bool = False,
) -> Tensor:
    """`blocked_attention` on a CPU, `fused_attention` elsewhere."""
    kernel = blocked_attention if q.device.type == "cpu" else fused_attention
    return kernel(q, k, v, mask, dropout, is_causal=is_causal)


KERNELS: dict[str, Kernel] = {
    "from_scratch": scaled_dot_product_attention,
    "fused": fused_attention,
    "blocked": blocked_attention,
    "auto": fastest_attention,
}


class SingleHeadAttention(nn.Module):
    """One head: three projections and `scaled_dot_product_attention`.

    Args:
        embed_dim: D, width of the input.
        head_dim: E, width of the head and of the output.
        bias: whether the projections have a bias.
    """

    def __init__(self, embed_dim: int, head_dim: int, bias: bool = False) -> None:
        super().__init__()
        self.q_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, head_dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, S, D) -> (B, S, E); `mask` as in `scaled_dot_product_attention`."""
        return scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)


class MultiHeadAttention(nn.Module):
    """H heads side by side: each sees its own E = D / H wide projection of the input.

    One linear layer makes q, k and v of all heads. Its 3 * D outputs are ordered by head: the
    rows of head h are h * 3E ... (h + 1) * 3E, and hold its q, its k and its v in turn.

    This non-causal form serves encoders: every step sees every other one.

    Args:
        embed_dim: D, width of input and output.
        num_heads: H; must divide `embed_dim`.
        bias: whether both projections have a bias.
        dropout: probability, for the attention weights and for the output.
        attn_dropout: probability for the attention weights, where it is to be another.
        kernel: name in `KERNELS`; the same result on the same weights.
        rotary: rotates queries and keys by their position; None leaves positions to the caller.

    Raises:
        ValueError: when `num_heads` does not divide `embed_dim`, or for an unknown kernel.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = False,
        dropout: float = 0.1,
        *,
        attn_dropout: float | None = None,
        kernel: str = "from_scratch",
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads != 0:
            raise ValueError(
                f"embed_dim={embed_dim} cannot be divided among num_heads={num_heads}; "
                f"choose a width that is a multiple of the heads"
            )
        if kernel not in KERNELS:
            raise ValueError(f"kernel={kernel!r} is unknown; choose one of {sorted(KERNELS)}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.o_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.attn_dropout = nn.Dropout(dropout if attn_dropout is None else attn_dropout)
        self.resid_dropout = nn.Dropout(dropout)
        self.kernel: Kernel = KERNELS[kernel]
        self.rotary = rotary

    def split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, S, D) -> q, k, v, each (B, H, S, E)."""
        batch, steps, _ = x.shape
        qkv = self.qkv_proj(x).view(batch, steps, self.num_heads, 3 * self.head_dim)
        q, k, v = qkv.transpose(1, 2).chunk(3, dim=-1)
        return q, k, v

    def join_heads(self, heads: Tensor) -> Tensor:
        """(B, H, S, E) -> (B, S, D), mixed by the output projection."""
        batch, _, steps, _ = heads.shape
        joined = heads.transpose(1, 2).reshape(batch, steps, self.embed_dim)
        return self.resid_dropout(self.o_proj(joined))  # type: ignore[no-any-return]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, S, D) -> (B, S, D); `mask` (boolean, broadcast to (B, H, S, S)) hides keys."""
        q, k, v = self.split_heads(x)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        return self.join_heads(self.kernel(q, k, v, mask, self.attn_dropout))


class CausalSelfAttention(MultiHeadAttention):
    """Multi-head attention in which no step sees a later one.

    Args:
        embed_dim: D, width of input and output.
        num_heads: H; must divide `embed_dim`.
        max_seq_len: the longest sequence, in steps; the causal mask is made for it once.
        bias: whether both projections have a bias.
        dropout: probability, for the attention weights and for the output.
        attn_dropout: probability for the attention weights, where it is to be another.
        kernel: name in `KERNELS`.
        rotary: rotates queries and keys by their position.

    Raises:
        ValueError: when `num_heads` does not divide `embed_dim`, or for an unknown kernel.
    """

    causal_mask: Tensor

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        max_seq_len: int,
        bias: bool = False,
        dropout: float = 0.1,
        *,
        attn_dropout: float | None = None,
        kernel: str = "from_scratch",
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            bias,
            dropout,
            attn_dropout=attn_dropout,
            kernel=kernel,
            rotary=rotary,
        )
        self.max_seq_len = max_seq_len
        future = future_mask(max_seq_len, max_seq_len)
        # Not persistent: it follows from max_seq_len, and would be the largest tensor in a file.
        self.register_buffer("causal_mask", future, persistent=False)
        self.register_load_state_dict_pre_hook(_drop_causal_mask)  # type: ignore[no-untyped-call]

    def forward(  # type: ignore[override]
        self, x: Tensor, cache: KeyValueCache | None = None
    ) -> Tensor:
        """(B, S, D) -> (B, S, D).

        With a `cache`, `x` continues the steps already in it: it is appended, and sees them.

        Raises:
            ValueError: when the sequence, with what the cache holds, exceeds `max_seq_len` and
                the cache is not a ring.
        """
        steps = x.shape[1]
        past = 0 if cache is None else cache.length
        total = past + steps
        if total > self.max_seq_len and not (cache is not None and cache.ring):
            raise ValueError(
                f"a sequence of {total} steps exceeds max_seq_len={self.max_seq_len}; "
                f"shorten it, or build the model for longer ones"
            )
        q, k, v = self.split_heads(x)
        if self.rotary is not None:
            q, k = self.rotary(q, past), self.rotary(k, past)
        if cache is not None:
            k, v = cache.update(k, v)
        # One query sees every key there is, so it needs no mask.
        from_the_start = steps > 1 and past == 0
        mask = self.causal_mask[past:total, :total] if steps > 1 and past > 0 else None
        heads = self.kernel(q, k, v, mask, self.attn_dropout, is_causal=from_the_start)
        return self.join_heads(heads)


class CrossAttention(nn.Module):
    """Multi-head attention of a sequence to a memory, such as an encoded text.

    The memory's keys and values are made once (`read`), and looked at by every step.

    Args:
        embed_dim: D, width of the sequence, the memory and the output.
        num_heads: H; must divide `embed_dim`.
        dropout: probability, for the output.

    Source: Vaswani et al. 2017, section 3.2.3 (encoder-decoder attention).
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.kv_proj = nn.Linear(embed_dim, 2 * embed_dim, bias=False)
        self.o_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.resid_dropout = nn.Dropout(dropout)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, D) -> keys and values, each (B, H, L, E)."""
        k, v = (self._heads(part) for part in self.kv_proj(memory).chunk(2, dim=-1))
        return k, v

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D); `hidden` (B, 1, 1, L) is True over padding of the memory."""
        heads = fastest_attention(self._heads(self.q_proj(x)), keys, values, hidden)
        joined = heads.transpose(1, 2).flatten(2)
        return self.resid_dropout(self.o_proj(joined))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        """(B, S, D) -> (B, H, S, E)."""
        batch, steps, _ = x.shape
        return x.view(batch, steps, self.num_heads, -1).transpose(1, 2)


def _drop_causal_mask(
    module: nn.Module, state_dict: dict[str, Tensor], prefix: str, *_: object
) -> None:
    """Accept state dicts of modules that store the mask; ours is made, not loaded."""
    state_dict.pop(prefix + "causal_mask", None)
