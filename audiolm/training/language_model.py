"""The LightningModule that trains the language model.

Letters: B batch, K codebooks, T codec frames, S sequence steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor

from audiolm.generation.checkpoint import CHECKPOINT_FORMAT, build_model
from audiolm.model.loss import bits_per_second, codebook_nats, mean_nats, scored_cells
from audiolm.model.patterns import interleave
from audiolm.training.metrics_csv import MetricsCSV
from audiolm.training.optimisation import make_optimizer

Batch = Mapping[str, Tensor]


class LanguageModelTraining(pl.LightningModule):
    """Steps, losses and metrics of training `AudioLM` on batches of codes.

    All arguments are plain data and are kept in checkpoints, so that
    `generation.checkpoint.load_checkpoint` can rebuild the model from the file alone.

    Args:
        model: arguments of `AudioLM` but for what follows from codec, pattern and context.
        pattern: name of the codebook pattern.
        codec: the codec's identity (`Codec.identity`).
        context_frames: frames of a training window.
        optim: arguments of `make_optimizer` but for `model` and `max_steps`.
        seed: of the dropout; that of step n follows from (seed, n, rank).

    Raises:
        ValueError: for settings that do not fit together.
    """

    def __init__(
        self,
        model: dict[str, Any],
        pattern: str,
        codec: dict[str, Any],
        context_frames: int,
        optim: dict[str, Any],
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model, self.pattern = build_model(model, pattern, codec, context_frames)
        self.codec = codec
        self.optim = optim
        self.seed = seed
        # Moves with the model, and follows from the pattern: not part of a checkpoint.
        self.positions: Tensor
        self.register_buffer("positions", self.pattern.positions(context_frames), persistent=False)
        self._valid: tuple[Tensor, Tensor] | None = None  # nats and counts so far
        self._logged_at: tuple[float, int] | None = None  # clock and codes at the last log
        self._codes_seen = 0

    def nats(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Summed nats (K,) and numbers of codes (K,) of {codes (B, K, T), lengths (B,)}."""
        codes, lengths = batch["codes"], batch["lengths"]
        mask = scored_cells(self.positions, lengths, codes.shape[2])
        steps = interleave(codes, self.positions, self.model.special)
        steps = steps.masked_fill(~mask, self.model.special)  # padding is read as nothing
        return codebook_nats(self.model(steps), steps, mask)

    def on_train_start(self) -> None:
        for logger in self.trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.start(self.trainer.global_step)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Dropout of a step depends on the step alone: a resumed run needs no random state, and
        # nothing else that draws numbers (sampling, validation) can change the training.
        words = np.random.SeedSequence([self.seed, batch_idx, self.global_rank])
        torch.manual_seed(int(words.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        nats, counts = self.nats(batch)
        loss = mean_nats(nats, counts)
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError(
                f"the loss is {float(loss.detach())} at step {self.global_step}; the weights "
                f"before it are kept: lower optim.lr, or raise optim.warmup_steps, and go on "
                f"with ckpt_path=last"
            )
        self._codes_seen += int(batch["lengths"].sum()) * self.model.num_codebooks
        self.log("loss", loss.detach(), prog_bar=True, logger=False)
        if self._is_logging_step():
            self._log_nats("train", nats.detach(), counts)
            self._log_speed()
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # One pass gives both the norm to log and the clipping.
        limit = float("inf") if gradient_clip_val is None else gradient_clip_val
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), limit)
        if self._is_logging_step():
            self.log("optim/grad_norm", norm)
            self.log("optim/lr", optimizer.param_groups[0]["lr"])

    def on_validation_epoch_start(self) -> None:
        zeros = torch.zeros(self.model.num_codebooks, device=self.device, dtype=torch.float64)
        self._valid = (zeros, zeros.clone())

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        assert self._valid is not None
        for total, new in zip(self._valid, self.nats(batch), strict=True):
            total += new

    def on_validation_epoch_end(self) -> None:
        assert self._valid is not None
        # Sums over all ranks, then one division: every held-out code counts once and the same.
        nats, counts = (self.trainer.strategy.reduce(x, reduce_op="sum") for x in self._valid)
        self._valid = None
        self._log_nats("valid", nats, counts)

    def configure_optimizers(self) -> Any:
        optimizer, schedule = make_optimizer(self.model, self.trainer.max_steps, **self.optim)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["audiolm_format"] = CHECKPOINT_FORMAT

    def _is_logging_step(self) -> bool:
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        return (self.global_step + 1) % max(1, every) == 0

    def _log_nats(self, stage: str, nats: Tensor, counts: Tensor) -> None:
        self.log(f"{stage}/nats_per_code", mean_nats(nats, counts).float())
        rate = bits_per_second(nats, counts, self.codec["frame_rate"])
        self.log(f"{stage}/bits_per_second", rate.float())
        means = nats / counts.clamp(min=1)
        for k in range(len(means)):
            self.log(f"{stage}/nats_per_code_k{k}", means[k].float())

    def _log_speed(self) -> None:
        now = time.perf_counter()
        if self._logged_at is not None:
            then, codes = self._logged_at
            speed = (self._codes_seen - codes) * self.trainer.world_size / (now - then)
            self.log("train/codes_per_second", speed)
        self._logged_at = (now, self._codes_seen)
