"""Tensors on disk, read without code in them: as safetensors, or as torch.save writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from audiolm.files import atomic_file, short


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a file of tensors, which appears whole or not at all.

    The same tensors are the same bytes where `metadata` has one entry: the library writes several
    in any order.

    Raises:
        OSError: it cannot be written.
    """
    stored = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic_file(path) as file:
        # Not save_file, whose files nobody but their owner may read, and whose errors of a full
        # disk are none of the system's.
        file.write(safetensors.torch.save(stored, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, on the CPU, and its metadata.

    Raises:
        ValueError: it is not a whole file of tensors; one line.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            return {key: file.get_tensor(key) for key in file.keys()}, metadata  # noqa: SIM118
    except SafetensorError as error:
        reason = short(str(error), 200)
        raise ValueError(
            f"{path}: not a whole safetensors file ({reason}); copy it again"
        ) from error


def load_without_code(path: Path, refusal: str) -> Any:
    """What torch.save wrote, on the CPU: tensors and plain data, and nothing that could run.

    Args:
        path: of the file.
        refusal: the message for a file that is damaged or holds Python objects.

    Raises:
        ValueError: with that message.
        OSError, MemoryError: it cannot be read.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # what torch raises for a foreign file depends on its bytes
        raise ValueError(refusal) from error
