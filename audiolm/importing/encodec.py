"""EnCodec in transformers' and in audiocraft's files, as a codec of this project.

transformers, for what the package encodec calls      ours
    encoder.layers.N.conv.{parametrizations...}       encoder.model.N.conv.conv.{weight_g,weight_v}
    encoder.layers.N.block.M.conv.*, N.shortcut.*     encoder.model.N.block.M.conv.conv.*, ...
    encoder.layers.N.lstm.*                           encoder.model.N.lstm.*
    decoder.layers.N.conv.*, where it is transposed   decoder.model.N.convtr.convtr.*
    quantizer.layers.Q.codebook.embed                 quantizer.vq.layers.Q._codebook.embed

audiocraft keeps the package's own names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from audiolm.codec import EncodecCodec
from audiolm.importing.audiocraft import CODEC_FILE, read_exported
from audiolm.importing.tensors import read_json, read_pickle, read_weights

# Of a settings' key, the one in transformers' config.json.
_KEYS = {
    "sample_rate": "sampling_rate",
    "channels": "audio_channels",
    "n_filters": "num_filters",
    "dimension": "hidden_size",
    "n_residual_layers": "num_residual_layers",
    "compress": "compress",
    "lstm": "num_lstm_layers",
    "causal": "use_causal_conv",
    "norm": "norm_type",
    "bins": "codebook_size",
    "pad_mode": "pad_mode",
}
# What this project's networks have no setting for, and the value that they have.
_FIXED = {
    "kernel_size": 7,
    "last_kernel_size": 7,
    "residual_kernel_size": 3,
    "dilation_growth_rate": 2,
    "trim_right_ratio": 1.0,
    "normalize": False,
    "chunk_length_s": None,
}
_USUAL = {
    "sampling_rate": 24_000,
    "audio_channels": 1,
    "num_filters": 32,
    "hidden_size": 128,
    "num_residual_layers": 1,
    "compress": 2,
    "num_lstm_layers": 2,
    "use_causal_conv": True,
    "norm_type": "weight_norm",
    "codebook_size": 1024,
    "pad_mode": "reflect",
    "upsampling_ratios": [8, 5, 4, 2],
    "use_conv_shortcut": True,
}


def read_codec(path: Path, *, dual_mono: bool = False) -> EncodecCodec:
    """The EnCodec in a folder of transformers' or audiocraft's, or in audiocraft's file.

    Args:
        path: the folder, or compression_state_dict.bin.
        dual_mono: whether it is of stereo, each channel encoded alone.

    Raises:
        FileNotFoundError, ValueError: it cannot be read, or is of another kind.
    """
    file = path / CODEC_FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        config = read_json(path / "config.json")
        return from_transformers(config, read_weights(path), path, dual_mono=dual_mono)
    return _from_audiocraft(file, dual_mono)


def from_transformers(
    config: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    where: object,
    *,
    dual_mono: bool = False,
) -> EncodecCodec:
    """The codec of an `EncodecConfig` and the weights of an `EncodecModel`.

    Args:
        config: as in config.json.
        weights: by transformers' names.
        where: for messages.
        dual_mono: as of `read_codec`.

    Raises:
        ValueError: it has what this project's networks have not, or does not fit together.
    """
    kind = config.get("model_type", "encodec")
    if kind != "encodec":
        raise ValueError(f"{where}: the codec is of type {kind}; imported are those of encodec")
    for key, value in _FIXED.items():
        if config.get(key, value) != value:
            raise ValueError(f"{where}: {key}={config[key]} of the codec, imported is {value}")
    renamed = _with_transposed({_renamed(name): tensor for name, tensor in weights.items()})
    settings = {ours: config.get(theirs, _USUAL[theirs]) for ours, theirs in _KEYS.items()}
    settings |= {
        "ratios": list(config.get("upsampling_ratios", _USUAL["upsampling_ratios"])),
        "true_skip": not config.get("use_conv_shortcut", _USUAL["use_conv_shortcut"]),
        "n_q": sum(name.endswith("._codebook.embed") for name in renamed),
        "dual_mono": dual_mono,
    }
    return _make(settings, renamed, where)


def _renamed(name: str) -> str:
    """What the package encodec calls it, but for transposed convolutions."""
    name = name.replace(".parametrizations.weight.original0", ".weight_g")
    name = name.replace(".parametrizations.weight.original1", ".weight_v")
    if found := re.fullmatch(r"quantizer\.layers\.(\d+)\.codebook\.(\w+)", name):
        return f"quantizer.vq.layers.{found[1]}._codebook.{found[2]}"
    found = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)\.(.*)", name)
    if found is None:
        return name
    side, layer, rest = found.groups()
    if "lstm" in rest:
        return f"{side}.model.{layer}.{rest}"
    inner = re.fullmatch(r"((?:block\.\d+\.|shortcut\.)?)(conv|norm)\.(\w+)", rest)
    if inner is None:
        return name
    return f"{side}.model.{layer}.{inner[1]}conv.{inner[2]}.{inner[3]}"


def _with_transposed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The decoder's transposed convolutions called so: all outside of blocks but the two ends."""
    outer = re.compile(r"decoder\.model\.(\d+)\.conv\.(?:conv|norm)\.(\w+)")
    layers = sorted({int(found[1]) for name in weights if (found := outer.fullmatch(name))})
    transposed = set(layers[1:-1])  # all but the first and the last
    renamed = {}
    for name, tensor in weights.items():
        found = outer.fullmatch(name)
        if found and int(found[1]) in transposed:
            name = name.replace(".conv.conv.", ".convtr.convtr.").replace(
                ".conv.norm.", ".convtr.norm."
            )
        renamed[name] = tensor
    return renamed


def _make(
    settings: Mapping[str, Any], weights: Mapping[str, Tensor], where: object
) -> EncodecCodec:
    try:
        return EncodecCodec(settings, weights, source={"kind": "local", "name": "codec"})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _from_audiocraft(path: Path, dual_mono: bool) -> EncodecCodec:
    pointer = read_pickle(path).get("pretrained")
    if pointer is not None:
        raise ValueError(
            f"{path} only names its codec, {pointer}; download that and pass codec=DIR"
        )
    tensors, config = read_exported(path)
    config.check(
        {
            "compression_model": "encodec",
            "encodec.autoencoder": "seanet",
            "encodec.quantizer": "rvq",
            "encodec.renormalize": False,
            "seanet.activation": "ELU",
            "seanet.kernel_size": 7,
            "seanet.residual_kernel_size": 3,
            "seanet.last_kernel_size": 7,
            "seanet.dilation_base": 2,
            "seanet.disable_norm_outer_blocks": 0,
            "seanet.decoder.trim_right_ratio": 1.0,
        }
    )
    same = ("n_filters", "dimension", "n_residual_layers", "compress", "lstm")
    settings = {
        **{key: config.get(f"seanet.{key}") for key in same},
        "ratios": config.get("seanet.ratios"),
        "true_skip": config.get("seanet.true_skip"),
        "norm": config.get("seanet.norm"),
        "pad_mode": config.get("seanet.pad_mode"),
        "causal": config.get("seanet.causal"),
        "sample_rate": config.get("encodec.sample_rate"),
        "channels": config.get("seanet.channels"),
        "n_q": config.get("rvq.n_q"),
        "bins": config.get("rvq.bins"),
        "dual_mono": dual_mono,
    }
    return _make(settings, tensors, path)
