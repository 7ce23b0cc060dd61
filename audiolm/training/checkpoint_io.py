"""Checkpoints that are whole or not there, and that hold data, never code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from audiolm.model.checkpoint import read_checkpoint

_PARTIAL = ".partial"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint plugin, for local files: `Trainer(plugins=[AtomicCheckpointIO()])`.

    Lightning's own writes to the system's temporary folder and moves the file from there, which is
    a plain copy, and can be cut short, where that folder is on another disk; nor does it wait for
    the disk.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write the checkpoint so that a kill at any moment leaves the old or the new file whole.

        Raises:
            OSError: the folder cannot be written, or the disk is full; an older file is kept.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        for left_by_a_kill in path.parent.glob(f".*{_PARTIAL}"):
            left_by_a_kill.unlink(missing_ok=True)
        partial = path.with_name(f".{path.name}{_PARTIAL}")
        try:
            with partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except (OSError, RuntimeError) as error:  # torch may hide the OSError of a full disk
            raise OSError(
                f"{path}: the checkpoint could not be written ({_first_line(error)}); "
                f"{'the older one is kept: ' if path.exists() else ''}free some space and go on "
                f"with ckpt_path=last"
            ) from error
        finally:
            partial.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """`read_checkpoint(path)`: always to the CPU, always data only, whatever is asked for."""
        return read_checkpoint(path)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:100]


def _sync_folder(folder: Path) -> None:
    # The new name is on the disk only once its folder is; Windows cannot open a folder.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
