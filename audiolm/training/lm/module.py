"""The LightningModule that trains the language model.

Letters: B batch, K codebooks, T codec frames, S sequence steps.
"""

from __future__ import annotations

from typing import Any, cast

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from audiolm.batches.windows import WindowBatch
from audiolm.model.checkpoint import CHECKPOINT_FORMAT, build_model
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.conditioning import drop_conditions
from audiolm.model.likelihood import Prediction, predict
from audiolm.model.loss import bits_per_second, mean_nats
from audiolm.training.lm.clock import StepClock
from audiolm.training.loggers.metrics_csv import MetricsCSV
from audiolm.training.optimisation import (
    clip_gradients,
    make_optimizer,
    override_optimizer_settings,
)

Batch = WindowBatch


def check_history_noise(history_noise: float) -> None:
    """Raise ValueError for a share of random codes that is out of range."""
    if not 0 <= history_noise <= 0.5:
        raise ValueError(f"history_noise={history_noise} must be from 0 to 0.5")


class LanguageModelTraining(pl.LightningModule):
    """Steps, losses and metrics of training `AudioLM` on batches of codes.

    All arguments are plain data and are kept in checkpoints, so that
    `model.checkpoint.load_checkpoint` can rebuild the model from the file alone.

    Args:
        model: arguments of `AudioLM` but for what follows from codec, pattern and context.
        pattern: name of the codebook pattern, or its delays.
        codec: the codec's identity (`Codec.identity`).
        context_frames: frames of a training window.
        optim: arguments of `make_optimizer` but for `model` and `max_steps`.
        conditioning: what the model is conditioned on, as `ConditionVocabulary.settings` gives it;
            None for nothing.
        history_noise: share of the codes that are read in training as random ones, on average.
        seed: of all that is random; that of step n follows from (seed, n, rank).
        origin: license and base model of the weights that it begins with; kept with the checkpoint.
        data: where the codes come from and how they are dealt out; kept with the checkpoint for
            those that resume from it or evaluate it, and not used here.

    Raises:
        ValueError: for settings that do not fit together.
    """

    def __init__(
        self,
        model: dict[str, Any],
        pattern: str | list[int],
        codec: dict[str, Any],
        context_frames: int,
        optim: dict[str, Any],
        conditioning: dict[str, Any] | None = None,
        history_noise: float = 0.0,
        seed: int = 0,
        data: dict[str, Any] | None = None,
        origin: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_history_noise(history_noise)
        self.save_hyperparameters()
        self.history_noise = history_noise
        self.vocabulary = (
            None if conditioning is None else ConditionVocabulary.from_settings(conditioning)
        )
        self.model, self.pattern = build_model(
            model, pattern, codec, context_frames, self.vocabulary
        )
        self.codec = codec
        self.optim = optim
        self.seed = seed
        self.clock = StepClock()
        self.audio_seconds = 0.0
        """Of audio that this process has trained on."""
        self.context_frames = context_frames
        self._train = self._valid = self._no_nats()  # nats, counts and frames so far

    def _no_nats(self) -> tuple[Tensor, Tensor, Tensor]:
        zeros = torch.zeros(self.model.num_codebooks, device=self.device, dtype=torch.float64)
        return zeros, zeros.clone(), zeros[0].clone()

    def predict(self, batch: Batch, history_noise: float = 0.0) -> Prediction:
        """What the model expects of a batch."""
        return predict(
            self.model,
            self.pattern,
            self.context_frames,
            batch["codes"],
            batch["lengths"],
            batch["reaches_end"],
            batch["conditions"],
            history_noise,
        )

    def on_train_start(self) -> None:
        for logger in self.trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.start(self.trainer.global_step)
        if self.trainer.global_step > 0:
            fresh = make_optimizer(self.model, self.trainer.max_steps, **self.optim)
            schedule = self.trainer.lr_scheduler_configs[0].scheduler
            override_optimizer_settings(self.trainer.optimizers[0], cast(LambdaLR, schedule), fresh)
        self._train = self._no_nats()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.clock.start_step()
        # Dropout of a step depends on the step alone: a resumed run needs no random state, and
        # nothing else that takes random numbers (sampling, validation) can change the training.
        seeds = np.random.SeedSequence([self.seed, batch_idx, self.global_rank])
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.vocabulary is not None and self.vocabulary.drop:
            dropped = drop_conditions(batch["conditions"], self.vocabulary.drop)
            batch = {**batch, "conditions": dropped}
        nats, counts = self.predict(batch, self.history_noise).nats()
        frames = batch["lengths"].sum()
        mean = mean_nats(nats.detach(), counts)
        if not bool(torch.isfinite(mean)):
            raise FloatingPointError(self._not_finite("loss", mean))
        for total, new in zip(self._train, (nats.detach(), counts, frames), strict=True):
            total += new
        self.clock.count(int(frames) * self.model.num_codebooks)
        self.audio_seconds += int(frames) / self.codec["frame_rate"]
        self.log("loss (nats per code)", mean, prog_bar=True, logger=False)
        # Divided by what a batch of full windows holds, which is the same for all batches: so a
        # code weighs the same in whatever batch, accumulated batch or process it is trained on.
        return nats.sum() / batch["full"]

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Once an optimiser step, however many batches it accumulates.
        limit = gradient_clip_val or float("inf")  # None and 0 are off
        norm = clip_gradients(self.parameters(), limit)
        # A scaler of float16 gradients skips such steps itself.
        if not bool(torch.isfinite(norm)) and not str(self.trainer.precision).startswith("16"):
            raise FloatingPointError(self._not_finite("gradient", norm))
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if (self.global_step + 1) % max(1, every) == 0:
            self._log_nats("train", *self._train)
            self.log("optim/grad_norm", norm)
            self.log("optim/lr", optimizer.param_groups[0]["lr"])
            speed = self.clock.codes_per_second()
            if speed is not None:
                self.log("train/codes_per_second", speed * self.trainer.world_size)
        self._train = self._no_nats()

    def on_validation_epoch_start(self) -> None:
        self.clock.disturbed()
        self._valid = self._no_nats()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        sums = (*self.predict(batch).nats(), batch["lengths"].sum())
        for total, new in zip(self._valid, sums, strict=True):
            total += new

    def on_validation_epoch_end(self) -> None:
        # Sums over all ranks, then one division: every validation code counts once and the same.
        sums = [self.trainer.strategy.reduce(x, reduce_op="sum") for x in self._valid]
        self._log_nats("valid", *cast(list[Tensor], sums))

    def configure_optimizers(self) -> Any:
        optimizer, schedule = make_optimizer(self.model, self.trainer.max_steps, **self.optim)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["audiolm_format"] = CHECKPOINT_FORMAT

    def _not_finite(self, what: str, value: Tensor) -> str:
        return (
            f"the {what} is {float(value)} at step {self.global_step}; checkpoints from before are "
            f"untouched: lower optim.lr={self.optim.get('lr')} or raise optim.warmup_steps, and go "
            f"on with ckpt_path=last, or anew where there is none"
        )

    def _log_nats(self, stage: str, nats: Tensor, counts: Tensor, frames: Tensor) -> None:
        self.log(f"{stage}/nats_per_code", mean_nats(nats, counts).float())
        rate = bits_per_second(nats, frames, self.codec["frame_rate"])
        self.log(f"{stage}/bits_per_second", rate.float())
        means = nats / counts.clamp(min=1)
        for k in range(len(means)):
            self.log(f"{stage}/nats_per_code_k{k}", means[k].float())
