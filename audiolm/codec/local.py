"""An EnCodec of one's own on disk: `NAME.safetensors` (weights) beside `NAME.json` (settings)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from audiolm.codec.settings import check_settings
from audiolm.codec.weights import build_for, compute_fingerprint
from audiolm.files import atomic_file, short, user_path
from audiolm.tensor_files import read_tensors, write_tensors

WEIGHTS, SETTINGS = ".safetensors", ".json"


def save_local(
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    path: Path,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write the pair `path`.safetensors and `path`.json; return the path of the weights.

    Args:
        settings: see `audiolm.codec.settings`.
        weights: an `encodec.EncodecModel`'s state dict with its weight normalisation; buffers that
            only training uses are omitted.
        path: folder and stem. The folder is made; a pair that is there is replaced.
        dtype: of the numbers in the file; the codec is then the one with its weights rounded so.

    Raises:
        ValueError: settings or weights are wrong.
        OSError: the folder cannot be written.
    """
    settings = check_settings(settings)
    weights = {key: tensor.to(dtype) for key, tensor in weights.items()}
    _, weights = build_for(settings, weights)  # float32 again
    fingerprint = compute_fingerprint(settings, weights)
    # Each file appears whole, but a kill can fall between the two: the fingerprint then tells.
    stored = {key: tensor.to(dtype) for key, tensor in weights.items()}
    write_tensors(_with(path, WEIGHTS), stored, {"fingerprint": fingerprint})
    with atomic_file(_with(path, SETTINGS)) as file:
        file.write(json.dumps(settings, indent=1).encode() + b"\n")
    return _with(path, WEIGHTS)


def is_saved(settings: Mapping[str, Any], weights: Mapping[str, Tensor], path: Path) -> bool:
    """Whether this codec is what `save_local` has written as `path`.

    Raises:
        ValueError: settings or weights are wrong.
    """
    settings = check_settings(settings)
    try:
        pair = read_pair(path)
    except (FileNotFoundError, ValueError):
        return False
    _, weights = build_for(settings, weights)
    return pair.fingerprint == compute_fingerprint(settings, weights)


class Pair(NamedTuple):
    """What the two files of a codec hold."""

    stem: Path
    settings: dict[str, Any]
    weights: dict[str, Tensor]
    fingerprint: str | None  # of the codec when it was saved, if that was by `save_local`


def read_pair(path: str | Path) -> Pair:
    """Read settings and weights, which are not checked yet.

    Args:
        path: the .safetensors file, the .json file, both without ending, or a folder with one pair.

    Raises:
        FileNotFoundError: there is no pair.
        ValueError: one of the two cannot be read, or there are more pairs than one; one line.
    """
    stem = _find_pair(user_path(path))
    weights_file, settings_file = _with(stem, WEIGHTS), _with(stem, SETTINGS)
    try:
        settings = json.loads(settings_file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{settings_file}: not JSON ({short(str(error), 200)}); write it again"
        ) from error
    if not isinstance(settings, dict):
        raise ValueError(
            f"{settings_file}: holds {type(settings).__name__}, not the codec's settings"
        )
    weights, metadata = read_tensors(weights_file)
    return Pair(stem, settings, weights, metadata.get("fingerprint"))


def find_pairs(folder: Path) -> list[Path]:
    """Paths without ending of the pairs in `folder`, sorted."""
    stems = (p.with_suffix("") for p in sorted(folder.glob(f"*{WEIGHTS}")) if p.is_file())
    return [stem for stem in stems if _with(stem, SETTINGS).is_file()]


def holds_pair(path: str | Path) -> bool:
    """Whether a codec is there: `path` as of `read_pair`."""
    try:
        _find_pair(user_path(path))
    except (FileNotFoundError, ValueError):
        return False
    return True


def _find_pair(path: Path) -> Path:
    if path.is_dir():
        pairs = find_pairs(path)
        if len(pairs) > 1:
            names = ", ".join(p.name for p in pairs)
            raise ValueError(f"{path}: holds several codecs ({names}); name one of them")
        if not pairs:
            raise FileNotFoundError(f"{path}: holds no codec (NAME{WEIGHTS} with NAME{SETTINGS})")
        return pairs[0]
    stem = path.with_suffix("") if path.suffix in (WEIGHTS, SETTINGS) else path
    for file in (_with(stem, WEIGHTS), _with(stem, SETTINGS)):
        if not file.is_file():
            raise FileNotFoundError(
                f"{file}: no such file; a codec is a pair NAME{WEIGHTS} and NAME{SETTINGS}"
            )
    return stem


def _with(stem: Path, ending: str) -> Path:
    return stem.with_name(stem.name + ending)
