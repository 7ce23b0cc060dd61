"""EnCodec in the files of the package transformers, which itself is not needed for it.

transformers, for what the package encodec calls      ours
    encoder.layers.N.conv.{parametrizations...}       encoder.model.N.conv.conv.{weight_g,weight_v}
    encoder.layers.N.block.M.conv.*, N.shortcut.*     encoder.model.N.block.M.conv.conv.*, ...
    encoder.layers.N.lstm.*                           encoder.model.N.lstm.*
    decoder.layers.N.conv.*, where it is transposed   decoder.model.N.convtr.convtr.*
    quantizer.layers.Q.codebook.embed                 quantizer.vq.layers.Q._codebook.embed
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from audiolm.codec.encodec import EncodecCodec
from audiolm.published_files import read_json, read_weights

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


def read_transformers(
    path: Path, num_codebooks: int | None = None, *, dual_mono: bool = False
) -> EncodecCodec:
    """The EnCodec in a folder of transformers' format.

    Args:
        path: the folder.
        num_codebooks: K, of the first ones; by default all.
        dual_mono: whether it is of stereo, each channel encoded alone.

    Raises:
        FileNotFoundError, ValueError: it cannot be read, or is of another kind.
    """
    config = read_json(path / "config.json")
    return from_transformers(
        config, read_weights(path), path, num_codebooks=num_codebooks, dual_mono=dual_mono
    )


def from_transformers(
    config: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    where: object,
    *,
    num_codebooks: int | None = None,
    dual_mono: bool = False,
) -> EncodecCodec:
    """The codec of an `EncodecConfig` and the weights of an `EncodecModel`.

    Args:
        config: as in config.json.
        weights: by transformers' names.
        where: for messages.
        num_codebooks, dual_mono: as of `read_transformers`.

    Raises:
        ValueError: it has what this project's networks have not, or does not fit together.
    """
    kind = config.get("model_type", "encodec")
    if kind != "encodec":
        raise ValueError(f"{where}: the codec is of type {kind}; read are those of encodec")
    for key, value in _FIXED.items():
        if config.get(key, value) != value:
            raise ValueError(f"{where}: {key}={config[key]} of the codec, read is {value}")
    renamed = _with_transposed({_renamed(name): tensor for name, tensor in weights.items()})
    settings = {ours: config.get(theirs, _USUAL[theirs]) for ours, theirs in _KEYS.items()}
    settings |= {
        "ratios": list(config.get("upsampling_ratios", _USUAL["upsampling_ratios"])),
        "true_skip": not config.get("use_conv_shortcut", _USUAL["use_conv_shortcut"]),
        "n_q": sum(name.endswith("._codebook.embed") for name in renamed),
        "segment": _segment(config, where),
        "dual_mono": dual_mono,
    }
    return make_codec(settings, renamed, where, num_codebooks)


def _segment(config: Mapping[str, Any], where: object) -> float | None:
    """Seconds of the segments that are normalised each, as the 48 kHz model's; None without."""
    length = config.get("chunk_length_s")
    if bool(config.get("normalize", False)) != (length is not None):
        raise ValueError(
            f"{where}: normalize={config.get('normalize')} with chunk_length_s={length} of the "
            f"codec; read are codecs with both, or with neither"
        )
    return None if length is None else float(length)


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


def make_codec(
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    where: object,
    num_codebooks: int | None = None,
) -> EncodecCodec:
    """A codec of one's own, of which a run keeps a copy.

    Raises:
        ValueError: settings and weights do not fit together; it begins with `where`.
    """
    source = {"kind": "local", "name": "codec"}
    try:
        return EncodecCodec(settings, weights, num_codebooks=num_codebooks, source=source)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
