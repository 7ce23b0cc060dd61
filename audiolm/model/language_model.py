"""The autoregressive language model over audio tokens.

Ids of a codebook's embeddings and outputs, with and without an end token:

    0 ... V - 1     codes                            embedded, predicted
    V               end token (EOS) of the clip      embedded, predicted (by codebook 0)
    V + 1, or V     special: a cell of no code       embedded only

Letters: B batch, K codebooks, S sequence steps, V codes in a codebook, V' predicted ids (V, or
V + 1 with an end token), D model width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from audiolm.model.cache import KeyValueCache
from audiolm.model.conditioning import Conditioner, Conditions
from audiolm.model.transformer import Transformer


class AudioLM(nn.Module):
    """Predicts the K codes of each step from the steps before it.

    K embeddings of a step are summed, a Transformer reads the sums, and K heads give logits. The
    embeddings share one table and the heads one matrix, in which codebook k has its own rows.

    Args:
        num_codebooks: K.
        codebook_size: V.
        max_seq_len: the longest sequence in steps.
        embed_dim: D.
        num_layers: Transformer blocks.
        num_heads: attention heads; must divide `embed_dim`.
        feedforward_dim: hidden width of the feed-forward; None takes 8/3 D, of a plain one 4 D.
        dropout: probability, on the summed embeddings and inside the blocks.
        attn_dropout: probability, on the attention weights (see `Transformer`).
        positions: "rotary", "sinusoidal", "cosine_sine" or "learned".
        norm: "rms" or "layer".
        feedforward: "swiglu" or "gelu".
        kernel: attention's kernel, a name in `attention.KERNELS`.
        gradient_checkpointing: trade time for memory (see `Transformer`).
        end_token: whether an end token (EOS) is predicted behind a clip.
        conditioner: makes vectors of the conditions; None for an unconditional model.

    Attributes:
        num_outputs: V'.
        special: the id of empty cells (see `patterns`).

    Raises:
        ValueError: for heads that do not divide the width, and names that are unknown.
    """

    offsets: Tensor

    def __init__(
        self,
        num_codebooks: int,
        codebook_size: int,
        max_seq_len: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
        feedforward_dim: int | None = None,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        positions: str = "rotary",
        norm: str = "rms",
        feedforward: str = "swiglu",
        kernel: str = "auto",
        gradient_checkpointing: bool = False,
        end_token: bool = False,
        conditioner: Conditioner | None = None,
    ) -> None:
        super().__init__()
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        self.max_seq_len = max_seq_len
        self.end_token = end_token
        self.num_outputs = codebook_size + end_token
        self.special = self.num_outputs
        rows = self.special + 1
        self.embedding = nn.Embedding(num_codebooks * rows, embed_dim)
        self.register_buffer(
            "offsets", torch.arange(num_codebooks)[:, None] * rows, persistent=False
        )
        self.dropout = nn.Dropout(dropout)
        self.transformer = Transformer(
            embed_dim,
            num_layers,
            num_heads,
            max_seq_len,
            feedforward_dim=feedforward_dim,
            dropout=dropout,
            attn_dropout=attn_dropout,
            positions=positions,
            norm=norm,
            feedforward=feedforward,
            kernel=kernel,
            gradient_checkpointing=gradient_checkpointing,
            cross_attention=conditioner is not None and conditioner.has_memory,
        )
        self.conditioner = conditioner
        self.heads = nn.Linear(embed_dim, num_codebooks * self.num_outputs, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        # The last norm hands on vectors of length sqrt(D): logits of deviation 0.2 start the loss
        # at ln V' + 0.02 nats for every width.
        nn.init.normal_(self.heads.weight, std=0.2 / math.sqrt(embed_dim))

    def forward(self, steps: Tensor, conditions: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logits for the ids in `steps`, each from the steps before it.

        Args:
            steps: (B, K, S) ids as `patterns.interleave` lays them out.
            conditions: of the B sequences, as in `conditioning`; None where the model has none.

        Returns:
            (B, K, S, V'): [:, k, s] predicts [:, k, s] of `steps`, having seen steps 0 ... s - 1.

        Raises:
            ValueError: when S exceeds `max_seq_len`.
        """
        given = None if conditions is None else self.condition(conditions)
        logits = self.extend(shift_right(steps, self.special), conditions=given)
        return self.without_impossible_end_tokens(logits)

    def condition(self, conditions: Mapping[str, Tensor]) -> Conditions:
        """What the decoder is given of B recordings, made once for all steps of theirs."""
        assert self.conditioner is not None
        conditions = {name: c.to(self.heads.weight.device) for name, c in conditions.items()}
        added, memory, hidden = self.conditioner(conditions)
        if memory is None:
            return Conditions(added, [], None)
        blocks = [block.cross_attention for block in self.transformer.blocks]
        return Conditions(added, [b.read(memory) for b in blocks if b is not None], hidden)

    def extend(
        self,
        inputs: Tensor,
        caches: list[KeyValueCache] | None = None,
        conditions: Conditions | None = None,
    ) -> Tensor:
        """Logits for what follows each of the inputs.

        Args:
            inputs: (B, K, S) ids; the first input of a sequence is the special one.
            caches: one a block, holding the inputs before these; they are appended to.
            conditions: from `condition`.

        Returns:
            (B, K, S, V'), before `without_impossible_end_tokens`.
        """
        batch, _, steps = inputs.shape
        x = self.embedding(inputs + self.offsets).sum(dim=1)  # (B, S, D)
        x = self.transformer(self.dropout(x), caches, conditions)
        logits = self.heads(x).view(batch, steps, self.num_codebooks, self.num_outputs)
        return logits.transpose(1, 2)  # type: ignore[no-any-return]

    def without_impossible_end_tokens(self, logits: Tensor) -> Tensor:
        """Logits (B, K, ..., V') in which no codebook but the first can hold the end token.

        In place: they are large, and nothing needs them as they were.
        """
        if self.end_token:
            logits[:, 1:, ..., self.codebook_size] = -math.inf
        return logits

    def make_caches(
        self, batch: int, max_steps: int | None = None, ring: bool = False
    ) -> list[KeyValueCache]:
        """Empty caches, one a block, on the model's device and in its type."""
        weight = self.heads.weight
        trunk = self.transformer
        return [
            KeyValueCache.allocate(
                batch,
                trunk.num_heads,
                max_steps or self.max_seq_len,
                trunk.head_dim,
                weight.device,
                weight.dtype,
                ring,
            )
            for _ in trunk.blocks
        ]


def shift_right(steps: Tensor, special: int) -> Tensor:
    """(B, K, S) -> (B, K, S): what the model has read when it predicts each step."""
    start = torch.full_like(steps[:, :, :1], special)
    return torch.cat([start, steps[:, :, :-1]], dim=2)


def count_parameters(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
