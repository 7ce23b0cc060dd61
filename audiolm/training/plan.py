"""What a run is going to do, said before the first step.

Letters: B batch, K codebooks, V codes in a codebook, S sequence steps, D model width, H heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray

from audiolm.model.language_model import AudioLM, count_parameters
from audiolm.model.patterns import num_steps
from audiolm.tokens import count_codes, unigram_cross_entropy, unigram_entropy
from audiolm.training.language_model import LanguageModelTraining
from audiolm.training.token_data import TokenData


@dataclass(frozen=True)
class Yardsticks:
    """Losses in nats per code that a model has to beat to have learnt anything.

    Attributes:
        uniform: ln V, of guessing blindly.
        unigram: on the held-out codes, of a table of how often each code occurs in the training
            codes, for each codebook.
    """

    uniform: float
    unigram: tuple[float, ...]

    @property
    def unigram_mean(self) -> float:
        return float(np.mean(self.unigram))


def measure_yardsticks(data: TokenData) -> Yardsticks:
    """The yardsticks of a store and its split."""
    train = count_codes(data.store, data.train_spans)
    if len(data.valid_spans):
        valid = count_codes(data.store, data.valid_spans)
        unigram = unigram_cross_entropy(train.counts, valid.counts)
    else:
        unigram = unigram_entropy(train.counts)
    return Yardsticks(math.log(data.store.codebook_size), tuple(float(x) for x in unigram))


def estimate_memory(model: AudioLM, batch_size: int, steps: int, ema: bool, fused: bool) -> int:
    """Bytes that weights, optimiser and activations of a training step will take, roughly.

    Counted are float32 weights, gradients, AdamW's two averages and the EMA, and what the
    backward pass keeps: per block and step about 20 D values and, for the from-scratch kernel,
    three S x S tables a head; and three copies of the logits.
    """
    parameters = count_parameters(model) * 4 * (5 if ema else 4)
    width = model.embedding.embedding_dim
    tables = 0 if fused else 3 * model.transformer.num_heads * steps
    per_step = len(model.transformer.blocks) * (20 * width + tables)
    logits = 3 * model.num_codebooks * model.codebook_size
    return parameters + batch_size * steps * (per_step + logits) * 4


def describe_plan(
    module: LanguageModelTraining,
    data: TokenData,
    yardsticks: Yardsticks,
    trainer: pl.Trainer,
    ema_decay: float | None,
) -> str:
    """The plan as lines to print, one figure each."""
    max_steps, precision = trainer.max_steps, trainer.precision
    store, model = data.store, module.model
    context, codebooks = module.hparams["context_frames"], store.num_codebooks
    windows = data.batch_size * trainer.accumulate_grad_batches * trainer.world_size
    passes = max_steps * windows / len(data.train_windows)
    steps = num_steps(module.positions)
    fused = module.hparams["model"].get("kernel") == "fused"
    memory = estimate_memory(model, data.batch_size, steps, ema_decay is not None, fused)
    average = "" if ema_decay is None else f", average of the weights with decay {ema_decay:g}"
    per_second = codebooks * store.frame_rate / math.log(2)  # nats per code to bits/s

    def amount(spans: NDArray[Any]) -> str:
        frames = int(spans["frames"].sum())
        hours = frames / store.frame_rate / 3600
        return f"{len(spans):,} clips, {hours:.3f} h, {frames * codebooks:,} codes"

    return "\n".join(
        [
            "plan",
            f"  model       {count_parameters(model):,} parameters, "
            f"{module.hparams['pattern']} pattern{average}",
            f"  codec       {store.codec['name']}, {codebooks} codebooks of "
            f"{store.codebook_size} codes, {store.frame_rate:g} frames/s",
            f"  train       {amount(data.train_spans)}",
            f"  held out    {amount(data.valid_spans)}",
            f"  step        {windows} windows of {context / store.frame_rate:.2f} s, at most "
            f"{windows * context * codebooks:,} codes",
            f"  run         {max_steps:,} steps, {passes:.1f} passes over the training clips, "
            f"{precision}, {torch.get_num_threads()} threads",
            f"  memory      about {memory / 2**30:.1f} GiB a device for weights and activations",
            f"  yardsticks  uniform {yardsticks.uniform:.3f} nats per code "
            f"({yardsticks.uniform * per_second:.0f} bits/s), unigram "
            f"{yardsticks.unigram_mean:.3f} ({yardsticks.unigram_mean * per_second:.0f} bits/s)",
            f"              unigram by codebook: "
            f"{' '.join(f'{x:.3f}' for x in yardsticks.unigram)}",
        ]
    )
