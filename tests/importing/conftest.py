"""Tiny random MusicGen models, as transformers saves them and as audiocraft does."""

import json
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

pytest.importorskip("transformers", reason="needs pip install -e '.[musicgen]'")

CODES, WIDTH, LAYERS, HEADS, TEXT = 32, 16, 2, 4, 12
WORDS = ["calm", "piano", "loud", "drums", "a", "and"]
CODEC = {
    "sampling_rate": 800,
    "num_filters": 4,
    "hidden_size": 8,
    "upsampling_ratios": [2, 2],
    "num_lstm_layers": 1,
    "use_causal_conv": False,
    "use_conv_shortcut": False,
    "codebook_size": CODES,
    "target_bandwidths": [4 * 5 * 200 / 1000],  # 4 codebooks of 5 bits at 200 frames/s
}


def hf_codec(**changes: Any) -> Any:
    """An `EncodecModel` whose codes vary with its input, as a trained one's do."""
    from transformers import EncodecConfig, EncodecModel

    codec = EncodecModel(EncodecConfig(**{**CODEC, **changes})).eval()
    with torch.no_grad():
        noise = torch.randn(4, codec.config.audio_channels, 60 * codec.config.hop_length)
        residual = codec.encoder(noise).transpose(1, 2).flatten(0, 1)
        for layer in codec.quantizer.layers:
            book = layer.codebook
            some = residual[torch.randint(len(residual), (len(book.embed),))]
            book.embed.copy_(some + 0.3 * residual.std(dim=0) * torch.randn_like(some))
            distances = torch.cdist(residual, book.embed)
            residual = residual - book.embed[distances.argmin(dim=1)]
    return codec


def hf_musicgen(stereo: bool = False, **changes: Any) -> Any:
    """A `MusicgenForConditionalGeneration` of random weights, all of which count."""
    from transformers import (
        EncodecConfig,
        MusicgenConfig,
        MusicgenDecoderConfig,
        MusicgenForConditionalGeneration,
        T5Config,
    )

    torch.manual_seed(0)
    text = T5Config(
        vocab_size=len(WORDS) + 3,
        d_model=TEXT,
        d_kv=4,
        d_ff=16,
        num_layers=1,
        num_heads=3,
        dropout_rate=0.0,
    )
    decoder = MusicgenDecoderConfig(
        vocab_size=CODES,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        ffn_dim=40,
        num_codebooks=8 if stereo else 4,
        audio_channels=2 if stereo else 1,
        max_position_embeddings=64,
        pad_token_id=CODES,
        bos_token_id=CODES,
        dropout=0.0,
        **changes,
    )
    codec = EncodecConfig(**CODEC)
    config = MusicgenConfig(text_encoder=text, audio_encoder=codec, decoder=decoder)
    model = MusicgenForConditionalGeneration(config).eval()
    model.audio_encoder.load_state_dict(hf_codec().state_dict())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("audio_encoder"):
                continue
            deviation = 1 / math.sqrt(weight.shape[-1]) if weight.ndim == 2 else 0.3
            weight.copy_(torch.randn_like(weight) * deviation + ("norm.weight" in name))
    return model


