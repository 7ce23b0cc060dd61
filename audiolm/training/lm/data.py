"""`audiolm.batches.loaders` as Lightning's trainer asks for them."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from audiolm.batches.loaders import StepLoader, TokenBatches


class TokenData(TokenBatches, pl.LightningDataModule):
    """Batches for the step at which the trainer stands, in the process that it is.

    Arguments and attributes are those of `TokenBatches`.
    """

    def train_dataloader(self) -> StepLoader:
        trainer = self.trainer
        assert trainer is not None
        # Overfitting goes through its few batches from the first one on, again and again.
        overfits: bool = trainer.overfit_batches > 0  # type: ignore[attr-defined]
        return self.training_loader(
            trainer.max_steps,
            0 if overfits else trainer.global_step,
            trainer.accumulate_grad_batches,
            trainer.global_rank,
            trainer.world_size,
        )

    def val_dataloader(self) -> StepLoader | list[Any]:
        assert self.trainer is not None
        return self.validation_loader(self.trainer.global_rank, self.trainer.world_size)
