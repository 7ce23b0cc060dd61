"""Exponential moving average of the weights: smoother than the last step's, often a bit better.

Lightning's EMAWeightAveraging (2.6) was considered. It has no public way to use the averaged
weights outside validation, validates with the weights of the start until its first update, and
leaves the average in the model at the end, where a checkpoint then takes it for the trained
weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from audiolm.limits import SHARE_BELOW_1


class EMA(Callback):
    """Keeps the average; validation, and code inside `averaged_weights`, runs with it.

    After update n (counted from 0) `average = d * average + (1 - d) * weights`, in float32, where
    d = min(decay, (1 + n) / (10 + n)), so that a short run is not an average with its start.

    Checkpoints keep the trained weights as `state_dict` and have `ema_state_dict` beside it: the
    same names, the averages for the parameters, the model's own values for the buffers. For models
    that are whole on each device (not for FSDP).

    Args:
        decay: share of the old average that stays at a step, from 0 to below 1.

    Raises:
        ValueError: for a decay outside [0, 1).
    """

    def __init__(self, decay: float = 0.999) -> None:
        self.decay = SHARE_BELOW_1.check("callbacks.ema.decay", decay, "such as 0.999")
        self._averages: dict[str, Tensor] = {}
        self._updates = 0
        self._seen_step = 0
        self._trained: dict[str, Tensor] | None = None  # while the model holds the averages

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for name, weight in pl_module.named_parameters():
            # Those of a checkpoint are there already, but on the CPU.
            average = self._averages.get(name, weight.detach())
            self._averages[name] = average.to(weight.device, torch.float32, copy=True)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._seen_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any
    ) -> None:
        self._update(trainer, pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._swap_in(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._swap_out(pl_module)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self._swap_out(pl_module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # A callback before this one may save: the average must belong to the weights beside it.
        self._update(trainer, pl_module)
        if not self._averages:  # saved outside a training
            return
        averaged = dict(checkpoint["state_dict"])
        own_name = {id(weight): name for name, weight in pl_module.named_parameters()}
        for name, weight in pl_module.named_parameters(remove_duplicate=False):  # tied weights
            if name in averaged:
                averaged[name] = self._averages[own_name[id(weight)]]
                if self._trained is not None:
                    checkpoint["state_dict"][name] = self._trained[own_name[id(weight)]]
        checkpoint["ema_state_dict"] = averaged
        checkpoint["ema_updates"] = self._updates

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        averaged = checkpoint.get("ema_state_dict", {})  # none if EMA was off until now
        self._averages = {
            name: averaged[name] for name, _ in pl_module.named_parameters() if name in averaged
        }
        self._updates = checkpoint.get("ema_updates", 0)

    @torch.no_grad()
    def _update(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # The step is unchanged where gradients are still being accumulated.
        if not self._averages or trainer.global_step == self._seen_step:
            return
        self._seen_step = trainer.global_step
        decay = min(self.decay, (1 + self._updates) / (10 + self._updates))
        self._updates += 1
        for name, weight in pl_module.named_parameters():
            self._averages[name].lerp_(weight.float(), 1 - decay)

    @torch.no_grad()
    def _swap_in(self, pl_module: pl.LightningModule) -> None:
        if self._trained is not None or not self._averages:
            return
        self._trained = {name: w.detach().clone() for name, w in pl_module.named_parameters()}
        for name, weight in pl_module.named_parameters():
            weight.copy_(self._averages[name])

    @torch.no_grad()
    def _swap_out(self, pl_module: pl.LightningModule) -> None:
        if self._trained is not None:
            for name, weight in pl_module.named_parameters():
                weight.copy_(self._trained[name])
            self._trained = None


@contextmanager
def averaged_weights(trainer: pl.Trainer) -> Iterator[None]:
    """The model of the trainer holds its averaged weights inside, where it keeps any."""
    ema = next((c for c in trainer.callbacks if isinstance(c, EMA)), None)  # type: ignore[attr-defined]
    if ema is None or ema._trained is not None:
        yield
        return
    ema._update(trainer, trainer.lightning_module)
    ema._swap_in(trainer.lightning_module)
    try:
        yield
    finally:
        ema._swap_out(trainer.lightning_module)
