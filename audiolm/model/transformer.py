"""A decoder-only Transformer: pre-norm blocks of causal attention and a feed-forward.

Letters: B batch, S sequence steps, D model width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from audiolm.model.attention import CausalSelfAttention, CrossAttention
from audiolm.model.cache import KeyValueCache
from audiolm.model.conditioning import Conditions
from audiolm.model.feedforward import (
    FEEDFORWARDS,
    FeedForward,
    GatedFeedForward,
    feedforward_width,
)
from audiolm.model.norm import NORMS
from audiolm.model.positions import (
    CosineSinePositions,
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)

ADDED_POSITIONS: dict[str, type[SinusoidalPositions | CosineSinePositions | LearnedPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "cosine_sine": CosineSinePositions,
    "learned": LearnedPositions,
}
"""Those that are added to the input; rotary ones the attention has."""
POSITIONS = ("rotary", *ADDED_POSITIONS)


class Block(nn.Module):
    """Attention, then feed-forward, each on a normalised copy that is added back.

    Between the two, attention to a memory, such as an encoded text, where there is one.

    Args:
        attention: of the block.
        feedforward: of the block.
        embed_dim: D.
        cross_attention: to the memory.
        norm: name in `norm.NORMS`.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture" (pre-norm).
    """

    def __init__(
        self,
        attention: CausalSelfAttention,
        feedforward: GatedFeedForward | FeedForward,
        embed_dim: int,
        cross_attention: CrossAttention | None = None,
        norm: str = "rms",
    ) -> None:
        super().__init__()
        make_norm = NORMS[norm]
        self.attention_norm = make_norm(embed_dim)
        self.attention = attention
        self.cross_norm = None if cross_attention is None else make_norm(embed_dim)
        self.cross_attention = cross_attention
        self.feedforward_norm = make_norm(embed_dim)
        self.feedforward = feedforward

    def forward(
        self,
        x: Tensor,
        cache: KeyValueCache | None = None,
        text: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> Tensor:
        """(B, S, D) -> (B, S, D); `text` as `Conditions.text_of` gives it for this block."""
        x = x + self.attention(self.attention_norm(x), cache)
        if self.cross_norm is not None and self.cross_attention is not None:
            assert text is not None
            x = x + self.cross_attention(self.cross_norm(x), *text)
        return x + self.feedforward(self.feedforward_norm(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """`num_layers` blocks between positions and a last norm.

    Args:
        embed_dim: D.
        num_layers: blocks.
        num_heads: H; must divide `embed_dim`.
        max_seq_len: the longest sequence in steps.
        feedforward_dim: hidden width of the feed-forward; None takes that of `feedforward_width`.
        dropout: probability, for the outputs of attention and feed-forward.
        attn_dropout: probability, for the attention weights. Generating random numbers for the S x
            S weights of every head took a third of a training step on a CPU, so it is off unless
            asked for.
        positions: one of `POSITIONS`.
        norm: name in `norm.NORMS`.
        feedforward: name in `feedforward.FEEDFORWARDS`.
        kernel: attention's kernel, a name in `attention.KERNELS`.
        gradient_checkpointing: keep only the input of each block for the backward pass, which
            computes the rest again: about a third slower, for contexts that do not fit otherwise.
        cross_attention: whether blocks look at a memory (see `Conditions`).

    Raises:
        ValueError: for unknown positions, norm, feed-forward or kernel, or heads that do not
            divide the width.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (checkpointing).
    """

    def __init__(
        self,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        max_seq_len: int,
        feedforward_dim: int | None = None,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        positions: str = "rotary",
        norm: str = "rms",
        feedforward: str = "swiglu",
        kernel: str = "auto",
        gradient_checkpointing: bool = False,
        cross_attention: bool = False,
    ) -> None:
        super().__init__()
        if num_layers < 1 or num_heads < 1:
            raise ValueError(
                f"num_layers={num_layers} and num_heads={num_heads} must each be at least 1"
            )
        for name, value, known in (
            ("positions", positions, POSITIONS),
            ("norm", norm, NORMS),
            ("feedforward", feedforward, FEEDFORWARDS),
        ):
            if value not in known:
                raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(known)}")
        if feedforward_dim is None:
            feedforward_dim = feedforward_width(embed_dim, feedforward)
        elif not isinstance(feedforward_dim, int) or feedforward_dim < 1:
            raise ValueError(f"feedforward_dim={feedforward_dim} must be a whole number above 0")
        added = ADDED_POSITIONS.get(positions)
        self.positions = None if added is None else added(embed_dim, max_seq_len)
        blocks = []
        for _ in range(num_layers):
            rotary = None
            if positions == "rotary":
                rotary = RotaryPositions(embed_dim // num_heads, max_seq_len)
            attention = CausalSelfAttention(
                embed_dim,
                num_heads,
                max_seq_len,
                dropout=dropout,
                attn_dropout=attn_dropout,
                kernel=kernel,
                rotary=rotary,
            )
            between = FEEDFORWARDS[feedforward](embed_dim, feedforward_dim, dropout)
            cross = CrossAttention(embed_dim, num_heads, dropout) if cross_attention else None
            blocks.append(Block(attention, between, embed_dim, cross, norm))
        self.gradient_checkpointing = gradient_checkpointing
        self.max_seq_len = max_seq_len
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.last_norm = NORMS[norm](embed_dim)
        self._initialise()

    def forward(
        self,
        x: Tensor,
        caches: list[KeyValueCache] | None = None,
        conditions: Conditions | None = None,
    ) -> Tensor:
        """(B, S, D) -> (B, S, D); with one cache a block, `x` continues what they hold.

        conditions: of the B sequences, where the model has any.

        Raises:
            ValueError: when the sequence, with what the caches hold, exceeds `max_seq_len`; with
                rings and rotary positions it may.
        """
        past = caches[0].length if caches else 0
        endless = caches is not None and caches[0].ring and self.positions is None
        if past + x.shape[1] > self.max_seq_len and not endless:
            raise ValueError(
                f"a sequence of {past + x.shape[1]} steps exceeds max_seq_len={self.max_seq_len}; "
                f"shorten it, or build the model for longer ones"
            )
        if self.positions is not None:
            x = self.positions(x, past)
        if conditions is not None:
            x = x + conditions.added
        for i, block in enumerate(self.blocks):
            text = None if conditions is None else conditions.text_of(i)
            if self.gradient_checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, None, text, use_reentrant=False)
            else:
                x = block(x, None if caches is None else caches[i], text)
        return self.last_norm(x)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _initialise(self) -> None:
        """Normal weights of deviation 0.02; smaller where they are added to the residual stream.

        2 * num_layers outputs are added up (3 with a text); the factor keeps the sum's variance
        that of one.

        Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", 2.3.
        """
        residual_std = 0.02 / math.sqrt(2 * len(self.blocks))
        for name, weight in self.named_parameters():
            if weight.ndim >= 2:
                adds_to_stream = name.endswith(("o_proj.weight", "out_proj.weight"))
                nn.init.normal_(weight, std=residual_std if adds_to_stream else 0.02)
