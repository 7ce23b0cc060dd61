"""How far a training is and how long it will take, on a terminal and in a log file."""

from __future__ import annotations

import sys
import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from audiolm.progress import audio_rate

_STEPS_BEFORE_ESTIMATE = 10


class StepProgressBar(TQDMProgressBar):
    """One bar over the optimiser steps of the whole training; Lightning's counts batches an epoch.

    Once the speed is known, a line tells the time that is left. Where the output is not a terminal
    there is such a line every `seconds_between_lines` and no bar. A module that counts the
    `audio_seconds` that its process has trained on has a speed in audio a minute, too.

    Args:
        refresh_rate: steps between two updates of the bar.
        seconds_between_lines: least time between two lines where there is no terminal.
    """

    def __init__(self, refresh_rate: int = 1, seconds_between_lines: float = 30.0) -> None:
        super().__init__(refresh_rate=refresh_rate)
        self.seconds_between_lines = seconds_between_lines
        # Clock, step and seconds of audio, once the first step, a slow one, is over.
        self._start = (0.0, 0, 0.0)
        self._first_step = 0
        self._last_step = 0
        self._last_line = 0.0

    @property
    def is_enabled(self) -> bool:
        return super().is_enabled and sys.stdout.isatty()

    def init_train_tqdm(self) -> Tqdm:
        bar = super().init_train_tqdm()
        bar.total = self.trainer.max_steps if self.trainer.max_steps > 0 else None
        bar.initial = bar.n = bar.last_print_n = self.trainer.global_step
        bar.unit = "step"
        return bar

    def on_train_start(self, *args: Any) -> None:
        super().on_train_start(*args)
        self._first_step = self._last_step = self.trainer.global_step

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Nothing: the bar continues over epochs."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        step = trainer.global_step
        if step == self._last_step:  # gradients are still being accumulated
            return
        self._last_step = step
        bar = self.train_progress_bar
        if self._should_update(step, trainer.max_steps):
            bar.n = step
            bar.set_postfix(self.get_metrics(trainer, pl_module))  # prints the bar as well
        if trainer.is_global_zero:
            self._print_lines(trainer, pl_module)

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)  # the number of a logger's run says nothing
        return metrics

    def _print_lines(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        now, step = time.monotonic(), trainer.global_step
        done = step - self._first_step
        if done == 1:
            self._start = (now, step, _audio_seconds(pl_module))
            self._last_line = now
        if done == 1 + _STEPS_BEFORE_ESTIMATE:
            self._say(self._speed(now, step, pl_module))
        elif not self.is_enabled and (
            now - self._last_line >= self.seconds_between_lines or step == trainer.max_steps
        ):
            self._last_line = now
            total = f"/{trainer.max_steps}" if trainer.max_steps > 0 else ""
            metrics = self.get_metrics(trainer, pl_module)
            numbers = [
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in metrics.items()
            ]
            speed = self._speed(now, step, pl_module)
            self._say(", ".join([f"step {step}{total}", *numbers, speed]))

    def _speed(self, now: float, step: int, pl_module: pl.LightningModule) -> str:
        start, start_step, start_audio = self._start
        if step == start_step or now <= start:
            return "speed not known yet"
        rate = (step - start_step) / (now - start)
        speed = f"{rate:.3g} steps/s"
        audio = (_audio_seconds(pl_module) - start_audio) * self.trainer.world_size
        if audio > 0:
            speed += f", {audio_rate(audio, now - start)}"
        if self.trainer.max_steps <= 0 or step >= self.trainer.max_steps:
            return speed
        return f"{_duration((self.trainer.max_steps - step) / rate)} left ({speed})"

    def _say(self, line: str) -> None:
        if self.is_enabled:
            self.train_progress_bar.write(line, file=sys.stdout)
        else:
            print(line, flush=True)


def _audio_seconds(pl_module: pl.LightningModule) -> float:
    return float(getattr(pl_module, "audio_seconds", 0.0))


def _duration(seconds: float) -> str:
    """A length of time, as long as it takes to be useful: about 40 seconds, 5 minutes, 2.5 hours"""
    if seconds < 90:
        return f"about {seconds:.0f} seconds"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} minutes"
    return f"about {seconds / 3600:.1f} hours"
