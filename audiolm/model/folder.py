"""A trained model as a folder that can be shared: `config.json` beside `model.safetensors`.

    config.json                    plain data: what the weights are of and from (below)
    model.safetensors              the model's weights, by the names of its state dict
    codec.safetensors, codec.json  a codec of one's own; of a pretrained one its name is enough
    text_encoder/                  of a model that reads texts by one (see `audiolm.text_encoder`)

In config.json:

    audiolm_format   1
    model            arguments of `AudioLM` but for what follows from codec, pattern and context
    pattern          of the codebooks, by name, or its delays
    context_frames   of the windows it was trained on
    codec            the codec's identity
    conditioning     settings of its `ConditionVocabulary`; null for an unconditional model
    step             optimiser steps that it was trained for
    license          of the weights; null where nobody said
    base_model       what they were made from; null for a model from nothing
    sampling         the settings that it was listened to with; null where they are not known
    weights          SHA-256 and dtype of model.safetensors, and whether they are averages (EMA)
    versions         of what wrote it

Reading runs no code and no pickle, and takes no key that is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audiolm.files import atomic_file, sha256_of, short
from audiolm.machine import package_versions
from audiolm.run_folder import MODEL_CONFIG, MODEL_WEIGHTS
from audiolm.tensor_files import read_tensors, write_tensors

FOLDER_FORMAT = 1

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""In which the weights may be kept."""

_SETTINGS: dict[str, tuple[type, ...]] = {
    "model": (dict,),
    "pattern": (str, list),
    "context_frames": (int,),
    "codec": (dict,),
    "conditioning": (dict, type(None)),
}
_ORIGIN: dict[str, tuple[type, ...]] = {
    "license": (str, type(None)),
    "base_model": (str, type(None)),
}
_KINDS = {
    "audiolm_format": (int,),
    **_SETTINGS,
    "step": (int,),
    **_ORIGIN,
    "sampling": (dict, type(None)),
    "weights": (dict,),
    "versions": (dict,),
}


def write_model_folder(
    folder: Path,
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    *,
    step: int,
    sampling: Mapping[str, Any] | None = None,
    averaged: bool = False,
    dtype: str = "float32",
) -> None:
    """Write config.json and model.safetensors; the same model gives the same bytes.

    The codec is the caller's to put beside them.

    Args:
        folder: which is made where it is not there.
        settings: hyper-parameters of a checkpoint; of "origin" the license and the base model.
        weights: by the names of the model's state dict.
        step: optimiser steps that it was trained for.
        sampling: see above.
        averaged: whether the weights are averages (EMA).
        dtype: a name in `DTYPES`; weights that are whole numbers stay what they are.

    Raises:
        ValueError: for an unknown dtype, and a weight that it cannot hold.
        OSError: the folder cannot be written.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype} is unknown; choose one of {', '.join(DTYPES)}")
    stored = {name: _as_stored(name, weight, dtype) for name, weight in weights.items()}
    write_tensors(folder / MODEL_WEIGHTS, stored, {"format": "pt"})
    origin = settings.get("origin") or {}
    config = {
        "audiolm_format": FOLDER_FORMAT,
        **{key: settings.get(key) for key in _SETTINGS},
        "step": step,
        **{key: origin.get(key) for key in _ORIGIN},
        "sampling": None if sampling is None else dict(sampling),
        "weights": {
            "sha256": sha256_of(folder / MODEL_WEIGHTS),
            "dtype": dtype,
            "averaged": averaged,
        },
        "versions": package_versions(("audiolm", "torch", "safetensors")),
    }
    with atomic_file(folder / MODEL_CONFIG) as file:
        file.write(json.dumps(config, indent=2).encode("ascii") + b"\n")


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a model's folder, its keys and the kinds of their values checked.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, of a newer version, or of another program; one line.
    """
    path = folder / MODEL_CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a folder that export.py wrote")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({short(str(error), 200)}); copy it again") from error
    if not isinstance(config, dict) or not isinstance(config.get("audiolm_format"), int):
        raise ValueError(
            f"{path} is not of a model of audiolm (it has no audiolm_format); give a folder that "
            f"export.py or import_model.py wrote"
        )
    found = config["audiolm_format"]
    if found != FOLDER_FORMAT:
        raise ValueError(
            f"{path} has format {found}, this version reads {FOLDER_FORMAT}; use the version of "
            f"audiolm that wrote it"
        )
    for key in config.keys() - _KINDS:
        raise ValueError(f"{path} has {short(key)}, which this version does not know; update it")
    for key, kinds in _KINDS.items():
        if key not in config:
            raise ValueError(f"{path} lacks {key}; export the model again")
        if not isinstance(config[key], kinds) or isinstance(config[key], bool):
            raise ValueError(
                f"{path} has a {type(config[key]).__name__} as {key}; export the model again"
            )
    return config


def read_model_folder(folder: Path) -> dict[str, Any]:
    """The contents of a model's folder, laid out as those of a checkpoint, without its format.

    Raises:
        FileNotFoundError: config.json or model.safetensors is not there.
        ValueError: as `read_config`; or the weights are cut short, damaged, or of another config.
    """
    config = read_config(folder)
    path = folder / MODEL_WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; copy the whole folder again")
    weights, _ = read_tensors(path)
    if sha256_of(path) != config["weights"].get("sha256"):
        raise ValueError(
            f"{path} is damaged, or not of the {MODEL_CONFIG} beside it: its SHA-256 is another; "
            f"copy the whole folder again"
        )
    return {
        "global_step": config["step"],
        "hyper_parameters": {
            **{key: config[key] for key in _SETTINGS},
            "origin": {key: config[key] for key in _ORIGIN},
        },
        "state_dict": {
            f"model.{name}": w.float() if w.is_floating_point() else w
            for name, w in weights.items()
        },
    }


def _as_stored(name: str, weight: Tensor, dtype: str) -> Tensor:
    if not weight.is_floating_point():
        return weight
    stored = weight.detach().to("cpu", DTYPES[dtype])
    if not bool(torch.isfinite(stored).all()):
        raise ValueError(
            f"{name} has values that are not finite in {dtype}; pass dtype=float32, or take a "
            f"checkpoint from before"
        )
    return stored
