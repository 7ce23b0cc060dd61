"""What is said of the end of a training is what ended it, and its last step is kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, Timer

from audiolm.model.checkpoint import read_checkpoint
from audiolm.training import LastCheckpoint
from audiolm.training.ending import describe_ending


class Line(pl.LightningModule):
    """One weight, and a validation loss that rises."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.validated = 0

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self.weight.sum()

    def validation_step(self, batch: Any, index: int) -> None:
        self.validated += 1
        self.log("valid/loss", float(self.validated))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Stop(pl.Callback):
    """Asks for a stop after the second step, as whatever may ask."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        if trainer.global_step == 2:
            trainer.should_stop = True


class Clock(Timer):
    """`trainer.max_time` on a clock by which each step takes a second."""

    steps = 0

    def time_elapsed(self, stage: str = "train") -> float:
        return float(self.steps)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        self.steps += 1
        super().on_train_batch_end(trainer, *args, **kwargs)


@pytest.mark.parametrize(
    ("ends", "settings", "said"),
    [
        ([], {}, "9 steps"),
        (
            [EarlyStopping("valid/loss", patience=1)],
            {},
            "4 of 9 steps: valid/loss no longer fell, callbacks.early_stopping stopped it",
        ),
        (
            [EarlyStopping("valid/loss", patience=9, divergence_threshold=1.5)],
            {},
            "4 of 9 steps: callbacks.early_stopping stopped it, by valid/loss",
        ),
        (
            [Clock(timedelta(seconds=3))],
            {},
            "3 of 9 steps: trainer.max_time is over; resume with a longer one",
        ),
        ([Stop()], {}, "2 of 9 steps: the trainer was asked to stop"),
        ([], {"max_epochs": 1}, "5 of 9 steps: trainer.max_epochs=1 is reached"),
    ],
    ids=["whole", "patience", "divergence", "time", "asked", "epochs"],
)
def test_the_reason_is_the_one(
    tmp_path: Path, ends: list[pl.Callback], settings: dict[str, Any], said: str
) -> None:
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=9,
        val_check_interval=2,
        check_val_every_n_epoch=None if not settings else 1,
        num_sanity_val_steps=0,
        logger=False,
        callbacks=[*ends, LastCheckpoint(tmp_path, every_n_train_steps=100)],
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    batches = torch.utils.data.DataLoader(torch.zeros(5 if settings else 50, 1), batch_size=1)
    trainer.fit(Line(), batches, torch.utils.data.DataLoader(torch.zeros(1, 1)))
    assert describe_ending(trainer) == said
    if not settings:
        assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == trainer.global_step
