"""The two checkpoints of a run: the one it resumes from, the best one, and how they are written.

A checkpoint is whole or not there, and holds data, never code.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint

from audiolm.model.checkpoint import read_checkpoint
from audiolm.run_folder import BEST, LAST


class LastCheckpoint(Checkpoint):
    """Writes last.ckpt every `every_n_train_steps` optimiser steps, and after the last step.

    ModelCheckpoint can do the former only, and a run of 250 steps that saves every 100 would lose
    its end. Lightning calls checkpoint callbacks after all others, so that the file holds what
    these did after the step. Where a validation follows the step, the file is written after it:
    a run that resumes does not validate at the step that it resumes from, so that what a kill in
    the middle of it took away would be gone, and the best model with it.

    Args:
        dirpath: folder of the file.
        every_n_train_steps: optimiser steps between two files; a kill loses at most as many.
    """

    def __init__(self, dirpath: str | Path, every_n_train_steps: int = 100) -> None:
        if every_n_train_steps < 1:
            raise ValueError(
                f"callbacks.checkpoint.every_n_train_steps={every_n_train_steps} must be at least 1"
            )
        self.path = Path(dirpath) / LAST
        self.every_n_train_steps = every_n_train_steps
        self._saved_at = 0
        self._after_validation = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._saved_at = trainer.global_step
        loop = trainer.fit_loop.epoch_loop
        if loop.restarted_on_last and not _validates_now(trainer):
            # The interval is another one now: Lightning, which passes over the validation that was
            # had, would pass over this step's place in the metrics too.
            loop._batches_that_stepped += 1

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        # Whatever ends a training before its last step, its time for one, says so before.
        is_last = step == trainer.max_steps or trainer.should_stop
        if step % self.every_n_train_steps == 0 or is_last:
            if _validates_now(trainer) and not trainer.should_stop:
                self._after_validation = True
            else:
                self._save(trainer)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        # Early stopping may just have said that this was the last step.
        if self._after_validation or trainer.should_stop:
            self._after_validation = False
            self._save(trainer)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self._after_validation:  # which did not come
            self._after_validation = False
            self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        if trainer.global_step != self._saved_at:
            self._saved_at = trainer.global_step
            trainer.save_checkpoint(self.path, weights_only=False)


def _validates_now(trainer: pl.Trainer) -> bool:
    """Whether a validation follows the batch that has just been trained on.

    Lightning's own word on it, which depends on more than the step: on epochs, and on a stop.
    """
    loop = trainer.fit_loop
    fetcher = loop._data_fetcher
    if fetcher is None or not loop.epoch_loop._should_check_val_fx(fetcher):
        return False
    # With nothing to validate on, it is passed over without a word.
    validation = loop.epoch_loop.val_loop
    validation.setup_data()
    return not validation.skip


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint of the lowest validation loss, also over a resumed run.

    The file itself says how good it is, and nothing else does: what Lightning keeps in last.ckpt
    counts for a folder of the same path only, so that a run that was moved would lose its best
    model. It comes before `LastCheckpoint`, so that where that file is written, this one is too.

    Args:
        dirpath: folder of the file.
        monitor: name of the loss.

    Raises:
        ValueError: at the start of a resumed run, where the file there is the best by another loss,
            or is damaged.
    """

    def __init__(
        self,
        dirpath: str | Path,
        monitor: str = "valid/nats_per_code",
    ) -> None:
        super().__init__(
            dirpath=dirpath,
            filename=Path(BEST).stem,
            monitor=monitor,
            enable_version_counter=False,
        )
        # As Lightning spells it, which removes the file before where its path is another one.
        self.path = Path(str(self.dirpath)) / BEST

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        super().on_train_start(trainer, module)
        if trainer.global_step > 0 and self.path.exists():
            self._continue_from(read_checkpoint(self.path)["callbacks"].get(self.state_key))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: see above."""

    def _continue_from(self, state: dict[str, Any] | None) -> None:
        if state is None or state["best_model_score"] is None:
            raise ValueError(
                f"{self.path} is not the best by {self.monitor}, and would be overwritten; move it "
                f"away, or keep the callbacks.best_checkpoint.monitor that it was chosen by"
            )
        score, path = state["best_model_score"], str(self.path)
        self.best_model_score = self.kth_value = score
        self.best_model_path = self.kth_best_model_path = path
        self.best_k_models = {path: score}

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        # A codec has no such loss before its codebooks are fitted.
        if self.monitor in trainer.callback_metrics:
            super().on_validation_end(trainer, module)


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
                f"{'the older one is kept: ' if path.exists() else ''}free some space and resume "
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
