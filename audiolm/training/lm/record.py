"""The plan of a run as plain data, for its report: what `describe_plan` prints.

Letters: K codebooks.
"""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray

from audiolm.batches.loaders import TokenBatches
from audiolm.model.language_model import count_parameters
from audiolm.tokens import TokenStore
from audiolm.tokens.baselines import Baselines
from audiolm.training.lm.module import LanguageModelTraining

BINS = 24
"""Of the histogram of the clips' lengths."""


def plan_record(
    module: LanguageModelTraining, data: TokenBatches, baselines: Baselines, trainer: pl.Trainer
) -> dict[str, Any]:
    """Model, codec, baselines, data and length of the run."""
    mix, context = data.mix, module.hparams["context_frames"]
    per_second = mix.num_codebooks * mix.frame_rate / math.log(2)  # nats per code to bits/s
    parts = trainer.accumulate_grad_batches * trainer.world_size
    vocabulary = module.vocabulary
    return {
        "parameters": count_parameters(module.model),
        "pattern": module.hparams["pattern"],
        "max_steps": trainer.max_steps,
        "windows_per_step": data.batch_size * parts,
        "context_seconds": context / mix.frame_rate,
        "precision": str(trainer.precision),
        "threads": torch.get_num_threads(),
        "codec": {
            "name": mix.codec["name"],
            "fingerprint": mix.codec["fingerprint"],
            "num_codebooks": mix.num_codebooks,
            "codebook_size": mix.codebook_size,
            "frame_rate": mix.frame_rate,
            "bits_per_second": mix.num_codebooks * mix.frame_rate * math.log2(mix.codebook_size),
        },
        "baselines": {
            name: {
                "nats_per_code": mean,
                "bits_per_second": mean * per_second,
                "nats_per_code_by_codebook": [float(nats) for nats in by_codebook],
            }
            for name, mean, by_codebook in (
                ("unigram", baselines.unigram_mean, baselines.unigram),
                ("uniform", baselines.uniform_mean, baselines.uniform),
            )
        },
        "data": {
            "stores": [
                {
                    "path": str(store.path),
                    "share": float(share),
                    "splits": {
                        name: _amount(store, getattr(split, name))
                        for name in ("train", "valid", "test")
                    },
                }
                for store, split, share in zip(mix.stores, data.splits, mix.shares, strict=True)
            ],
            "longer_than_context": data.too_long,
            "lengths": _lengths([store.frames / store.frame_rate for store in mix.stores]),
            "conditions": None
            if vocabulary is None
            else {
                **{column: f"{len(names)} names" for column, names in vocabulary.labels.items()},
                **({vocabulary.text: "text"} if vocabulary.text else {}),
                **({vocabulary.vector: "vector"} if vocabulary.vector else {}),
                **({vocabulary.sequence: "sequence"} if vocabulary.sequence else {}),
            },
        },
    }


def _amount(store: TokenStore, spans: NDArray[Any]) -> dict[str, Any]:
    frames = int(spans["frames"].sum())
    return {
        "clips": len(spans),
        "hours": frames / store.frame_rate / 3600,
        "codes": frames * store.num_codebooks,
    }


def _lengths(seconds: list[NDArray[np.float64]]) -> dict[str, Any]:
    """A histogram: how many clips are between each two edges, in seconds."""
    counts, edges = np.histogram(np.concatenate(seconds), bins=BINS)
    return {"edges_seconds": edges.tolist(), "clips": counts.tolist()}
