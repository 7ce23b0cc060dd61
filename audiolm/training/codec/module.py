"""The LightningModule that trains an EnCodec.

B batch, C audio channels, N audio samples, K codebooks, T codec frames, D width of the latents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from audiolm.codec.distances import MultiScaleMel, mel_distance, si_snr, time_loss
from audiolm.codec.settings import OF_ENCODER, build_model, check_settings
from audiolm.training.codec.adversarial import Adversary
from audiolm.training.codec.balancer import Balancer
from audiolm.training.codec.data import SILENT, Segment, WaveformData
from audiolm.training.codec.growth import grow_decoder
from audiolm.training.codec.initialise import initialise_on_data
from audiolm.training.codec.layers import use_training_layers
from audiolm.training.codec.options import (
    checked_adversarial,
    checked_floor,
    checked_losses,
    checked_quantization,
)
from audiolm.training.codec.quantizer import (
    Quantized,
    codebook_of,
    initialise_codebooks,
    perplexity,
    quantize,
    update_codebooks,
)
from audiolm.training.codec.spectral_head import SpectralHead
from audiolm.training.loggers.metrics_csv import MetricsCSV
from audiolm.training.optimisation import make_optimizer, override_optimizer_settings

CODEC_FORMAT = 2
MEL_LEVEL = 0.1  # rms that the mel loss brings each item to
MOST_LATENTS = 2**17  # that codebooks are fitted to: k-means takes a minute then
QUIETEST = 5e-3  # rms below which an item is not raised any further


class CodecTraining(pl.LightningModule):
    """Steps, losses and metrics of training an EnCodec on batches of waveforms (B, C, N).

    Three stages. Before `quantization.start` an auto-encoder whose latents get Gaussian noise; then
    the codebooks are fitted to its latents, quantization takes the noise's place, and all is
    trained together; from `quantization.freeze_encoder` on the decoder alone. With start 0 and no
    freezing there is one stage, as in the paper. The losses on the waveform go through the loss
    balancer. Source: EnCodec, arXiv:2210.13438.

    All arguments are plain data and are kept in checkpoints.

    Args:
        settings: of the codec, see `audiolm.codec.settings`.
        losses: weights, by the names in `LOSSES`.
        quantization: see `QUANTIZATION`.
        adversarial: see `ADVERSARIAL`.
        optim: arguments of `make_optimizer` but for `model` and `max_steps`.
        warmup: share of the steps over which the noise rises from 0; met in full from the start, it
            keeps the codec from learning any waveform.
        mel_floor: dB, relative to an item's level, below which the mel loss does not look: that of
            the warm-up, and that which it has fallen to after as many steps again. Bands that hold
            next to nothing have by far the largest gradients: with a low floor from the start, no
            waveform is learnt; with a high one to the end, faint overtones are not.
        mel_rise: factor that the weight of the mel loss rises to as its floor falls.
        clip: largest norm of a step's gradient.
        seed: of weights, noise and levels; what step n samples follows from (seed, n).
        data: what it is trained on, for a resumed run to be compared with.

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
        warmup: float = 0.3,
        mel_floor: Sequence[float] = (-20.0, -34.0),
        mel_rise: float = 1.0,
        clip: float = 1.0,
        seed: int = 0,
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.settings = check_settings(settings)
        if self.settings["segment"] is not None:
            raise ValueError("codec settings: segment must be null, it is not trained with")
        if not 0 <= warmup <= 1:
            raise ValueError(f"warmup={warmup} must be a share of the steps, from 0 to 1")
        if not clip > 0:
            raise ValueError(f"clip={clip} must be above 0")
        self.loss_weights = checked_losses(losses)
        self.quantization = checked_quantization(quantization, self.settings)
        self.optim, self.warmup, self.clip, self.seed = optim, warmup, clip, seed
        torch.manual_seed(seed)
        self.model = build_model(self.settings)
        use_training_layers(self.model)
        self.mel_floor = checked_floor(mel_floor)
        if not mel_rise > 0:
            raise ValueError(f"mel_rise={mel_rise} must be above 0")
        self.mel_rise = mel_rise
        self.mel = MultiScaleMel(self.settings["sample_rate"])
        self.spectral_head = self._make_spectral_head() if self.loss_weights["spectrum"] else None
        self.adversarial = checked_adversarial(adversarial)
        self.adversary: Adversary | None = None
        if self.adversarial["enabled"]:
            self.adversary = Adversary(
                self.settings["channels"], self.adversarial["filters"], self.adversarial["n_ffts"]
            )
        shares = {name: self.loss_weights[name] for name in ("time", "mel")}
        if self.adversary is not None:
            shares |= {name: self.adversarial[name] for name in ("adversarial", "features")}
        self.balancer = Balancer(shares)
        self._train = _Means()
        self.audio_seconds = 0.0
        """Of audio that this process has trained on."""
        self.begins_with_weights = False

    def begin_with(
        self,
        settings: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        head: Mapping[str, Tensor] | None,
    ) -> None:
        """Begin a new run with the weights of another codec, in place of random ones.

        Its decoder may be a smaller one, see `grow_decoder`. Codebooks that are fitted stay: then
        all is trained on codes from the first step on.

        Args:
            settings: of the other codec.
            weights: its weights, all of them.
            head: of its spectral head; None for those that are there.

        Raises:
            ValueError: a setting is another one, or the decoder cannot grow so.
            RuntimeError: the weights are not those of the settings.
        """
        other = check_settings(settings)
        for key, value in other.items():
            if self.settings[key] != value and key not in OF_ENCODER:
                raise ValueError(
                    f"it has codec_model.{key}={value}, this run has {self.settings[key]}; pass "
                    f"codec_model.{key}={value}"
                )
        if other == self.settings:
            self.model.load_state_dict(dict(weights))
        else:
            smaller = build_model(other)
            smaller.load_state_dict(dict(weights))
            for name in ("encoder", "quantizer"):
                part = getattr(smaller, name)
                getattr(self.model, name).load_state_dict(part.state_dict())
            grow_decoder(smaller.decoder, self.model.decoder)
        if head is not None and self.spectral_head is not None:
            self.spectral_head.load_state_dict(dict(head))
        self.begins_with_weights = True

    def _make_spectral_head(self) -> SpectralHead:
        hop = int(self.model.encoder.hop_length)
        return SpectralHead(self.settings["dimension"], self.settings["sample_rate"], hop)

    def check_plan(self, length: int, max_steps: int) -> None:
        """Refuse what would fail hours later only.

        Args:
            length: samples of a training segment.
            max_steps: optimiser steps of the run.

        Raises:
            ValueError: a part begins after the end, a discriminator's window is longer than a
                segment, or there are too few latents to fit codebooks to.
        """
        for name, share in (
            ("quantization", self.quantization["start"]),
            ("adversarial", self.adversarial["start"] if self.adversary is not None else 0.0),
        ):
            if round(share * max_steps) >= max_steps:
                raise ValueError(
                    f"{name}.start={share} of trainer.max_steps={max_steps} steps is the end of "
                    f"the run; lower the one, or raise the other"
                )
        if self.quantization["freeze_encoder"] * max_steps < 0.5:
            raise ValueError(
                f"quantization.freeze_encoder={self.quantization['freeze_encoder']} of "
                f"trainer.max_steps={max_steps} steps trains no encoder at all; raise it, up to 1"
            )
        if self.adversary is not None and self.adversary.longest_window > length:
            raise ValueError(
                f"adversarial.n_ffts={list(self.adversarial['n_ffts'])}: a window is longer than "
                f"a segment of {length} samples; raise data.segment, or leave it out"
            )
        frames = self.quantization["init_segments"] * (length // int(self.model.encoder.hop_length))
        if frames < self.settings["bins"]:
            raise ValueError(
                f"quantization.init_segments={self.quantization['init_segments']}: they hold "
                f"{frames} frames, too few to fit codebooks of {self.settings['bins']} codes to; "
                f"raise it, or lower codec_model.bins"
            )

    # ---- Steps

    @property
    def quantizes(self) -> bool:
        """Whether the codebooks are fitted already."""
        return bool(codebook_of(self.model.quantizer, 0).inited)

    @property
    def encoder_is_frozen(self) -> bool:
        """Whether encoder and codebooks stay as they are."""
        return self.quantizes and self._past(self.quantization["freeze_encoder"])

    def on_train_start(self) -> None:
        for logger in self.trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.start(self.trainer.global_step)
        if self.trainer.global_step > 0:
            for optimizer, config, fresh in zip(
                self.trainer.optimizers,
                self.trainer.lr_scheduler_configs,
                self._make_optimizers(),
                strict=True,
            ):
                override_optimizer_settings(optimizer, cast(LambdaLR, config.scheduler), fresh)
        elif not self.begins_with_weights:
            initialise_on_data(self.model, self._segments(0, 32))

    def _segments(self, begin: int, end: int) -> Tensor:
        """Training segments (end - begin, C, N)."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, WaveformData)
        segments = [data.train_segments[i].waveform for i in range(begin, end)]
        return torch.stack(segments).to(self.device)

    def on_train_batch_start(self, batch: Segment, batch_idx: int) -> None:
        step = self.trainer.global_step
        # The same random numbers in a resumed run.
        self._generator = torch.Generator().manual_seed(_word(self.seed, step))
        torch.manual_seed(_word(self.seed, step, 1 + self.global_rank))
        if self._past(self.quantization["start"]) and not self.quantizes:
            self._fit_codebooks()

    @torch.no_grad()
    def _fit_codebooks(self) -> None:
        latents = []
        count = self.quantization["init_segments"]
        for first in range(0, count, 32):
            encoded = self.model.encoder(self._segments(first, min(first + 32, count)))
            latents.append(encoded.transpose(1, 2).flatten(0, 1))
        vectors = torch.cat(latents)
        vectors = vectors[:: -(-len(vectors) // MOST_LATENTS)]
        initialise_codebooks(self.model.quantizer, vectors, self.seed)

    def training_step(self, batch: Segment, batch_idx: int) -> None:
        waveform, bandwidth = batch
        self.audio_seconds += len(waveform) * waveform.shape[-1] / self.settings["sample_rate"]
        self._set_mel_loss()
        frozen = self.encoder_is_frozen
        with torch.no_grad() if frozen else nullcontext():
            encoded = self.model.encoder(waveform)
        # A leaf of its own, at which the gradients of the losses meet.
        latents = encoded.detach().requires_grad_(not frozen)
        parts: dict[str, Tensor] = {}
        quantized: Quantized | None = None
        if self.quantizes:
            quantized = quantize(self.model.quantizer, latents, self._sample_levels())
            decoder_input = quantized.latents
            parts["commitment"] = quantized.commitment
        else:
            decoder_input = latents + self._noise(latents)
        spectrum = None
        if self.spectral_head is not None:
            # What the decoder gets: noise and quantization must leave the spectrum in it.
            with torch.no_grad() if frozen else nullcontext():
                spectrum = self.spectral_head.loss(decoder_input, waveform)
        parts["latents"] = (latents.square().mean() - 1).clamp(min=0)
        decoded = self.model.decoder(decoder_input)[..., : waveform.shape[-1]]
        audible = {"time": time_loss(decoded, waveform)}
        audible["mel"] = self._mel_loss(decoded, waveform, bandwidth)
        if self.adversary is not None and self._past(self.adversarial["start"]):
            parts["discriminator"] = self._train_discriminator(waveform, decoded)
            audible |= self.adversary.generator_losses(waveform, decoded)._asdict()
        inner = self._weighted(parts)
        loss = inner + self._weighted(audible)
        self._check_finite("loss", loss)

        optimizer, *_ = self._optimizers()
        optimizer.zero_grad()
        # A sum with the balanced gradient at `decoded`, for one pass back through the decoder.
        gradient = self.balancer.gradient(audible, decoded)
        self.manual_backward(inner + (decoded * gradient).sum(), retain_graph=spectrum is not None)
        if not frozen:
            assert latents.grad is not None
            pull = latents.grad
            if spectrum is not None:
                pull = pull + self._spectrum_pull(spectrum, latents)
            encoded.backward(pull)
        if spectrum is not None:
            parts["spectrum"] = spectrum
        norm = self._take_step(optimizer)
        if quantized is not None and not frozen:
            self._follow(quantized)
        self._log_step({**parts, **audible, "loss": loss, "grad_norm": norm}, optimizer)

    def _take_step(self, optimizer: Any) -> Tensor:
        """Clip the gradients and move the weights; the gradients' norm before."""
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self._check_finite("norm of the gradient", norm)
        optimizer.step()
        schedules: Any = self.lr_schedulers()
        for schedule in schedules if isinstance(schedules, list) else [schedules]:
            schedule.step()
        return norm

    def _follow(self, quantized: Quantized) -> None:
        """Have the codebooks follow what was quantized with them."""
        update_codebooks(
            self.model.quantizer,
            quantized,
            self.quantization["decay"],
            self.quantization["dead_below"],
            self._generator,
        )

    def _log_step(self, metrics: dict[str, Tensor], optimizer: Any) -> None:
        """The loss on the bar; means of all since the last time, now and then."""
        self.log("loss", metrics["loss"].detach(), prog_bar=True, logger=False)
        self._train.add(metrics)
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if self.trainer.global_step % max(1, every) == 0:
            for name, value in self._train.take().items():
                self.log(f"train/{name}", value)
            self.log("optim/lr", optimizer.param_groups[0]["lr"])

    def _check_finite(self, what: str, value: Tensor) -> None:
        if not bool(torch.isfinite(value)):
            raise FloatingPointError(
                f"the {what} is {value.item()} at step {self.trainer.global_step}; checkpoints "
                f"from before are untouched: lower optim.lr={self.optim.get('lr')}, resume with "
                f"ckpt_path=last, or start anew where there is none"
            )

    def _mel_loss(
        self, estimate: Tensor, target: Tensor, bandwidth: Tensor | None = None
    ) -> Tensor:
        """L1 + L2 of log-mel spectra, each item at one level, so that quiet ones count as much."""
        rms = target.square().mean(dim=(1, 2), keepdim=True).sqrt()
        gain = MEL_LEVEL / rms.clamp(min=QUIETEST)
        l1, l2 = self.mel(estimate * gain, target * gain, bandwidth)
        total: Tensor = l1 + l2
        return total

    def _spectrum_pull(self, loss: Tensor, latents: Tensor) -> Tensor:
        """The weighted gradient at the latents of what the spectral head misses; it learns, too."""
        assert self.spectral_head is not None and latents.grad is not None
        head = list(self.spectral_head.parameters())
        own, *gradients = torch.autograd.grad(loss, [latents, *head])
        for parameter, gradient in zip(head, gradients, strict=True):
            parameter.grad = gradient
        return self.loss_weights["spectrum"] * self.spectral_head.balanced(own, latents.grad)

    def _set_mel_loss(self) -> None:
        """Its floor and its weight at this step."""
        fallen = min(1.0, max(0.0, self.trainer.global_step / self._warmup_steps - 1))
        first, last = self.mel_floor
        self.mel.floor = MEL_LEVEL * 10 ** ((first + fallen * (last - first)) / 20)
        if self.loss_weights["mel"]:
            risen = 1 + fallen * (self.mel_rise - 1)
            self.balancer.weights["mel"] = self.loss_weights["mel"] * risen

    @property
    def _warmup_steps(self) -> float:
        return max(1.0, self.warmup * self.trainer.max_steps)

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

    def _sample_levels(self) -> int:
        """The number of codebooks of this step."""
        levels = self.quantization["levels"]
        return int(levels[int(torch.randint(len(levels), (), generator=self._generator))])

    def _noise(self, latents: Tensor) -> Tensor:
        """Gaussian noise (B, D, T) whose strength is sampled for each item."""
        rising = min(1.0, self.trainer.global_step / self._warmup_steps)
        low, high = (rising * share for share in self.quantization["noise"])
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
            # Before there are codebooks, the metrics are those of the auto-encoder.
            end = f"k{n_q}" if self.quantizes else "unquantized"
            # The ratio of a pause says nothing, and is so low that one of them hides all others.
            sounds = waveform.square().mean(dim=(1, 2)).sqrt() > SILENT
            if sounds.any():
                ratio = si_snr(decoded[sounds], waveform[sounds]).mean()
                self._valid.add({f"si_snr_{end}": ratio}, int(sounds.sum()))
            self._valid.add(
                {
                    f"mel_distance_{end}": mel_distance(
                        decoded, waveform, self.settings["sample_rate"]
                    ).mean(),
                    f"loss_{end}": self.loss_weights["time"] * time_loss(decoded, waveform)
                    + self.loss_weights["mel"] * self._mel_loss(decoded, waveform),
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
        made = self._make_optimizers()
        return [optimizer for optimizer, _ in made], [schedule for _, schedule in made]

    def _make_optimizers(self) -> list[tuple[torch.optim.AdamW, LambdaLR]]:
        """That of the codec, then that of the discriminator if there is one."""
        trained = nn.ModuleList([self.model])
        if self.spectral_head is not None:
            trained.append(self.spectral_head)
        made = [make_optimizer(trained, self.trainer.max_steps, **self.optim)]
        if self.adversary is not None:
            options = self.optim | {"lr": self.adversarial["lr"]}
            made.append(make_optimizer(self.adversary, self.trainer.max_steps, **options))
        return made

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["audiolm_codec_format"] = CODEC_FORMAT


class _Means:
    """Means of named metrics."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Tensor], count: int = 1) -> None:
        for name, value in metrics.items():
            value = value.detach().double() * count
            self._sums[name] = self._sums[name] + value if name in self._sums else value
            self._counts[name] = self._counts.get(name, 0) + count

    def take(self) -> dict[str, Tensor]:
        """The means so far; and start anew."""
        means = {name: (s / self._counts[name]).float() for name, s in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


def _word(*numbers: int) -> int:
    """A seed that follows from the numbers."""
    state = np.random.SeedSequence(list(numbers)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
