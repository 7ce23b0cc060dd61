"""The peer that one would write oneself: a plain GPT over the codes of K codebooks.

Layers of PyTorch and its fused attention, LayerNorm, GELU, learned positions, no biases. It
decodes with keys and values in memory that is allocated once, of which each step reads what is
filled.

Letters: B batch, K codebooks, S sequence steps, V codes in a codebook, D model width, H heads,
E head width.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3;
embeddings and heads of several codebooks: Copet et al. 2023, "Simple and Controllable Music
Generation", section 2.3.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from audiolm.benchmarks.sizes import PATTERN, ModelSize
from audiolm.model.patterns import deinterleave, make_pattern, num_steps, occupied_cells


class PlainBlock(nn.Module):
    """Attention of H heads, then a feed-forward of 4 D."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(embed_dim, bias=False)
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.out = nn.Linear(embed_dim, embed_dim, bias=False)
        self.feedforward_norm = nn.LayerNorm(embed_dim, bias=False)
        self.up = nn.Linear(embed_dim, 4 * embed_dim, bias=False)
        self.down = nn.Linear(4 * embed_dim, embed_dim, bias=False)

    def forward(self, x: Tensor, memory: Tensor | None, past: int) -> Tensor:
        """(B, S, D) -> (B, S, D). memory: (2, B, H, max steps, E), `past` steps of it filled."""
        batch, steps, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, steps, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, S, E)
        if memory is not None:
            memory[0, :, :, past : past + steps] = k
            memory[1, :, :, past : past + steps] = v
            k, v = memory[:, :, :, : past + steps]
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=steps > 1)
        x = x + self.out(heads.transpose(1, 2).reshape(batch, steps, width))
        return x + self.down(F.gelu(self.up(self.feedforward_norm(x))))  # type: ignore[no-any-return]


class PlainGPT(nn.Module):
    """Logits of the next codes of all codebooks. V is the id of empty cells."""

    def __init__(
        self,
        num_codebooks: int,
        codebook_size: int,
        max_seq_len: int,
        embed_dim: int,
        num_layers: int,
        num_heads: int,
    ) -> None:
        super().__init__()
        self.num_codebooks, self.codebook_size = num_codebooks, codebook_size
        self.num_heads = num_heads
        self.embeddings = nn.ModuleList(
            [nn.Embedding(codebook_size + 1, embed_dim) for _ in range(num_codebooks)]
        )
        self.positions = nn.Embedding(max_seq_len, embed_dim)
        self.blocks = nn.ModuleList([PlainBlock(embed_dim, num_heads) for _ in range(num_layers)])
        self.last_norm = nn.LayerNorm(embed_dim, bias=False)
        self.heads = nn.Linear(embed_dim, num_codebooks * codebook_size, bias=False)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, inputs: Tensor, memory: Tensor | None = None, past: int = 0) -> Tensor:
        """Ids (B, K, S) -> logits (B, S, K, V).

        memory: of `allocate`, to which the keys and values of these steps are written, after the
        `past` steps that it holds; more than one step only where that is 0.
        """
        batch, _, steps = inputs.shape
        x = self.positions.weight[past : past + steps]
        for k, embedding in enumerate(self.embeddings):
            x = x + embedding(inputs[:, k])
        for i, block in enumerate(self.blocks):
            x = block(x, None if memory is None else memory[i], past)
        logits = self.heads(self.last_norm(x))
        return logits.view(batch, steps, self.num_codebooks, self.codebook_size)  # type: ignore[no-any-return]

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean nats per code. inputs: ids (B, K, S); targets: (B, K, S), -100 where none is."""
        logits = self(inputs)
        return F.cross_entropy(logits.flatten(0, 2), targets.transpose(1, 2).flatten())

    def allocate(self, batch: int, max_steps: int) -> Tensor:
        """Empty keys and values (layers, 2, B, H, max steps, E)."""
        weight = self.heads.weight
        head_width = weight.shape[1] // self.num_heads
        shape = (len(self.blocks), 2, batch, self.num_heads, max_steps, head_width)
        return torch.zeros(shape, dtype=weight.dtype)


def plain_gpt(size: ModelSize) -> PlainGPT:
    """A `PlainGPT` of this size."""
    return PlainGPT(
        size.num_codebooks,
        size.codebook_size,
        size.num_steps,
        size.embed_dim,
        size.num_layers,
        size.num_heads,
    )


@torch.inference_mode()
def plain_decode(model: PlainGPT, prompt: Tensor, frames: int, top_k: int) -> Tensor:
    """Continue a prompt (B, K, P) to `frames` frames T, under the delay pattern: (B, K, T)."""
    batch, codebooks, given = prompt.shape
    positions = make_pattern(PATTERN, codebooks).positions(frames)
    steps = num_steps(positions)
    special = model.codebook_size
    inputs = torch.full((batch, codebooks, 1 + steps), special)
    known = positions[:, :given].expand_as(prompt)
    inputs[:, :, 1:].scatter_(2, known, prompt)
    to_sample = occupied_cells(positions).scatter_(1, positions[:, :given], False)
    memory = model.allocate(batch, steps)
    past = 0
    for step in range(given, steps):
        logits = model(inputs[:, :, past : step + 1], memory, past)[:, -1].float()  # (B, K, V)
        past = step + 1
        best, codes = logits.topk(min(top_k, special), dim=-1)
        sampled = torch.multinomial(best.softmax(dim=-1).flatten(0, 1), 1).view(batch, codebooks, 1)
        sampled = codes.gather(2, sampled)[:, :, 0]
        inputs[:, :, past] = torch.where(to_sample[:, step], sampled, inputs[:, :, past])
    return deinterleave(inputs[:, :, 1:], positions)
