"""Ctrl-C and SIGTERM end a training with a checkpoint that resumes where it stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GracefulInterrupt(Callback):
    """The first Ctrl-C (or SIGTERM) ends the current step, saves, and stops; the second kills.

    Lightning's own answer is to drop the step and to exit with status 1. Here `Trainer.fit` returns
    as if training were over, with `interrupted` set: say how to resume, and exit with status 130.
    No validation runs any more. After a second Ctrl-C `fit` does not return (Lightning exits).

    With several processes all of them stop after the same step, whichever got the signal.

    Args:
        checkpoint_path: file to save to, such as checkpoints/last.ckpt.
    """

    def __init__(self, checkpoint_path: str | Path) -> None:
        self.checkpoint_path = Path(checkpoint_path)
        self.interrupted = False
        self._requested = False
        self._trainer: pl.Trainer | None = None
        self._process = 0
        self._old_handlers: dict[signal.Signals, Any] = {}
        self._step_before = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.interrupted = self._requested = False
        self._trainer = trainer
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():  # Python allows no other
            for number in _SIGNALS:
                self._old_handlers[number] = signal.signal(number, self._on_signal)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        self._step_before = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        if trainer.global_step == self._step_before:  # gradients are still being accumulated
            return
        if not trainer.strategy.reduce_boolean_decision(self._requested, all=False):
            return
        self.interrupted = True
        # In this hook ModelCheckpoint saves too: the one state that resumes exactly.
        trainer.save_checkpoint(self.checkpoint_path, weights_only=False)
        trainer.should_stop = True
        trainer.limit_val_batches = 0  # a stop would else start a validation
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.save_last = False  # at the end it may else save over the file above

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._restore_handlers()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self._restore_handlers()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked data worker: it is for the parent to decide
            if number != signal.SIGINT:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self._requested:
            self._restore_handlers()
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._requested = True
        trainer = self._trainer
        assert trainer is not None
        if trainer.is_global_zero:
            step = trainer.global_step + 1
            if 0 < trainer.max_steps < step:  # in the last validation
                step = trainer.max_steps
            line = f"\nstopping after step {step}, press Ctrl-C again to stop at once\n"
            # Not print(): it fails inside a print() that the signal has interrupted.
            with contextlib.suppress(OSError):
                os.write(2, line.encode())

    def _restore_handlers(self) -> None:
        while self._old_handlers:
            number, handler = self._old_handlers.popitem()
            signal.signal(number, handler)
