"""The checkpoint that a run goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint


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
        if due and step != self._saved_at:
            self._saved_at = step
            trainer.save_checkpoint(self.path, weights_only=False)
