"""Batches of the token store for training and validation.

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import DataLoader

from audiolm.tokens import (
    StepSampler,
    TokenStore,
    TrainingWindows,
    ValidationWindows,
    collate,
    split_clips,
)
from audiolm.training.interrupt import ignore_interrupts


class StepLoader(DataLoader[Any]):
    """A DataLoader whose first batch is that of the step at which the trainer stands.

    It needs no state of its own to resume; the two methods tell Lightning so.
    """

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def check_data_settings(batch_size: int, valid_fraction: float) -> None:
    """Raise ValueError for settings out of range, before anything is encoded for them."""
    if batch_size < 1:
        raise ValueError(f"data.batch_size={batch_size} must be at least 1")
    if not 0 <= valid_fraction < 1:
        raise ValueError(f"data.valid_fraction={valid_fraction} must be from 0 to below 1")


class TokenData(pl.LightningDataModule):
    """Windows of `context_frames` frames from a store, as {codes (B, K, T), lengths (B,)}.

    The batch of step n is a function of (seed, n, rank). Validation goes through the held-out
    clips once, split among the ranks.

    Args:
        store: the codes.
        context_frames: T, frames of a window.
        batch_size: B, windows a rank and a step.
        valid_fraction: share of the clips that is held out.
        seed: of the order and the crops.
        num_workers: processes that read ahead; 0 reads in the training process, which for
            memory-mapped codes is the fastest up to many thousand windows a second.
    """

    def __init__(
        self,
        store: TokenStore,
        context_frames: int,
        batch_size: int = 16,
        valid_fraction: float = 0.05,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        check_data_settings(batch_size, valid_fraction)
        self.store = store
        self.valid_fraction = valid_fraction
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.train_spans, self.valid_spans = split_clips(store, valid_fraction)
        self.train_windows = TrainingWindows(store, self.train_spans, context_frames, seed)
        # Without held-out clips there is no validation.
        self.valid_windows = (
            ValidationWindows(store, self.valid_spans, context_frames)
            if len(self.valid_spans)
            else None
        )

    def train_dataloader(self) -> StepLoader:
        assert self.trainer is not None
        accumulate = self.trainer.accumulate_grad_batches
        # Overfitting goes through its few batches from the first one on, again and again.
        overfits: bool = self.trainer.overfit_batches > 0  # type: ignore[attr-defined]
        sampler = StepSampler(
            self.batch_size,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
            start_batch=0 if overfits else self.trainer.global_step * accumulate,
            num_batches=self.trainer.max_steps * accumulate,
        )
        return self._loader(self.train_windows, sampler)

    def val_dataloader(self) -> StepLoader | list[Any]:
        assert self.trainer is not None
        if self.valid_windows is None:
            return []
        rank, world_size = self.trainer.global_rank, self.trainer.world_size
        if len(self.valid_windows) < world_size:
            raise ValueError(
                f"{len(self.valid_windows)} held-out windows are too few for {world_size} "
                f"processes; raise data.valid_fraction={self.valid_fraction}, shorten context, "
                f"or take fewer trainer.devices"
            )
        mine = list(range(rank, len(self.valid_windows), world_size))
        batches = [mine[i : i + self.batch_size] for i in range(0, len(mine), self.batch_size)]
        return self._loader(self.valid_windows, batches)

    def _loader(self, windows: Any, batches: Sized) -> StepLoader:
        return StepLoader(
            windows,
            batch_sampler=batches,  # type: ignore[arg-type]
            collate_fn=collate,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            worker_init_fn=ignore_interrupts,
        )
