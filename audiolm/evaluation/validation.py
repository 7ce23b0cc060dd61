"""How well a model predicts the validation set, and whether it knows how well."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from audiolm.batches.conditions import check_columns, conditions_of
from audiolm.batches.loaders import TokenBatches, to_device
from audiolm.evaluation.likelihood import Likelihood
from audiolm.model.checkpoint import TrainedModel
from audiolm.model.conditioning import null_conditions
from audiolm.model.likelihood import predict
from audiolm.tokens import ClipSet, TokenStore, audio_keys
from audiolm.tokens.baselines import bigram_baselines

Metrics = dict[str, Any]


def data_of_the_run(data: dict[str, Any] | None, path: Path) -> dict[str, Any]:
    """The stores that the run was trained on, and what of them is its validation set.

    Args:
        data: what the checkpoint says of it.
        path: the checkpoint, for the message.

    Raises:
        ValueError: they are not here.
    """
    data = data or {}
    stores = data.get("stores", {})
    known = data.get("clips") or [None] * len(stores)
    found = {}
    for (store, weight), clips in zip(stores.items(), known, strict=True):
        here = _find_store(Path(store), clips, path)
        if here is not None:
            found[str(here)] = weight
    if not stores:
        raise ValueError(
            f"{path} does not say which codes it was trained on; pass data=folder data.path=DIR, "
            f"or data=store data.path=STORE"
        )
    if len(found) < len(stores):
        raise ValueError(
            f"{path} was trained on codes that are not here ({', '.join(stores)}); pass "
            f"data=store data.path=STORE where they are now, or data=folder data.path=DIR"
        )
    settings = {key: data[key] for key in ("valid_fraction", "batch_size")}
    return {**settings, "source": None, "mix": found, "num_workers": 0}


def _find_store(was: Path, clips: dict[str, Any] | None, checkpoint: Path) -> Path | None:
    """A store that a run was trained on: where it was, or where it is if all was moved together.

    Args:
        was: its absolute path then.
        clips: what the checkpoint says of it; None in checkpoints of before.
        checkpoint: of the run, in whose folder or in one above the store lies now.
    """
    candidates = [was]
    if clips is not None:
        candidates += [
            folder / clips["store"] for folder in (Path(), *checkpoint.resolve().parents)
        ]
    for folder in candidates:
        if not (folder / "store.json").is_file():
            continue
        if clips is None:
            return folder
        if ClipSet.from_settings(clips).share_in(audio_keys(TokenStore(folder))) >= 0.5:
            return folder
    return None


def check_conditions(trained: TrainedModel, data: TokenBatches) -> None:
    """Refuse validation clips without a condition that the model has, and count unknown values."""
    vocabulary = trained.vocabulary
    if vocabulary is None or data.conditions is None:
        return
    found = [
        conditions_of(store, int(clip))
        for store, split in zip(data.mix.stores, data.splits, strict=True)
        for clip in np.unique(split.valid["clip"])
    ]
    check_columns(vocabulary.columns, {column for values in found for column in values}, data.mix)
    for column, names in vocabulary.labels.items():
        unknown = sum(column in values and values[column] not in names for values in found)
        if unknown:
            print(f"unknown    {unknown} validation clips with a {column} that was not in training")
    if vocabulary.text:
        said = "".join(values.get(vocabulary.text, "") for values in found)
        if skipped := vocabulary.unknown_characters(said):
            print(f"unknown    characters of validation texts not in training: {skipped}")


def validation_metrics(trained: TrainedModel, data: TokenBatches) -> Metrics:
    """How well the model predicts the validation set, and whether it knows how well."""
    mix, vocabulary = data.mix, trained.vocabulary
    likelihood = score(trained, data)
    columns = {"model": (likelihood.nats_per_code, likelihood.mean_nats)}
    seconds = data.valid_frames / mix.frame_rate
    bits = likelihood.bits_per_second(seconds)
    metrics: Metrics = {
        "stores": [str(store.path) for store in mix.stores],
        "validation_codes": data.valid_frames * mix.num_codebooks,
        "validation_seconds": seconds,
        "bits_per_second": bits,
        "codec_bits_per_second": mix.num_codebooks * math.log2(mix.codebook_size) * mix.frame_rate,
    }
    metrics["compression"] = metrics["codec_bits_per_second"] / bits
    if vocabulary is not None and vocabulary.drop > 0:
        unconditional = score(trained, data, conditional=False)
        columns["without_conditions"] = (unconditional.nats_per_code, unconditional.mean_nats)
        metrics["conditions_bits_per_second"] = unconditional.bits_per_second(seconds) - bits
    counts = likelihood.counts.sum(axis=1)
    metrics["baselines_bits_per_second"] = {}
    for name, nats in baselines_by_name(data, trained.model.end_token).items():
        columns[name] = (nats, float(np.average(nats, weights=counts)))
        total = float((nats * counts).sum())
        metrics["baselines_bits_per_second"][name] = total / math.log(2) / seconds
    columns["calibration_error"] = likelihood.calibration_error()
    metrics["nats_per_code"] = [
        *(
            {"codebook": k, **{name: float(each[k]) for name, (each, _) in columns.items()}}
            for k in range(mix.num_codebooks)
        ),
        {"codebook": "mean", **{name: mean for name, (_, mean) in columns.items()}},
    ]
    metrics["calibration"] = likelihood.reliability()
    return metrics


def baselines_by_name(data: TokenBatches, end_token: bool) -> dict[str, NDArray[np.float64]]:
    """Nats per validation code of each codebook (K,), the best baseline first."""
    train, valid = [s.train for s in data.splits], [s.valid for s in data.splits]
    found = bigram_baselines(data.mix.stores, train, valid, data.mix.shares, end_token)
    assert found.bigram is not None
    return {"bigram": found.bigram, "unigram": found.unigram, "uniform": found.uniform}


@torch.inference_mode()
def score(trained: TrainedModel, data: TokenBatches, conditional: bool = True) -> Likelihood:
    """Go through the validation clips once, on the model's device.

    conditional: False for null conditions.
    """
    model = trained.model
    likelihood = Likelihood(model.num_codebooks)
    loader = data.validation_loader()
    for batch in tqdm(loader, "validation batches", leave=False, disable=None):
        if not conditional:
            batch["conditions"] = null_conditions(batch["conditions"])
        batch = to_device(batch, model.heads.weight.device)
        likelihood.add(
            *predict(
                model,
                trained.pattern,
                trained.context_frames,
                batch["codes"],
                batch["lengths"],
                batch["reaches_end"],
                batch["conditions"],
            )
        )
    return likelihood
