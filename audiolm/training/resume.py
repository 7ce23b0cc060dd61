"""What must be the same in a run that is resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from audiolm.model.checkpoint import check_format, read_checkpoint
from audiolm.model.condition_vocabulary import ConditionVocabulary

# Which clips a step is trained on follows from these; a resumed run has the same.
DATA_SETTINGS = ("path", "mix", "group", "valid_fraction", "batch_size")


# Settings of the model that say how it computes, not what.
HOW_NOT_WHAT = ("kernel", "gradient_checkpointing")


def checkpoint_vocabulary(vocabulary: ConditionVocabulary, path: Path) -> ConditionVocabulary:
    """That of the checkpoint, where it has the same columns: its data may have grown since."""
    then = read_checkpoint(path)["hyper_parameters"].get("conditioning")
    if then is None:
        return vocabulary
    known = ConditionVocabulary.from_settings(then)
    if (known.columns, known.vector_size) != (vocabulary.columns, vocabulary.vector_size):
        return vocabulary
    return dataclasses.replace(known, drop=vocabulary.drop, text_layers=vocabulary.text_layers)


def check_same_run(
    settings: dict[str, Any], conditioning: dict[str, Any], path: Path, max_steps: int
) -> None:
    """Refuse to resume a checkpoint of another model, codec or order of the data.

    Args:
        settings: of the `LanguageModelTraining` that is to be resumed.
        conditioning: what its model is to be conditioned on, arguments of `read_vocabulary`.
        path: the checkpoint.
        max_steps: of the run.

    Raises:
        ValueError: naming the setting that differs.
    """
    checkpoint = read_checkpoint(path)
    check_format(checkpoint, path)
    found = checkpoint["hyper_parameters"]
    known = found.get("conditioning")
    conditions = {} if known is None else vars(ConditionVocabulary.from_settings(known))
    then, now = comparable(found, conditions), comparable(settings, conditioning)
    check_resumable(path, then, now, checkpoint["global_step"], max_steps)


def check_resumable(
    path: Path, then: dict[str, Any], now: dict[str, Any], step: int, max_steps: int
) -> None:
    """Refuse a checkpoint of other settings than the run's, or at its end already."""
    for key in now:
        if then.get(key) != now[key]:
            raise ValueError(
                f"{path} was trained with {key}={then.get(key)}, this run has {now[key]}; pass the "
                f"settings of the run to resume, or start a new one without ckpt_path"
            )
    if step >= max_steps:
        raise ValueError(
            f"{path} is at step {step} already; to train on, raise trainer.max_steps={max_steps}"
        )


def comparable(settings: dict[str, Any], conditioning: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in a resumed run, under the names that a user sets."""
    codec = settings["codec"]
    data = settings["data"] or {}
    return {
        **{f"model.{k}": v for k, v in settings["model"].items() if k not in HOW_NOT_WHAT},
        "pattern": settings["pattern"],
        "context": round(settings["context_frames"] / codec["frame_rate"], 2),
        "codec": f"{codec['fingerprint']} with {codec['num_codebooks']} codebooks",
        **comparable_conditions(**conditioning),
        "history_noise": settings.get("history_noise", 0.0),
        "seed": settings["seed"],
        "trainer.accumulate_grad_batches": data.get("accumulate_grad_batches"),
        **{f"data.{k}": data.get(k) for k in DATA_SETTINGS if k in data},
    }


def comparable_conditions(
    labels: Iterable[str] = (),
    text: str | None = None,
    vector: str | None = None,
    drop: float | None = None,
    text_layers: int | None = None,
    **_: Any,
) -> dict[str, Any]:
    """Which columns, and how they are read; how is of no account where there are none."""
    there = bool(labels or text or vector)
    return {
        "conditioning.labels": list(labels),
        "conditioning.text": text or None,
        "conditioning.vector": vector or None,
        "conditioning.drop": drop if there else None,
        "conditioning.text_layers": text_layers if there else None,
    }