def write_tokenizer(folder: Path) -> None:
    """One token a word, and </s>, which T5 ends a text with."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    names = ["<pad>", "</s>", "<unk>", *WORDS]
    vocabulary = {word: i for i, word in enumerate(names)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))


def save_transformers(model: Any, folder: Path) -> Path:
    """As on the hub."""
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def audiocraft_weights(model: Any) -> dict[str, Tensor]:
    """A decoder's weights by audiocraft's names."""
    state, weights = model.state_dict(), OrderedDict()
    body = "decoder.model.decoder."
    for k in range(model.config.decoder.num_codebooks):
        weights[f"emb.{k}.weight"] = state[f"{body}embed_tokens.{k}.weight"]
        weights[f"linears.{k}.weight"] = state[f"decoder.lm_heads.{k}.weight"]
    for i in range(LAYERS):
        ours, theirs = f"transformer.layers.{i}.", f"{body}layers.{i}."
        for name, of in (("self_attn", "self_attn"), ("cross_attention", "encoder_attn")):
            parts = [state[f"{theirs}{of}.{part}_proj.weight"] for part in "qkv"]
            weights[f"{ours}{name}.in_proj_weight"] = torch.cat(parts)
            weights[f"{ours}{name}.out_proj.weight"] = state[f"{theirs}{of}.out_proj.weight"]
        for name, of in (("linear1", "fc1"), ("linear2", "fc2")):
            weights[f"{ours}{name}.weight"] = state[f"{theirs}{of}.weight"]
        for name, of in (
            ("norm1", "self_attn_layer_norm"),
            ("norm_cross", "encoder_attn_layer_norm"),
            ("norm2", "final_layer_norm"),
        ):
            for part in ("weight", "bias"):
                weights[f"{ours}{name}.{part}"] = state[f"{theirs}{of}.{part}"]
    for part in ("weight", "bias"):
        weights[f"out_norm.{part}"] = state[f"{body}layer_norm.{part}"]
        name = f"condition_provider.conditioners.description.output_proj.{part}"
        weights[name] = state[f"enc_to_dec_proj.{part}"]
    return weights


def save_audiocraft(model: Any, folder: Path) -> Path:
    """As audiocraft's export_lm and export_encodec write them, and its T5 beside."""
    from audiolm.codec.transformers import from_transformers

    folder.mkdir()
    stereo = model.config.decoder.audio_channels == 2
    codebooks = model.config.decoder.num_codebooks
    lm = {
        "lm_model": "transformer_lm",
        "sample_rate": 800,
        "channels": 2 if stereo else 1,
        "interleave_stereo_codebooks": {"use": stereo, "per_timestep": False},
        "codebooks_pattern": {
            "modeling": "delay",
            "delay": {
                "delays": [k // 2 if stereo else k for k in range(codebooks)],
                "flatten_first": 0,
                "empty_initial": 0,
            },
        },
        "transformer_lm": {
            "dim": WIDTH,
            "num_heads": HEADS,
            "num_layers": LAYERS,
            "n_q": codebooks,
            "card": CODES,
            "dropout": 0.0,
            "activation": "gelu",
            "norm_first": True,
            "bias_ff": False,
            "bias_attn": False,
            "bias_proj": False,
            "positional_embedding": "sin",
            "kv_repeat": 1,
        },
        "fuser": {"cross": ["description"], "sum": [], "prepend": [], "input_interpolate": []},
        "conditioners": {"description": {"model": "t5", "t5": {"name": "t5-base"}}},
        "classifier_free_guidance": {"training_dropout": 0.3, "inference_coef": 3.0},
        "dataset": {"segment_duration": "${generate.lm.max_gen_len}"},
        "generate": {"lm": {"max_gen_len": 0.2}},
    }
    package = {
        "best_state": audiocraft_weights(model),
        "xp.cfg": yaml.safe_dump(lm),
        "version": "1.3.0",
        "exported": True,
    }
    torch.save(package, folder / "state_dict.bin")
    config = model.audio_encoder.config.to_dict()
    codec = from_transformers(config, model.audio_encoder.state_dict(), "test")
    seanet = {key: codec.settings[key] for key in ("n_filters", "dimension", "ratios", "lstm")}
    described = {
        "compression_model": "encodec",
        "sample_rate": 800,
        "channels": 1,
        "encodec": {
            "autoencoder": "seanet",
            "quantizer": "rvq",
            "sample_rate": "${sample_rate}",
            "channels": "${channels}",
            "causal": False,
            "renormalize": False,
        },
        "seanet": {
            **seanet,
            "channels": "${channels}",
            "causal": "${encodec.causal}",
            "n_residual_layers": 1,
            "norm": "weight_norm",
            "pad_mode": "reflect",
            "true_skip": True,
            "compress": 2,
            "kernel_size": 7,
            "decoder": {"trim_right_ratio": 1.0},
        },
        "rvq": {"n_q": 4, "bins": CODES},
    }
    weights = dict(codec.weights)
    weights |= {f"quantizer.vq.layers.{q}._codebook.inited": torch.ones(1) for q in range(4)}
    package = {"best_state": weights, "xp.cfg": yaml.safe_dump(described), "exported": True}
    torch.save(package, folder / "compression_state_dict.bin")
    model.text_encoder.save_pretrained(folder / "text_encoder")
    write_tokenizer(folder / "text_encoder")
    return folder


SAVE: dict[str, Callable[[Any, Path], Path]] = {
    "transformers": save_transformers,
    "audiocraft": save_audiocraft,
}


def as_json(path: Path, **changes: Any) -> None:
    """Change some keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
