"""What a model is conditioned on beside the codes: labels, a text, a vector, a sequence of them.

Conditions travel as plain tensors, of B recordings:

    labels   (B, columns) int64   the number of a name in each categorical column; 0: none
    text     (B, L) int64         START, then the numbers of characters, then PADDING;
                                  START alone: none
    vector   (B, F) float32       a precomputed embedding; NaN: none
    sequence (B, L, F) float32    vectors, such as an encoder's of a text, then NaN for padding; NaN
                                  alone: none

A model turns them into `Conditions` once, for all of its steps. Labels, vector and the mean of the
encoded text are added to the input of every step: so the decoder needs no steps for them, and they
are not forgotten in recordings without end. Text is encoded by Transformer blocks that are not
causal, and every block of the decoder looks at it by cross-attention besides. A sequence of vectors
is only looked at, as in MusicGen: one linear layer makes them as wide as the model.

Letters: B batch, L length of a text or a sequence, F numbers of a vector, S sequence steps, D model
width, H heads, E head width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from audiolm.model.attention import MultiHeadAttention
from audiolm.model.feedforward import GatedFeedForward, feedforward_width
from audiolm.model.norm import RMSNorm
from audiolm.model.positions import SinusoidalPositions

PADDING, START = 0, 1
"""Ids of a text that are not characters; these count from `FIRST_CHARACTER`."""
FIRST_CHARACTER = 2


@dataclass
class Conditions:
    """What the decoder is given of B recordings.

    Attributes:
        added: (B, 1, D), to the input of every step.
        memory: keys and values (B, H, L, E) of the text or sequence, one pair a block; or empty.
        hidden: (B, 1, 1, L) boolean, True over padding, which is at the end; None without memory.
    """

    added: Tensor
    memory: Sequence[tuple[Tensor, Tensor]]
    hidden: Tensor | None

    def text_of(self, block: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """Keys, values and mask of the memory that this block looks at; None without one."""
        if self.hidden is None:
            return None
        return (*self.memory[block], self.hidden)

    def rows(self, start: int, stop: int) -> Conditions:
        """Those of the recordings start ... stop - 1."""
        return Conditions(
            self.added[start:stop],
            [(keys[start:stop], values[start:stop]) for keys, values in self.memory],
            None if self.hidden is None else self.hidden[start:stop],
        )

    def are_equal(self, one: int, two: int) -> bool:
        """Whether two of the recordings are given the same."""
        text = [] if self.hidden is None else [self.hidden, *(k for k, _ in self.memory)]
        return all(torch.equal(tensor[one], tensor[two]) for tensor in (self.added, *text))


def joined(parts: Sequence[Conditions]) -> Conditions:
    """The conditions of several batches, whose texts are padded to one length, as one."""
    hidden = [part.hidden for part in parts if part.hidden is not None]
    blocks = zip(*(part.memory for part in parts), strict=True)
    return Conditions(
        torch.cat([part.added for part in parts]),
        [
            (torch.cat([keys for keys, _ in pairs]), torch.cat([values for _, values in pairs]))
            for pairs in blocks
        ],
        torch.cat(hidden) if hidden else None,
    )


def null_conditions(conditions: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Null conditions, of as many recordings: what an unconditional pass reads."""
    return _without(conditions, torch.ones(1, 1, dtype=torch.bool))


def drop_conditions(conditions: Mapping[str, Tensor], probability: float) -> dict[str, Tensor]:
    """Drop conditions at random, so that a model learns to do without.

    With this probability all of a recording's, for classifier-free guidance, which compares with
    the unconditional model. Where there are several, also each on its own: so any of them
    may be omitted when generating.

    Source: Ho & Salimans 2022, "Classifier-Free Diffusion Guidance", section 3.2.
    """
    several = sum(c.shape[1] if name == "labels" else 1 for name, c in conditions.items()) > 1
    batch = len(next(iter(conditions.values())))
    everything = torch.rand(batch, 1) < probability
    kept: dict[str, Tensor] = {}
    for name, values in conditions.items():
        columns = values.shape[1] if name == "labels" else 1
        dropped = everything.expand(batch, columns)
        if several:
            dropped = dropped | (torch.rand(batch, columns) < probability)
        kept |= _without({name: values}, dropped)
    return kept


