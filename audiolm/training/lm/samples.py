"""Listen to the model while it trains: clips generated every n steps, written and logged.

Letters: B samples, K codebooks, T codec frames, C audio channels, N audio samples.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from audiolm.codec import EncodecCodec
from audiolm.generation import Sampling
from audiolm.generation.sampling import PLAIN
from audiolm.model.checkpoint import TrainedModel
from audiolm.model.condition_vocabulary import stack_rows
from audiolm.synthesis.job import Job
from audiolm.synthesis.sample import Sample
from audiolm.synthesis.synthesizer import Synthesizer
from audiolm.training.callbacks.ema import averaged_weights
from audiolm.training.callbacks.interrupt import GracefulInterrupt
from audiolm.training.lm.data import TokenData
from audiolm.training.lm.module import LanguageModelTraining
from audiolm.training.loggers.wandb import log_audio

log = logging.getLogger(__name__)


class SampleCallback(pl.Callback):
    """Every `every_n_steps` steps and at the end, generates clips as WAV with a spectrogram
    picture.

    Written to `folder` as step_00001000_sample_000.wav and .png, and logged to W&B where it is on.
    The seeds are the same each time, so that clips of different steps compare. A conditional model
    gets the conditions of the first validation clips.

    Args:
        codec: turns codes into sound.
        folder: where the files go.
        every_n_steps: optimiser steps between two sets of samples; 0 generates at the end only.
        num_samples: clips in a set; 0 turns samples off.
        duration: seconds of each clip, at most.
        sampling: how codes are sampled.
        seed: of the first clip; the next ones count up.
    """

    def __init__(
        self,
        codec: EncodecCodec,
        folder: str | Path,
        every_n_steps: int = 500,
        num_samples: int = 2,
        duration: float = 5.0,
        sampling: Sampling = PLAIN,
        seed: int = 0,
    ) -> None:
        if not isinstance(num_samples, int) or num_samples < 0:
            raise ValueError(
                f"callbacks.samples.num_samples={num_samples} must be a whole number, 0 for none"
            )
        if duration <= 0:
            raise ValueError(f"callbacks.samples.duration={duration} s must be above 0")
        self.codec = codec
        self.folder = Path(folder)
        self.every_n_steps = every_n_steps
        self.num_samples = num_samples
        self.duration = duration
        self.sampling = sampling
        self.seed = seed
        self._generated_at = -1

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        due = self.every_n_steps > 0 and trainer.global_step % self.every_n_steps == 0
        if due and trainer.global_step > 0:  # 0 while the first gradients are accumulated
            self._generate(trainer, module)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        callbacks = trainer.callbacks  # type: ignore[attr-defined]
        if not any(isinstance(c, GracefulInterrupt) and c.interrupted for c in callbacks):
            self._generate(trainer, module)

    def _generate(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, LanguageModelTraining)
        if trainer.global_step == self._generated_at:
            return
        self._generated_at = trainer.global_step
        if not self.num_samples or not trainer.is_global_zero:
            return
        conditions = self._conditions(trainer)
        module.clock.disturbed()
        was_training = module.model.training
        module.model.eval()
        try:
            with averaged_weights(trainer):
                samples = self._job(module, trainer.global_step, conditions).samples(score=False)
        except FloatingPointError as error:
            # Only samples failed; the loss says whether training has.
            log.warning("no samples at step %d: %s", trainer.global_step, error)
            return
        finally:
            module.model.train(was_training)
        self._write(trainer, samples, conditions)

    def _job(
        self, module: LanguageModelTraining, step: int, conditions: list[dict[str, Any]]
    ) -> Job:
        """The samples of the weights as they are now."""
        words, rows = module.vocabulary, None
        if words is not None:
            encode = words.encode_known
            if (of_clips := getattr(module.trainer.datamodule, "conditions", None)) is not None:  # type: ignore[attr-defined]
                encode = of_clips.encode
            rows = stack_rows([encode(values) for values in conditions])
        trained = TrainedModel(
            module.model, module.pattern, module.context_frames, module.codec, step, words
        )
        return Synthesizer(trained, self.codec).job(
            [self.seed + i for i in range(self.num_samples)],
            math.ceil(self.duration * self.codec.frame_rate),
            sampling=self.sampling,
            conditions=rows,
        )

    def _write(
        self, trainer: pl.Trainer, samples: list[Sample], conditions: list[dict[str, Any]]
    ) -> None:
        """Write and log the samples."""
        pictures, captions = [], []
        for i, sample in enumerate(samples):
            stem = self.folder / f"step_{trainer.global_step:08d}_sample_{i:03d}"
            parts = [f"{column} {value}"[:60] for column, value in conditions[i].items()]
            captions.append(", ".join([sample.title, *parts]))
            sample.save_sound(stem, captions[-1])
            pictures.append(stem.with_suffix(".png"))
        log_audio(
            trainer.loggers,
            "samples",
            [sample.waveform for sample in samples],
            self.codec.sample_rate,
            captions,
            pictures,
            trainer.global_step,
        )

    def _conditions(self, trainer: pl.Trainer) -> list[dict[str, Any]]:
        """Conditions of each clip to generate: those of the first validation clips, or none."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        found = data.examples(self.num_samples) if isinstance(data, TokenData) else []
        return [*found, *({} for _ in range(self.num_samples - len(found)))]
