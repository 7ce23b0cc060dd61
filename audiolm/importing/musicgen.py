"""MusicGen and AudioGen as an `AudioLM`: the same function, by the same numbers.

Read are the models with text by cross-attention, mono and stereo: musicgen-small, -medium, -large,
musicgen-stereo-small, -medium, -large, audiogen-medium. Those with a melody or a style put their
conditions before the codes, which is another model.

What the weights are called in transformers, of which audiocraft's names are made too:

    embed_tokens.K.weight (V + 1, D)  lm_heads.K.weight (V, D)  layer_norm  enc_to_dec_proj (D, F)
    layers.I.self_attn.{q,k,v,out}_proj.weight (D, D)           layers.I.self_attn_layer_norm
    layers.I.encoder_attn.{q,k,v,out}_proj.weight (D, D)        layers.I.encoder_attn_layer_norm
    layers.I.fc1.weight, fc2.weight                             layers.I.final_layer_norm

Letters: K codebooks, V codes in a codebook, D model width, H heads, E head width, F width of the
text's vectors.

Source: Copet et al. 2023, "Simple and Controllable Music Generation", and its code; Kreuk et al.
2022, "AudioGen".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from audiolm.importing.tensors import Weights


@dataclass(frozen=True)
class MusicGen:
    """The sizes of a model of this family.

    Attributes:
        num_codebooks: K, left and right counted each.
        codebook_size: V.
        embed_dim: D.
        num_layers: Transformer blocks.
        num_heads: H.
        feedforward_dim: width inside the feed-forward.
        text_dim: F.
        delays: in frames, one a codebook.
        is_stereo: whether codebooks go left, right, left, right, ...
        dropout: probability in training.
    """

    num_codebooks: int
    codebook_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    feedforward_dim: int
    text_dim: int
    delays: tuple[int, ...]
    is_stereo: bool
    dropout: float

    def model_settings(self) -> dict[str, Any]:
        """Arguments of `AudioLM`, as a checkpoint keeps them."""
        return {
            "embed_dim": self.embed_dim,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "feedforward_dim": self.feedforward_dim,
            "dropout": self.dropout,
            "positions": "cosine_sine",
            "norm": "layer",
            "feedforward": "gelu",
            "end_token": False,
        }

    def pattern(self) -> str | list[int]:
        """The name of the pattern, or its delays."""
        usual = self.delays == tuple(range(self.num_codebooks))
        return "delay" if usual else list(self.delays)


def read_transformers_config(config: Mapping[str, Any], where: object) -> MusicGen:
    """The sizes in a config.json of transformers.

    Raises:
        ValueError: it is of another kind of model, lacks a number, or asks for what `AudioLM` has
            not; one line.
    """
    kind = config.get("model_type")
    if kind != "musicgen":
        raise ValueError(
            f"{where} is of a model of type {kind}; imported are those of type musicgen, not the "
            f"ones with a melody, a style or speech"
        )
    decoder = config.get("decoder")
    text = config.get("text_encoder")
    if not isinstance(decoder, dict) or not isinstance(text, dict):
        raise ValueError(f"{where} has no decoder and text_encoder; give a whole MusicGen")
    wanted = {
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": False,
        "cross_attention_hidden_size": None,
    }
    for key, value in wanted.items():
        if decoder.get(key, value) != value:
            raise ValueError(f"{where}: decoder.{key}={decoder[key]}, MusicGen has {value}")
    stereo = decoder.get("audio_channels", 1) == 2
    codebooks = _number(decoder, "num_codebooks", 4, where)
    return MusicGen(
        num_codebooks=codebooks,
        codebook_size=_number(decoder, "vocab_size", 2048, where),
        embed_dim=_number(decoder, "hidden_size", 1024, where),
        num_layers=_number(decoder, "num_hidden_layers", 24, where),
        num_heads=_number(decoder, "num_attention_heads", 16, where),
        feedforward_dim=_number(decoder, "ffn_dim", 4096, where),
        text_dim=_number(text, "d_model", 768, where),
        delays=tuple(k // 2 if stereo else k for k in range(codebooks)),
        is_stereo=stereo,
        dropout=float(decoder.get("dropout", 0.1)),
    )


def _number(config: Mapping[str, Any], key: str, usual: int, where: object) -> int:
    value = config.get(key, usual)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{where}: {key}={value!r} must be a whole number above 0")
    return value


def take_decoder(weights: Weights, model: MusicGen, prefix: str = "decoder.") -> dict[str, Tensor]:
    """The weights of an `AudioLM`, taken from those of a MusicGen by transformers' names.

    Args:
        weights: `prefix`model.decoder.*, `prefix`lm_heads.* and enc_to_dec_proj.*.
        model: its sizes.
        prefix: of the names of the decoder.

    Raises:
        ValueError: as `Weights.take`.
    """
    width, codes = model.embed_dim, model.codebook_size
    body = f"{prefix}model.decoder."
    # A table that older files hold, of what follows from a formula.
    weights.drop(f"{body}embed_positions.weights")
    books = range(model.num_codebooks)
    tables = [weights.take(f"{body}embed_tokens.{k}.weight", (codes + 1, width)) for k in books]
    heads = [weights.take(f"{prefix}lm_heads.{k}.weight", (codes, width)) for k in books]
    taken = {"embedding.weight": torch.cat(tables), "heads.weight": torch.cat(heads)}
    for i in range(model.num_layers):
        ours, theirs = f"transformer.blocks.{i}.", f"{body}layers.{i}."
        taken |= {
            ours + name: tensor for name, tensor in _take_block(weights, theirs, model).items()
        }
    taken |= _take_norm(weights, f"{body}layer_norm.", "transformer.last_norm.", width)
    return taken | _take_text_projection(weights, model)


def _take_block(weights: Weights, theirs: str, model: MusicGen) -> dict[str, Tensor]:
    width, inner, heads = model.embed_dim, model.feedforward_dim, model.num_heads

    def square(name: str) -> Tensor:
        return weights.take(f"{theirs}{name}_proj.weight", (width, width))

    q, k, v = (square(f"self_attn.{part}") for part in "qkv")
    # Ours are ordered by head: of each its q, its k and its v.
    by_head = [part.view(heads, width // heads, width) for part in (q, k, v)]
    return {
        **_take_norm(weights, f"{theirs}self_attn_layer_norm.", "attention_norm.", width),
        "attention.qkv_proj.weight": torch.stack(by_head, dim=1).reshape(3 * width, width),
        "attention.o_proj.weight": square("self_attn.out"),
        **_take_norm(weights, f"{theirs}encoder_attn_layer_norm.", "cross_norm.", width),
        "cross_attention.q_proj.weight": square("encoder_attn.q"),
        "cross_attention.kv_proj.weight": torch.cat(
            [square("encoder_attn.k"), square("encoder_attn.v")]
        ),
        "cross_attention.o_proj.weight": square("encoder_attn.out"),
        **_take_norm(weights, f"{theirs}final_layer_norm.", "feedforward_norm.", width),
        "feedforward.in_proj.weight": weights.take(f"{theirs}fc1.weight", (inner, width)),
        "feedforward.out_proj.weight": weights.take(f"{theirs}fc2.weight", (width, inner)),
    }


def _take_norm(weights: Weights, theirs: str, ours: str, width: int) -> dict[str, Tensor]:
    return {ours + part: weights.take(theirs + part, (width,)) for part in ("weight", "bias")}


def _take_text_projection(weights: Weights, model: MusicGen) -> dict[str, Tensor]:
    width, text = model.embed_dim, model.text_dim
    name = "enc_to_dec_proj"
    if not weights.has(f"{name}.weight") and width == text:  # transformers then has none
        weight, bias = torch.eye(width), torch.zeros(width)
    else:
        weight = weights.take(f"{name}.weight", (width, text))
        bias = weights.take(f"{name}.bias", (width,))
    return {"conditioner.sequence.weight": weight, "conditioner.sequence.bias": bias}