def _without(conditions: Mapping[str, Tensor], dropped: Tensor) -> dict[str, Tensor]:
    """Conditions but for those `dropped`, boolean (B, 1) or, of labels, (B, columns)."""
    kept = {}
    for name, values in conditions.items():
        here = dropped.to(values.device)
        if name == "text":
            here = here & (torch.arange(values.shape[1], device=values.device) > 0)  # keeps START
        if name == "sequence":
            here = here[:, :, None]
        kept[name] = values.masked_fill(here, float("nan") if values.is_floating_point() else 0)
    return kept


class EncoderBlock(nn.Module):
    """Attention that sees the whole text, then feed-forward; see `transformer.Block`."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(embed_dim)
        self.attention = MultiHeadAttention(
            embed_dim, num_heads, dropout=dropout, attn_dropout=0.0, kernel="auto"
        )
        self.feedforward_norm = RMSNorm(embed_dim)
        self.feedforward = GatedFeedForward(embed_dim, feedforward_width(embed_dim), dropout)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D); `hidden` (B, 1, 1, L) is True over padding."""
        x = x + self.attention(self.attention_norm(x), hidden)
        return x + self.feedforward(self.feedforward_norm(x))  # type: ignore[no-any-return]


class TextEncoder(nn.Module):
    """Characters to vectors that know their neighbours and their position.

    Args:
        num_characters: of the alphabet.
        max_len: of the longest text, START included.
        embed_dim: D.
        num_layers: blocks.
        num_heads: H; must divide D.
        dropout: probability.
    """

    def __init__(
        self,
        num_characters: int,
        max_len: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.max_len = max_len
        # Of deviation 1, that the sines and cosines of the positions do not drown them.
        self.embedding = nn.Embedding(FIRST_CHARACTER + num_characters, embed_dim)
        self.positions = SinusoidalPositions(embed_dim, max_len)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(embed_dim, num_heads, dropout) for _ in range(num_layers)
        )
        self.last_norm = RMSNorm(embed_dim)
        for name, weight in self.blocks.named_parameters():
            if weight.ndim >= 2:
                outputs = name.endswith(("o_proj.weight", "out_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * num_layers) ** 0.5 if outputs else 0.02)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """Ids (B, L) to vectors (B, L, D) and the mask (B, 1, 1, L), True over padding."""
        hidden = (text == PADDING)[:, None, None, :]
        x = self.dropout(self.positions(self.embedding(text)))
        for block in self.blocks:
            x = block(x, hidden)
        return self.last_norm(x), hidden


class Conditioner(nn.Module):
    """Makes vectors of conditions.

    Args:
        embed_dim: D.
        label_sizes: names in each categorical column.
        vector_size: F; 0 for no vector.
        num_characters: of the text's alphabet; 0 for no text.
        max_text_len: characters of the longest text.
        text_layers: blocks of the text's encoder.
        num_heads: H, of these; must divide D.
        dropout: probability, in the text's encoder.
        sequence_size: F of a sequence of vectors; 0 for none.
        max_sequence_len: vectors of the longest sequence.

    Raises:
        ValueError: for a text and a sequence: blocks look at one memory.
    """

    def __init__(
        self,
        embed_dim: int,
        label_sizes: Sequence[int] = (),
        vector_size: int = 0,
        num_characters: int = 0,
        max_text_len: int = 0,
        text_layers: int = 2,
        num_heads: int = 4,
        dropout: float = 0.0,
        sequence_size: int = 0,
        max_sequence_len: int = 0,
    ) -> None:
        super().__init__()
        if num_characters and sequence_size:
            raise ValueError(
                "a model looks at a text or at a sequence of vectors, not at both; leave out "
                "conditioning.text or conditioning.sequence"
            )
        self.embed_dim = embed_dim
        self.label_sizes = tuple(label_sizes)
        self.vector_size = vector_size
        # One table, in which each column has its own rows, its first one for "none".
        rows = [1 + size for size in self.label_sizes]
        firsts = torch.tensor([sum(rows[:i]) for i in range(len(rows))], dtype=torch.long)
        self.firsts: Tensor
        self.register_buffer("firsts", firsts, persistent=False)
        self.labels = nn.Embedding(sum(rows), embed_dim) if rows else None
        self.vector = nn.Linear(vector_size, embed_dim) if vector_size else None
        self.no_vector = nn.Parameter(torch.zeros(embed_dim)) if vector_size else None
        self.text = (
            TextEncoder(
                num_characters, 1 + max_text_len, embed_dim, text_layers, num_heads, dropout
            )
            if num_characters
            else None
        )
        self.summary = nn.Linear(embed_dim, embed_dim, bias=False) if num_characters else None
        self.max_sequence_len = max_sequence_len
        self.sequence = nn.Linear(sequence_size, embed_dim) if sequence_size else None
        # What is added starts no larger than the embeddings of the codes, which it would drown.
        if self.summary is not None:
            nn.init.normal_(self.summary.weight, std=0.02 / embed_dim**0.5)
        if self.labels is not None:
            nn.init.normal_(self.labels.weight, std=0.02)
        if self.vector is not None:
            nn.init.normal_(self.vector.weight, std=0.02 / vector_size**0.5)
            nn.init.zeros_(self.vector.bias)

    @property
    def has_memory(self) -> bool:
        """Whether the decoder's blocks have something to look at."""
        return self.text is not None or self.sequence is not None

    def forward(
        self, conditions: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What is added to every step (B, 1, D), what is looked at (B, L, D) and its mask.

        The mask is (B, 1, 1, L), True over padding; the two are None without text and sequence.
        """
        parts, memory, hidden = [], None, None
        if self.labels is not None:
            parts.append(self.labels(conditions["labels"] + self.firsts).sum(dim=1))
        if self.vector is not None and self.no_vector is not None:
            vector = conditions["vector"]
            given = torch.isfinite(vector).all(dim=1, keepdim=True)
            made = self.vector(vector.nan_to_num().to(self.vector.weight.dtype))
            parts.append(torch.where(given, made, self.no_vector))
        if self.text is not None and self.summary is not None:
            memory, hidden = self.text(conditions["text"])
            letters = ~hidden[:, 0, 0, :, None]
            parts.append(self.summary((memory * letters).sum(dim=1) / letters.sum(dim=1)))
        if self.sequence is not None:
            memory, hidden = self._read_sequence(self.sequence, conditions["sequence"])
        if not parts:
            batch = len(next(iter(conditions.values())))
            parts = [self.firsts.new_zeros(batch, self.embed_dim, dtype=self._dtype)]
        return torch.stack(parts).sum(dim=0)[:, None], memory, hidden

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def _read_sequence(self, layer: nn.Linear, sequence: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, F) to (B, L, D) and the mask (B, 1, 1, L).

        Where there is none, one vector of zeros is looked at: values have no bias, so that the
        attention then adds nothing, as in MusicGen's unconditional pass.
        """
        padding = ~torch.isfinite(sequence).all(dim=2)
        vectors = layer(sequence.nan_to_num(0.0, 0.0, 0.0).to(layer.weight.dtype))
        vectors = vectors.masked_fill(padding[:, :, None], 0.0)
        hidden = padding.clone()
        hidden[:, 0] = False  # a softmax needs something to look at
        return vectors, hidden[:, None, None, :]

    def nothing(self, batch: int) -> dict[str, Tensor]:
        """Null conditions of `batch` recordings."""
        conditions = {}
        if self.labels is not None:
            conditions["labels"] = torch.zeros(batch, len(self.label_sizes), dtype=torch.long)
        if self.vector is not None:
            conditions["vector"] = torch.full((batch, self.vector_size), float("nan"))
        if self.text is not None:
            conditions["text"] = torch.full((batch, 1), START)
        if self.sequence is not None:
            shape = (batch, 1, self.sequence.in_features)
            conditions["sequence"] = torch.full(shape, float("nan"))
        return conditions
