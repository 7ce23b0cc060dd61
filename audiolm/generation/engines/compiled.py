"""The decode step of fixed shapes, through torch.compile: for GPUs, where launching is the cost.

Letters: B batch rows, K codebooks, V' predicted ids, D model width, H heads, E head width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from audiolm.model.attention import fused_attention
from audiolm.model.conditioning import Conditions
from audiolm.model.language_model import AudioLM
from audiolm.model.positions import rotate


class CompiledDecodeStep:
    """Reads one step of B rows: everything has one shape, and where the step stands is a tensor.

    Attention looks at the whole cache, with a mask over what is not filled yet. The first call
    compiles, which takes from half a minute to some minutes; later ones of the same shapes, also
    of another `CompiledDecodeStep` of this process, do not.

    Args:
        model: in eval mode.
        batch, max_steps, ring: of the caches; see `AudioLM.make_caches`.
        conditions: of the samples; None where the model has none.
    """

    def __init__(
        self,
        model: AudioLM,
        batch: int,
        max_steps: int,
        ring: bool,
        conditions: Conditions | None,
    ) -> None:
        self.model = model
        self.texts = [
            conditions and conditions.text_of(i) for i in range(len(model.transformer.blocks))
        ]
        self.caches = model.make_caches(batch, max_steps, ring)
        for cache in self.caches:  # at the same place in every call, which CUDA graphs need
            torch._dynamo.mark_static_address(cache.keys)
            torch._dynamo.mark_static_address(cache.values)
        device = model.heads.weight.device
        self.slots = torch.arange(max_steps, device=device)
        self.added = model.transformer.positions
        self.rotary = model.transformer.blocks[0].attention.rotary
        self.origin = torch.zeros(1, 1, model.embedding.embedding_dim, device=device)
        if conditions is not None:
            self.origin = conditions.added  # added as positions are

    def __call__(self, codes: Tensor) -> Tensor:
        """Logits (B, K, V') after codes (B, K), the next step of the caches."""
        past, max_steps = self.caches[0].length, self.caches[0].max_steps
        assert past < max_steps or self.caches[0].ring
        position = self.origin if self.added is None else self.added(self.origin, past)
        angles = None if self.rotary is None else self.rotary.angles(past, 1)
        slot = past % max_steps
        logits = _compiled()(
            self.model,
            [cache.keys for cache in self.caches],
            [cache.values for cache in self.caches],
            codes,
            self.slots[slot : slot + 1],
            (self.slots > past)[None],
            position,
            angles,
            self.texts,
        )
        for cache in self.caches:
            cache.length += 1
        return logits.clone()  # a CUDA graph writes its next result to the same place


def decode_step(
    model: AudioLM,
    keys: list[Tensor],
    values: list[Tensor],
    codes: Tensor,
    slot: Tensor,
    hidden: Tensor,
    position: Tensor,
    angles: tuple[Tensor, Tensor] | None,
    texts: list[tuple[Tensor, Tensor, Tensor] | None],
) -> Tensor:
    """Logits (B, K, V') after codes (B, K): `model.extend` for one step, without numbers of Python.

    Args:
        keys, values: one a block, (B, H, max steps, E); the step's are written into them.
        slot: (1,) int64, where they go.
        hidden: (1, max steps) boolean, True where nothing has been written yet.
        position: (1, 1, D) or (B, 1, D), added to the input.
        angles: cosines and sines (1, E) of rotary positions, or None.
        texts: one a block; see `Conditions.text_of`.
    """
    x = model.embedding(codes[:, :, None] + model.offsets).sum(dim=1) + position  # (B, 1, D)
    blocks = model.transformer.blocks
    for block, block_keys, block_values, text in zip(blocks, keys, values, texts, strict=True):
        attention = block.attention
        q, k, v = attention.split_heads(block.attention_norm(x))
        if angles is not None:
            q, k = rotate(q, *angles), rotate(k, *angles)
        block_keys.index_copy_(2, slot, k)
        block_values.index_copy_(2, slot, v)
        heads = fused_attention(q, block_keys, block_values, hidden)
        x = x + attention.join_heads(heads)
        if block.cross_norm is not None and block.cross_attention is not None and text is not None:
            x = x + block.cross_attention(block.cross_norm(x), *text)
        x = x + block.feedforward(block.feedforward_norm(x))
    logits: Tensor = model.heads(model.transformer.last_norm(x))
    return logits.view(len(codes), model.num_codebooks, model.num_outputs)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    # CUDA graphs ("reduce-overhead") in place of launching some hundred kernels that each take
    # microseconds.
    return torch.compile(decode_step, mode="reduce-overhead", dynamic=False)
