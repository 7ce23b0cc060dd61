"""The two checkpoints of a run: the one it goes on from, and the best one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint

from audiolm.model.checkpoint import read_checkpoint


class LastCheckpoint(Checkpoint):
    """Writes last.ckpt every `every_n_train_steps` optimiser steps, and after the last step.

    ModelCheckpoint can do the former only, and a run of 250 steps that saves every 100 would lose
    its end. Lightning calls checkpoint callbacks after all others, so that the file holds what
    these did after the step.

    Args:
        dirpath: folder of the file.
        every_n_train_steps: optimiser steps between two files; a kill loses at most as many.
    """

    def __init__(self, dirpath: str | Path, every_n_train_steps: int = 100) -> None:
        if every_n_train_steps < 1:
            raise ValueError(
                f"callbacks.checkpoint.every_n_train_steps={every_n_train_steps} must be at least 1"
            )
        self.path = Path(dirpath) / "last.ckpt"
        self.every_n_train_steps = every_n_train_steps
        self._saved_at = 0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._saved_at = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        due = step % self.every_n_train_steps == 0 or step == trainer.max_steps
        if due:
            self._save(trainer)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.should_stop:  # early stopping has just said so: this was the last step
            self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        if trainer.global_step != self._saved_at:
            self._saved_at = trainer.global_step
            trainer.save_checkpoint(self.path, weights_only=False)


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint of the lowest validation loss, also over a resumed run.

    last.ckpt is written before the validation of its step and does not know its result. A run that
    went on from there would take a worse checkpoint for the best one; the file of the best one
    itself knows better.

    Args:
        dirpath: folder of the file.
        filename: its name, without .ckpt.
        monitor: name of the loss.
    """

    def __init__(
        self,
        dirpath: str | Path,
        filename: str = "best",
        monitor: str = "valid/nats_per_code",
    ) -> None:
        super().__init__(
            dirpath=dirpath, filename=filename, monitor=monitor, enable_version_counter=False
        )
        self.path = Path(dirpath) / f"{filename}.ckpt"

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        super().on_train_start(trainer, module)
        if trainer.global_step > 0 and self.path.exists():
            self.load_state_dict(read_checkpoint(self.path)["callbacks"][self.state_key])

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        # A codec has no such loss before its codebooks are fitted.
        if self.monitor in trainer.callback_metrics:
            super().on_validation_end(trainer, module)
