"""The peer of the transformers package: MusicGen's decoder, untrained, without its text input.

Raises ImportError where transformers is not installed (extra `bench`).

Letters: B batch, K codebooks, S sequence steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from audiolm.benchmarks.sizes import ModelSize


def musicgen(size: ModelSize, attention: str) -> nn.Module:
    """A `MusicgenForCausalLM` of this size. attention: "eager" or "sdpa"."""
    from transformers import MusicgenDecoderConfig, MusicgenForCausalLM

    config = MusicgenDecoderConfig(
        vocab_size=size.codebook_size,
        max_position_embeddings=size.num_steps,
        num_hidden_layers=size.num_layers,
        ffn_dim=4 * size.embed_dim,
        num_attention_heads=size.num_heads,
        hidden_size=size.embed_dim,
        num_codebooks=size.num_codebooks,
        dropout=0.0,
        pad_token_id=size.codebook_size,
        bos_token_id=size.codebook_size,
    )
    config._attn_implementation = attention

    class Decoder(MusicgenForCausalLM):  # type: ignore[misc]
        def prepare_inputs_for_generation(
            self, input_ids: Tensor, attention_mask: Any = None, cache: Any = None, **how: Any
        ) -> dict[str, Any]:
            """As the package's, which in version 5.24 reads the last step of a prompt only."""
            inputs: dict[str, Any] = super().prepare_inputs_for_generation(
                input_ids, attention_mask, **how
            )
            if cache is not None:
                inputs["input_ids"] = inputs["input_ids"][:, int(cache.get_seq_length()) :]
                inputs["cache"] = cache
            return inputs

    model: Any = Decoder(config)
    for layer in model.model.decoder.layers:
        # Attention to a text: never called where there is none.
        del layer.encoder_attn, layer.encoder_attn_layer_norm
    return model  # type: ignore[no-any-return]


def musicgen_loss(model: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean nats per code, as the model computes it from its labels.

    inputs: ids (B, K, S); targets: (B, K, S), -100 where none is.
    """
    output = model(inputs.flatten(0, 1), labels=targets.transpose(1, 2), use_cache=False)
    loss: Tensor = output.loss
    return loss


def musicgen_decode(
    model: Any,
    prompt: Tensor,
    frames: int,
    top_k: int,
    *,
    cache: str | None = None,
    compiled: bool = False,
    each_step: Callable[[], None] | None = None,
) -> Tensor:
    """Continue a prompt (B, K, P) to `frames` frames T, by the package's `generate`: (B, K, T).

    cache: None for one that grows, "static" for one of fixed size. compiled: the forward pass
    with a static cache. each_step: called after each step's logits.
    """
    from transformers import CompileConfig, LogitsProcessorList

    processors = LogitsProcessorList()
    if each_step is not None:

        def unchanged(ids: Tensor, scores: Tensor) -> Tensor:
            each_step()
            return scores

        processors.append(unchanged)
    compilation = None
    if compiled:
        compilation = CompileConfig()
        compilation._compile_all_devices = True  # the package compiles for GPUs only
    _, codebooks, _ = prompt.shape
    special = model.config.vocab_size
    start = torch.full_like(prompt[:, :, :1], special)
    codes: Tensor = model.generate(
        torch.cat([start, prompt], dim=2).flatten(0, 1),
        # The package's own would hide the column before the codes, which training reads.
        attention_mask=torch.ones(len(prompt), 1 + prompt.shape[2], dtype=torch.long),
        do_sample=True,
        top_k=top_k,
        # A column before the codes, and those that the delay adds.
        max_length=1 + frames + codebooks - 1,
        cache_implementation=cache,
        compile_config=compilation,
        disable_compile=not compiled,
        logits_processor=processors,
        # MusicGen's own `generate` lacks the package's defaults for these.
        decoder_start_token_id=special,
        num_return_sequences=1,
        num_beams=1,
        temperature=1.0,
    )
    return codes
