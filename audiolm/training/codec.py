"""The LightningModule that trains an EnCodec.

B batch, C audio channels, N audio samples, K codebooks, T codec frames, D width of the latents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, cast

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from audiolm.codec.adversarial import Adversary
from audiolm.codec.balancer import Balancer
from audiolm.codec.elu import use_fast_elu
from audiolm.codec.initialise import initialise_on_data
from audiolm.codec.losses import MultiScaleMel, si_snr, time_loss
from audiolm.codec.quantizer import (
    Quantized,
    codebook_of,
    initialise_codebooks,
    perplexity,
    quantize,
    update_codebooks,
)
from audiolm.codec.settings import build_model, check_settings
from audiolm.training.metrics_csv import MetricsCSV
from audiolm.training.optimisation import make_optimizer, take_settings_from
from audiolm.training.waveforms import WaveformData

CODEC_FORMAT = 1
DECIBEL = 20 / math.log(10)  # a neper

LOSSES: dict[str, float] = {
    "time": 1.0,  # L1, as a share of the mean magnitude
    "mel": 1.5,  # L1 + L2 of log-mel spectra
    "commitment": 0.25,
    "latents": 0.01,  # of latents whose mean square is above 1
}
ADVERSARIAL: dict[str, Any] = {
    "enabled": False,
    "start": 0.0,  # share of the steps before which there is no discriminator
    "adversarial": 3.0,  # weight of passing for real
    "features": 3.0,  # weight of the distance of the discriminator's features
    "filters": 32,
    "n_ffts": [1024, 2048, 512],
    "update_probability": 2 / 3,  # of the discriminator at a step, so that it does not win
    "lr": 3e-4,
}
QUANTIZATION: dict[str, Any] = {
    "start": 0.0,  # share of the steps before which the latents get noise instead
    "noise": [0.1, 0.5],  # its standard deviation, as a share of the latents' rms
    "freeze_encoder": False,  # encoder and codebooks stay as they are from `start` on
    "levels": None,  # numbers of codebooks that a step draws from; null is all of them always
    "decay": 0.99,  # of the averages that codebooks follow
    "dead_below": 0.15,  # a code used less than this share of the mean is replaced
    "init_segments": 512,  # whose latents k-means starts from
}


class CodecTraining(pl.LightningModule):
    """Steps, losses and metrics of training an EnCodec on batches of waveforms (B, C, N).

    Two stages. Before `quantization.start` an auto-encoder whose latents get Gaussian noise; then
    the codebooks are fitted to its latents and quantization takes the noise's place. With start 0
    there is one stage, as in the paper. With a discriminator the losses on the waveform go through
    the loss balancer, as in the paper. Source: EnCodec, arXiv:2210.13438.

    All arguments are plain data and are kept in checkpoints.

    Args:
        settings: of the codec, see `audiolm.codec.settings`.
        losses: weights, by the names in `LOSSES`.
        quantization: see `QUANTIZATION`.
        adversarial: see `ADVERSARIAL`.
        optim: arguments of `make_optimizer` but for `model` and `max_steps`.
        clip: largest norm of a step's gradient.
        seed: of weights, noise and levels; what step n draws follows from (seed, n).

    Raises:
        ValueError: for settings that do not fit together.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        losses: dict[str, float],
        quantization: dict[str, Any],
        adversarial: dict[str, Any],
        optim: dict[str, Any],
        clip: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.settings = check_settings(settings)
        if self.settings["segment"] is not None:
            raise ValueError("codec settings: segment must be null, it is not trained with")
        self.loss_weights = LOSSES | losses
        self.quantization = _checked_quantization(QUANTIZATION | quantization, self.settings)
        self.optim, self.clip, self.seed = optim, clip, seed
        torch.manual_seed(seed)
        self.model = build_model(self.settings)
        use_fast_elu(self.model)
        self.mel = MultiScaleMel(self.settings["sample_rate"])
        self.adversarial = ADVERSARIAL | adversarial
        self.adversary: Adversary | None = None
        if self.adversarial["enabled"]:
            self.adversary = Adversary(
                self.settings["channels"], self.adversarial["filters"], self.adversarial["n_ffts"]
            )
            shares = ("time", "mel"), ("adversarial", "features")
            self.balancer = Balancer(
                {name: self.loss_weights[name] for name in shares[0]}
                | {name: self.adversarial[name] for name in shares[1]}
            )
        self._train = _Means()

    # ---- Steps

    @property
    def quantizes(self) -> bool:
        """Whether the codebooks are fitted already."""
        return bool(codebook_of(self.model.quantizer, 0).inited)

    def on_train_start(self) -> None:
        for logger in self.trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.start(self.trainer.global_step)
        if self.trainer.global_step > 0:
            fresh = make_optimizer(self.model, self.trainer.max_steps, **self.optim)
            schedule = self.trainer.lr_scheduler_configs[0].scheduler
            take_settings_from(self.trainer.optimizers[0], cast(LambdaLR, schedule), fresh)
        else:
            initialise_on_data(self.model, self._some_segments(32))

    def _some_segments(self, count: int) -> Tensor:
        """The first training segments (count, C, N), the same in all processes."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, WaveformData)
        return torch.stack([data.train_segments[i] for i in range(count)]).to(self.device)

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        step = self.trainer.global_step
        # The same draws in a resumed run, and for the numbers of levels in all processes.
        self._generator = torch.Generator().manual_seed(_word(self.seed, step))
        torch.manual_seed(_word(self.seed, step, 1 + self.global_rank))
        if self._past(self.quantization["start"]) and not self.quantizes:
            self._fit_codebooks()

    @torch.no_grad()
    def _fit_codebooks(self) -> None:
        latents = []
        for first in range(0, self.quantization["init_segments"], 32):
            data = self.trainer.datamodule  # type: ignore[attr-defined]
            part = [data.train_segments[i] for i in range(first, first + 32)]
            encoded = self.model.encoder(torch.stack(part).to(self.device))
            latents.append(encoded.transpose(1, 2).flatten(0, 1))
        initialise_codebooks(self.model.quantizer, torch.cat(latents), self.seed)

    def training_step(self, waveform: Tensor, batch_idx: int) -> None:
        frozen = self.quantizes and self.quantization["freeze_encoder"]
        with torch.no_grad() if frozen else nullcontext():
            latents = self.model.encoder(waveform)
        parts: dict[str, Tensor] = {}
        quantized: Quantized | None = None
        if self.quantizes:
            quantized = quantize(self.model.quantizer, latents, self._draw_levels())
            decoder_input = quantized.latents
            parts["commitment"] = quantized.commitment
        else:
            decoder_input = latents + self._noise(latents)
        if not frozen:
            parts["latents"] = (latents.square().mean() - 1).clamp(min=0)
        decoded = self.model.decoder(decoder_input)[..., : waveform.shape[-1]]
        heard = {"time": time_loss(decoded, waveform)}
        l1, l2 = self.mel(decoded, waveform)
        heard["mel"] = l1 + l2
        if self.adversary is not None and self._past(self.adversarial["start"]):
            parts["discriminator"] = self._train_discriminator(waveform, decoded)
            heard |= self.adversary.generator_losses(waveform, decoded)._asdict()
        loss = self._weighted(parts) + self._weighted(heard)
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError(
                f"the loss is {float(loss)} at step {self.trainer.global_step}; checkpoints from "
                f"before are untouched: lower optim.lr={self.optim.get('lr')}, and go on with "
                f"ckpt_path=last, or anew where there is none"
            )

        optimizer, *_ = self._optimizers()
        optimizer.zero_grad()
        if self.adversary is None:
            self.manual_backward(loss)
        else:
            inner = self._weighted(parts)
            if inner.requires_grad:
                self.manual_backward(inner, retain_graph=True)
            self.manual_backward(decoded, gradient=self.balancer.gradient(heard, decoded))
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        optimizer.step()
        schedules: Any = self.lr_schedulers()
        for schedule in schedules if isinstance(schedules, list) else [schedules]:
            schedule.step()
        if quantized is not None and not frozen:
            update_codebooks(
                self.model.quantizer,
                quantized,
                self.quantization["decay"],
                self.quantization["dead_below"],
                self._generator,
            )
        self.log("loss", loss.detach(), prog_bar=True, logger=False)
        self._train.add({**parts, **heard, "loss": loss, "grad_norm": norm})
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if self.trainer.global_step % max(1, every) == 0:
            for name, value in self._train.take().items():
                self.log(f"train/{name}", value)
            self.log("optim/lr", optimizer.param_groups[0]["lr"])

    def _past(self, share: float) -> bool:
        """Whether this share of the steps is over."""
        return self.trainer.global_step >= round(share * self.trainer.max_steps)

    def _weighted(self, parts: Mapping[str, Tensor]) -> Tensor:
        weights = {**self.loss_weights, **self.adversarial, "discriminator": 0.0}
        terms = [weights[name] * part for name, part in parts.items()]
        return torch.stack(terms).sum() if terms else torch.zeros((), device=self.device)

    def _optimizers(self) -> list[Any]:
        """The codec's, which counts the steps, and the discriminator's, which does not."""
        counting: Any = self.optimizers()
        plain: Any = self.optimizers(use_pl_optimizer=False)
        return [counting[0], plain[1]] if isinstance(counting, list) else [counting]

    def _train_discriminator(self, real: Tensor, fake: Tensor) -> Tensor:
        """Its loss; a step of it is taken at a share of the steps."""
        assert self.adversary is not None
        loss = self.adversary.discriminator_loss(real, fake)
        if (
            float(torch.rand((), generator=self._generator))
            < self.adversarial["update_probability"]
        ):
            _, optimizer = self._optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss.detach()

    def _draw_levels(self) -> int:
        """The number of codebooks of this step, the same in all processes."""
        levels = self.quantization["levels"]
        return int(levels[int(torch.randint(len(levels), (), generator=self._generator))])

    def _noise(self, latents: Tensor) -> Tensor:
        """Gaussian noise (B, D, T) whose strength is drawn for each item."""
        low, high = self.quantization["noise"]
        strength = low + (high - low) * torch.rand(len(latents), 1, 1, device=latents.device)
        rms = latents.detach().square().mean().sqrt()
        noise: Tensor = strength * rms * torch.randn_like(latents)
        return noise

    # ---- Validation

    @torch.no_grad()
    def reconstruct(self, waveform: Tensor, n_q: int) -> tuple[Tensor, Tensor | None]:
        """Decoded waveform (B, C, N) and codes (K, B, T); unquantized and None before the start."""
        latents = self.model.encoder(waveform)
        codes = None
        if self.quantizes:
            quantized = quantize(self.model.quantizer, latents, n_q)
            latents, codes = quantized.latents, quantized.codes
        return self.model.decoder(latents)[..., : waveform.shape[-1]], codes

    def on_validation_epoch_start(self) -> None:
        self._valid = _Means()
        self._counts = torch.zeros(
            self.settings["n_q"], self.settings["bins"], device=self.device, dtype=torch.float64
        )

    def validation_step(self, waveform: Tensor, batch_idx: int) -> None:
        for n_q in sorted(set(self.quantization["levels"])) if self.quantizes else [0]:
            decoded, codes = self.reconstruct(waveform, n_q)
            l1, l2 = self.mel(decoded, waveform)
            # Before there are codebooks, the figures are those of the auto-encoder.
            end = f"k{n_q}" if self.quantizes else "unquantized"
            self._valid.add(
                {
                    f"si_snr_{end}": si_snr(decoded, waveform).mean(),
                    f"mel_distance_{end}": l1 * DECIBEL,
                    f"loss_{end}": self.loss_weights["time"] * time_loss(decoded, waveform)
                    + self.loss_weights["mel"] * (l1 + l2),
                },
                len(waveform),
            )
            if codes is not None and n_q == self.settings["n_q"]:
                for level, chosen in enumerate(codes.flatten(1)):
                    self._counts[level] += torch.bincount(chosen, minlength=self.settings["bins"])

    def on_validation_epoch_end(self) -> None:
        means = self._valid.take()
        for name, value in means.items():
            self.log(f"valid/{name}", value)
        if self.quantizes:
            # What the best checkpoint goes by: only of a codec that can be used.
            self.log("valid/loss", means[f"loss_k{self.settings['n_q']}"])
            for level, value in enumerate(perplexity(self._counts)):
                self.log(f"valid/perplexity_k{level}", value.float())

    def configure_optimizers(self) -> Any:
        made = [make_optimizer(self.model, self.trainer.max_steps, **self.optim)]
        if self.adversary is not None:
            options = self.optim | {"lr": self.adversarial["lr"]}
            made.append(make_optimizer(self.adversary, self.trainer.max_steps, **options))
        return [optimizer for optimizer, _ in made], [schedule for _, schedule in made]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["audiolm_codec_format"] = CODEC_FORMAT


class _Means:
    """Means of named figures."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, figures: Mapping[str, Tensor], count: int = 1) -> None:
        for name, value in figures.items():
            value = value.detach().double() * count
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + count

    def take(self) -> dict[str, Tensor]:
        """The means so far; and start anew."""
        means = {name: (s / self._counts[name]).float() for name, s in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


def _checked_quantization(options: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    levels = options["levels"] or [settings["n_q"]]
    if min(levels) < 1 or max(levels) != settings["n_q"]:
        raise ValueError(
            f"quantization.levels={levels}: must be numbers of codebooks up to n_q="
            f"{settings['n_q']}, which must be among them"
        )
    low, high = options["noise"]
    if not 0 <= low <= high:
        raise ValueError(f"quantization.noise={[low, high]}: must be two shares, low and high")
    if not 0 <= options["start"] < 1:
        raise ValueError(f"quantization.start={options['start']}: must be from 0 to below 1")
    if not 0 <= options["decay"] < 1:
        raise ValueError(f"quantization.decay={options['decay']}: must be from 0 to below 1")
    if options["init_segments"] < 1:
        raise ValueError(f"quantization.init_segments={options['init_segments']}: at least 1")
    return options | {"levels": sorted(levels) if options["levels"] is None else list(levels)}


def _word(*numbers: int) -> int:
    """A seed that follows from the numbers."""
    words = np.random.SeedSequence(list(numbers)).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))
