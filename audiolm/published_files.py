"""Reading files of transformers and of others: tensors and plain data only, and no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from audiolm.files import short
from audiolm.tensor_files import load_without_code, read_tensors

WHOLE = ("model.safetensors", "pytorch_model.bin")
"""Files of transformers' format with all weights; or with them in several, which NAME.index.json
lists."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not JSON, or not an object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give the folder of a whole model")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({short(str(error), 200)}); copy it again") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds a {type(data).__name__}, not an object; copy it again")
    return data


def read_pickle(path: Path) -> dict[str, Any]:
    """What torch.save wrote: tensors in dictionaries, texts and numbers, and nothing else.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or holds Python objects, which could run code.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give the folder of a whole model")
    data = load_without_code(
        path,
        f"{path} is damaged, or holds more than tensors, texts and numbers: Python objects "
        f"could run code, and are not loaded; of audiocraft, take the file that its "
        f"export_lm or export_encodec wrote",
    )
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds a {type(data).__name__}, not weights by name")
    return data


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder of transformers' format, whether in one file or in several.

    Raises:
        FileNotFoundError: there are none.
        ValueError: one cannot be read.
    """
    for whole, read in zip(WHOLE, (_tensors, _pickled), strict=True):
        index = folder / f"{whole}.index.json"
        if index.is_file():
            names = read_json(index).get("weight_map")
            if not isinstance(names, dict):
                raise ValueError(f"{index} has no weight_map; copy it again")
            files = sorted({Path(str(name)).name for name in names.values()})
        elif (folder / whole).is_file():
            files = [whole]
        else:
            continue
        weights: dict[str, Tensor] = {}
        for file in files:
            if not (folder / file).is_file():
                raise FileNotFoundError(f"{folder / file}: no such file; copy the whole folder")
            weights |= read(folder / file)
        return weights
    raise FileNotFoundError(
        f"{folder} holds no model.safetensors and no pytorch_model.bin; give the folder of a whole "
        f"model"
    )


def _tensors(path: Path) -> dict[str, Tensor]:
    return read_tensors(path)[0]


def _pickled(path: Path) -> dict[str, Tensor]:
    return only_tensors(read_pickle(path), path)


def only_tensors(data: Mapping[str, Any], where: object) -> dict[str, Tensor]:
    """The mapping, once all of it is tensors by name.

    Raises:
        ValueError: naming the first that is none.
    """
    for name, value in data.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ValueError(
                f"{where} has a {type(value).__name__} as {short(str(name))}, not a tensor"
            )
    return dict(data)
