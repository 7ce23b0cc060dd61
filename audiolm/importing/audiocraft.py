"""MusicGen and AudioGen in audiocraft's own files: state_dict.bin and compression_state_dict.bin.

Each is a pickle of {"best_state": weights, "xp.cfg": the config as YAML, "version", "exported"},
which its export_lm and export_encodec write; the second may be {"pretrained": NAME} instead. They
are read as tensors and text alone: no object of theirs is made, and no code of theirs runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from audiolm.files import short
from audiolm.importing.musicgen import MusicGen
from audiolm.importing.tensors import Weights
from audiolm.published_files import only_tensors, read_pickle

MODEL_FILE, CODEC_FILE = "state_dict.bin", "compression_state_dict.bin"

_LAYER = r"transformer\.layers\.(\d+)\."
# Theirs, and what transformers calls it. Stacked projections are taken apart before.
_NAMES = [
    (r"emb\.(\d+)\.weight", r"decoder.model.decoder.embed_tokens.\1.weight"),
    (r"linears\.(\d+)\.weight", r"decoder.lm_heads.\1.weight"),
    (r"out_norm\.(weight|bias)", r"decoder.model.decoder.layer_norm.\1"),
    (
        r"condition_provider\.conditioners\.description\.output_proj\.(weight|bias)",
        r"enc_to_dec_proj.\1",
    ),
    (
        _LAYER + r"self_attn\.([qkv]|out)_proj\.weight",
        r"decoder.model.decoder.layers.\1.self_attn.\2_proj.weight",
    ),
    (
        _LAYER + r"cross_attention\.([qkv]|out)_proj\.weight",
        r"decoder.model.decoder.layers.\1.encoder_attn.\2_proj.weight",
    ),
    (_LAYER + r"linear([12])\.weight", r"decoder.model.decoder.layers.\1.fc\2.weight"),
    (_LAYER + r"norm1\.(weight|bias)", r"decoder.model.decoder.layers.\1.self_attn_layer_norm.\2"),
    (
        _LAYER + r"norm_cross\.(weight|bias)",
        r"decoder.model.decoder.layers.\1.encoder_attn_layer_norm.\2",
    ),
    (_LAYER + r"norm2\.(weight|bias)", r"decoder.model.decoder.layers.\1.final_layer_norm.\2"),
]


class Config:
    """A config of audiocraft: sections of plain values, some of which point at others.

    Args:
        data: the parsed YAML.
        where: the file, for messages.
    """

    def __init__(self, data: Mapping[str, Any], where: object) -> None:
        self.data, self.where = data, where

    @classmethod
    def parse(cls, text: object, where: object) -> Config:
        """The config in a file.

        Raises:
            ValueError: it is no YAML of sections.
        """
        if not isinstance(text, str):
            raise ValueError(f"{where} has no xp.cfg; take a file that audiocraft exported")
        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise ValueError(f"{where}: xp.cfg is not YAML ({short(str(error), 200)})") from error
        if not isinstance(data, dict):
            raise ValueError(f"{where}: xp.cfg holds no settings")
        return cls(data, where)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of section.key; "${section.key}" stands for another's."""
        for _ in range(8):
            value: Any = self.data
            for part in key.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            pointer = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
            if pointer is None:
                return default if value is None else value
            key = pointer[1]
        raise ValueError(f"{self.where}: {key} in xp.cfg points at itself")

    def number(self, key: str) -> int:
        """A whole number above 0.

        Raises:
            ValueError: it is missing, or is none.
        """
        value = self.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{self.where}: {key}={value!r} in xp.cfg must be a whole number")
        return value

    def check(self, wanted: Mapping[str, Any]) -> None:
        """Raise ValueError for a value that is there and is not the one wanted."""
        for key, value in wanted.items():
            found = self.get(key, value)
            if found != value:
                raise ValueError(
                    f"{self.where}: {key}={found} in xp.cfg, imported are models with {value}"
                )


def read_exported(path: Path) -> tuple[dict[str, Tensor], Config]:
    """The weights and the config of an exported file.

    Raises:
        FileNotFoundError, ValueError: as `read_pickle`, or it is not such a file.
    """
    package = read_pickle(path)
    state = package.get("best_state")
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]  # of a training's checkpoint
    if not isinstance(state, dict):
        raise ValueError(f"{path} has no best_state; take a file that audiocraft exported")
    return only_tensors(state, path), Config.parse(package.get("xp.cfg"), path)


def read_audiocraft(path: Path) -> tuple[MusicGen, Weights, Config]:
    """The sizes, the weights by transformers' names, and the config of a state_dict.bin.

    Raises:
        FileNotFoundError, ValueError: it cannot be read, or is of another kind of model.
    """
    tensors, config = read_exported(path)
    config.check(
        {
            "lm_model": "transformer_lm",
            "codebooks_pattern.modeling": "delay",
            "codebooks_pattern.delay.flatten_first": 0,
            "codebooks_pattern.delay.empty_initial": 0,
            "transformer_lm.activation": "gelu",
            "transformer_lm.norm_first": True,
            "transformer_lm.norm": "layer_norm",
            "transformer_lm.bias_ff": False,
            "transformer_lm.bias_attn": False,
            "transformer_lm.bias_proj": False,
            "transformer_lm.positional_embedding": "sin",
            "transformer_lm.qk_layer_norm": False,
            "transformer_lm.qk_layer_norm_cross": False,
            "transformer_lm.kv_repeat": 1,
            "fuser.cross_attention_pos_emb": False,
            "fuser.cross": ["description"],
            "fuser.sum": [],
            "fuser.prepend": [],
            "fuser.input_interpolate": [],
            "interleave_stereo_codebooks.per_timestep": False,
        }
    )
    weights = Weights(_renamed(tensors, path), path)
    codebooks = config.number("transformer_lm.n_q")
    stereo = bool(config.get("interleave_stereo_codebooks.use", False))
    delays = config.get("codebooks_pattern.delay.delays", list(range(codebooks)))
    if not isinstance(delays, list) or not all(isinstance(delay, int) for delay in delays):
        raise ValueError(f"{path}: codebooks_pattern.delay.delays={delays!r} in xp.cfg")
    layer = "decoder.model.decoder.layers.0."
    model = MusicGen(
        num_codebooks=codebooks,
        codebook_size=config.number("transformer_lm.card"),
        embed_dim=config.number("transformer_lm.dim"),
        num_layers=config.number("transformer_lm.num_layers"),
        num_heads=config.number("transformer_lm.num_heads"),
        feedforward_dim=weights.shape(f"{layer}fc1.weight")[0],
        text_dim=weights.shape("enc_to_dec_proj.weight")[-1],
        delays=tuple(delays),
        is_stereo=stereo,
        dropout=float(config.get("transformer_lm.dropout", 0.0)),
    )
    return model, weights, config


def _renamed(tensors: Mapping[str, Tensor], where: object) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in _taken_apart(tensors).items():
        for theirs, ours in _NAMES:
            if re.fullmatch(theirs, name):
                renamed[re.sub(theirs, ours, name)] = tensor
                break
        else:
            raise ValueError(
                f"{where} has {short(name, 80)}, which this version does not know; it is of "
                f"another kind of model"
            )
    return renamed


def _taken_apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With q, k and v, which are stacked there, each on its own."""
    parts = {}
    for name, tensor in tensors.items():
        if not name.endswith(".in_proj_weight"):
            parts[name] = tensor
        else:
            for letter, part in zip("qkv", tensor.chunk(3), strict=False):
                parts[name.replace(".in_proj_weight", f".{letter}_proj.weight")] = part
    return parts
