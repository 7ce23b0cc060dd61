"""Why a training ended, in words."""

from __future__ import annotations

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer

from audiolm.files import counted


def describe_ending(trainer: Trainer) -> str:
    """The steps that were trained; of fewer than `max_steps` also what ended the training."""
    step, wanted = trainer.global_step, trainer.max_steps
    if step >= wanted:
        return counted(step, "step")
    return f"{step:,} of {counted(wanted, 'step')}: {_reason(trainer)}"


def _reason(trainer: Trainer) -> str:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):
            if callback.wait_count >= callback.patience:
                return f"{callback.monitor} no longer fell, callbacks.early_stopping stopped it"
            if getattr(callback, "stopping_reason_message", None):  # not in Lightning 2.5
                return f"callbacks.early_stopping stopped it, by {callback.monitor}"
        if isinstance(callback, Timer):
            left = callback.time_remaining()
            if left is not None and left <= 0:
                return "trainer.max_time is over; resume with a longer one"
    limit = trainer.max_epochs
    if limit is not None and 0 <= limit <= trainer.current_epoch:
        return f"trainer.max_epochs={limit} is reached"
    return "the trainer was asked to stop"
