"""What a run is going to do, said before the first step.

Letters: B batch, K codebooks, V codes in a codebook, S sequence steps, D model width, H heads,
L length of a text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray

from audiolm.batches.buckets import TrainingBatches
from audiolm.batches.loaders import TokenBatches
from audiolm.files import counted
from audiolm.model.language_model import AudioLM, count_parameters
from audiolm.tokens import TokenStore
from audiolm.tokens.baselines import Baselines, unigram_baselines
from audiolm.training.callbacks.ema import EMA
from audiolm.training.lm.module import LanguageModelTraining


def measure_baselines(data: TokenBatches) -> Baselines:
    """The baselines of what is trained on and of the validation set, in a few seconds."""
    train, valid = [s.train for s in data.splits], [s.valid for s in data.splits]
    return unigram_baselines(data.mix.stores, train, valid, data.mix.shares)


def estimate_memory(
    model: AudioLM, batch_size: int, steps: int, *, ema: bool, kernel: str, bytes_each: int
) -> int:
    """Bytes that weights, optimiser and activations of a training step will take, roughly.

    Counted are float32 weights, gradients, AdamW's two averages and the EMA, and what the
    backward pass keeps: per block and step about 20 D values, and S values a head for each table
    of S x S that the kernel keeps; what the encoder of a text keeps of batch_size texts of the
    largest length; and two copies of the logits.

    bytes_each: of a value that a matrix product makes: 2 under autocast, else 4.
    """
    parameters = count_parameters(model) * 4 * (5 if ema else 4)
    texts = 0
    trunk = model.transformer
    width = model.embedding.embedding_dim
    # Attention written out keeps the scores, the weights and a copy of these for the product.
    tables = {"from_scratch": 3.0, "fused": 0.0}.get(kernel, 0.5)
    block = 20 * width * 4 + tables * trunk.num_heads * steps * bytes_each
    conditioner = model.conditioner
    text = None if conditioner is None else conditioner.text
    if conditioner is not None and conditioner.has_memory:
        # Queries, heads and output; and tables of S x L, of long texts.
        length = conditioner.max_sequence_len if text is None else text.max_len
        block += 5 * width * 4 + 3 * trunk.num_heads * length * bytes_each
    if text is not None:
        # Its encoder keeps three tables of L x L a head, and looks at all of a text at once.
        heads = 3 * trunk.num_heads * text.max_len * bytes_each
        texts = batch_size * len(text.blocks) * text.max_len * (20 * width * 4 + heads)
    blocks = len(trunk.blocks)
    per_step = blocks * width * 4 + block if trunk.gradient_checkpointing else blocks * block
    logits = 2 * model.num_codebooks * model.num_outputs * bytes_each
    return parameters + texts + round(batch_size * steps * (per_step + logits))


def describe_plan(
    module: LanguageModelTraining,
    data: TokenBatches,
    baselines: Baselines,
    trainer: pl.Trainer,
) -> str:
    """The plan as lines to print, one number each."""
    max_steps, precision = trainer.max_steps, trainer.precision
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    ema = next((callback for callback in callbacks if isinstance(callback, EMA)), None)
    mix, model = data.mix, module.model
    context, codebooks = module.hparams["context_frames"], mix.num_codebooks
    parts = trainer.accumulate_grad_batches * trainer.world_size
    windows = data.batch_size * parts
    steps = module.pattern.num_steps(context + model.end_token)
    memory = estimate_memory(
        model,
        data.batch_size,
        steps,
        ema=ema is not None,
        kernel=module.hparams["model"].get("kernel", "auto"),
        bytes_each=4 if precision.startswith("32") else 2,
    )
    average = "" if ema is None else f", average of the weights with decay {ema.decay:g}"
    per_second = codebooks * mix.frame_rate / math.log(2)  # nats per code to bits/s
    batches = data.training_batches(parts)
    passes = max_steps * batches.passes
    through = f", {passes[0]:.1f} passes over the training clips" if len(passes) == 1 else ""
    return "\n".join(
        [
            "plan",
            f"  model       {count_parameters(model):,} parameters, "
            f"{module.hparams['pattern']} pattern{average}",
            f"  codec       {mix.codec['name']}, {codebooks} codebooks of "
            f"{mix.codebook_size} codes, {mix.frame_rate:g} frames/s",
            *_describe_stores(data, passes),
            *_describe_conditions(module, data),
            f"  step        {counted(windows, 'window')} of {context / mix.frame_rate:.2f} s, "
            f"at most {windows * context * codebooks:,} codes",
            *_describe_buckets(batches, windows * context),
            f"  run         {counted(max_steps, 'step')}{through}, "
            f"{precision}, {torch.get_num_threads()} CPU threads",
            f"  memory      about {_memory(memory)} a device for weights and activations",
            f"  baselines   uniform {baselines.uniform_mean:.3f} nats per code "
            f"({baselines.uniform_mean * per_second:.0f} bits/s), unigram "
            f"{baselines.unigram_mean:.3f} ({baselines.unigram_mean * per_second:.0f} bits/s)",
            f"              unigram by codebook: {' '.join(f'{x:.3f}' for x in baselines.unigram)}",
        ]
    )


def _describe_stores(data: TokenBatches, passes: NDArray[np.float64]) -> Iterator[str]:
    """What is for training, validation and neither; of a mix, under a line for each store."""
    stores, shares = data.mix.stores, data.mix.shares
    for store, split, share, through in zip(stores, data.splits, shares, passes, strict=True):
        if len(stores) > 1:
            yield (
                f"  store       {store.path}: {share:.1%} of the frames trained on, "
                f"{through:.1f} passes"
            )
        yield f"  train       {_amount(store, split.train)}"
        yield f"  validation  {_amount(store, split.valid)}"
        if len(split.test):
            yield f"  test        {_amount(store, split.test)}, not used"


def _describe_conditions(module: LanguageModelTraining, data: TokenBatches) -> Iterator[str]:
    """The conditions of the model, and what is skipped for them."""
    vocabulary = module.vocabulary
    if vocabulary is not None:
        columns = [
            f"{column} ({counted(len(names), 'name')})"
            for column, names in vocabulary.labels.items()
        ]
        if vocabulary.text:
            columns.append(
                f"{vocabulary.text} ({len(vocabulary.alphabet)} characters, "
                f"at most {vocabulary.max_text_len})"
            )
        if vocabulary.vector:
            columns.append(f"{vocabulary.vector} ({vocabulary.vector_size} numbers)")
        if vocabulary.sequence:
            columns.append(
                f"{vocabulary.sequence} (at most {vocabulary.max_sequence} vectors of "
                f"{vocabulary.sequence_size} numbers)"
            )
        yield f"  conditions  {', '.join(columns)}; dropped with probability {vocabulary.drop:g}"
    if data.too_long:
        clips = counted(data.too_long, "clip")
        yield (f"  skipped     {clips} longer than the context, whose text is not that of a window")
    if data.long_texts and vocabulary is not None:
        yield (
            f"  skipped     {counted(data.long_texts, 'clip')} with a text of more than "
            f"{vocabulary.max_text_len:,} characters, the most trained on; conditioning.max_text "
            f"is the limit"
        )


def _describe_buckets(batches: TrainingBatches, capacity: int) -> Iterator[str]:
    """How the clips' lengths are batched, where there are several length buckets.

    capacity: frames of a batch of full windows.
    """
    buckets = batches.buckets
    if len(buckets) > 1:
        yield (
            f"  batches     {len(buckets)} length buckets, of {buckets[0].rows} to "
            f"{buckets[-1].rows} clips, {batches.mean_frames / capacity:.0%} full, "
            f"at most {batches.padding:.0%} padding"
        )


def _memory(size: int) -> str:
    """Bytes in the unit in which they are no small fraction."""
    return f"{size / 2**30:.2g} GiB" if size >= 2**30 else f"{max(1, size // 2**20)} MiB"


def _amount(store: TokenStore, spans: NDArray[Any]) -> str:
    frames = int(spans["frames"].sum())
    hours = frames / store.frame_rate / 3600
    groups = _count_groups(store, spans["clip"])
    of = f" of {counted(groups, 'group')}" if groups < len(spans) else ""
    clips = counted(len(spans), "clip")
    return f"{clips}{of}, {hours:.3f} h, {frames * store.num_codebooks:,} codes"


def _count_groups(store: TokenStore, clips: NDArray[np.int64]) -> int:
    hashes = store.index["split_hash"]
    if np.array_equal(hashes, store.index["id_hash"]):
        return len(clips)  # each its own; said without sorting millions
    hashes = np.sort(hashes[clips])
    return len(hashes[:1]) + int(np.count_nonzero(hashes[1:] != hashes[:-1]))
