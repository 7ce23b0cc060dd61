"""What must be the same in a run that is resumed."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.files import counted
from audiolm.model.checkpoint import check_format, read_checkpoint
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.language_model import AudioLM
from audiolm.run_folder import RunFolder
from audiolm.tokens import ClipSet, Mix, audio_keys

# How clips are dealt out to steps. Which clips there are is for `changed_clips`.
DATA_SETTINGS = ("group", "valid_fraction", "batch_size")


# Settings of the model that say how it computes, not what.
HOW_NOT_WHAT = ("kernel", "gradient_checkpointing")


def checkpoint_vocabulary(vocabulary: ConditionVocabulary, path: Path) -> ConditionVocabulary:
    """That of the checkpoint, where it has the same columns: its data may have grown since."""
    then = read_checkpoint(path)["hyper_parameters"].get("conditioning")
    if then is None:
        return vocabulary
    known = ConditionVocabulary.from_settings(then)
    # Of a text that is read by an encoder the data do not know the sizes.
    size = vocabulary.sequence_size if vocabulary.text_encoder is None else known.sequence_size
    now = (vocabulary.columns, vocabulary.vector_size, size, vocabulary.text_encoder)
    if (known.columns, known.vector_size, known.sequence_size, known.text_encoder) != now:
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
    check_same_settings(path, then, now)
    check_steps_left(path, checkpoint["global_step"], max_steps)


def check_same_settings(path: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse a checkpoint of other settings than the run's."""
    for key in now:
        if then.get(key) != now[key]:
            raise ValueError(
                f"{path} was trained with {key}={then.get(key)}, this run has {now[key]}; pass the "
                f"settings of the run to resume, or start a new one without ckpt_path"
            )


def check_steps_left(path: Path, step: int, max_steps: int) -> None:
    """Refuse a checkpoint that is at the end of the run already."""
    if step >= max_steps:
        raise ValueError(
            f"{path} is at step {step} already; to train on, raise trainer.max_steps={max_steps}"
        )


def comparable(settings: dict[str, Any], conditioning: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in a resumed run, under the names that a user sets."""
    codec = settings["codec"]
    data = settings["data"] or {}
    return {
        **{f"model.{k}": v for k, v in _complete(settings["model"]).items()},
        "pattern": settings["pattern"],
        "context": round(settings["context_frames"] / codec["frame_rate"], 2),
        "codec": f"{codec['fingerprint']} with {codec['num_codebooks']} codebooks",
        **comparable_conditions(**conditioning),
        "history_noise": settings.get("history_noise", 0.0),
        "seed": settings["seed"],
        "trainer.accumulate_grad_batches": data.get("accumulate_grad_batches"),
        **{f"data.{k}": data.get(k) for k in DATA_SETTINGS if k in data},
        "data.mix, weights of the stores": list(data.get("stores", {}).values()),
    }


def _complete(model: dict[str, Any]) -> dict[str, Any]:
    """What the model is, also where the settings are of a version that knew fewer of them."""
    arguments = inspect.signature(AudioLM).parameters.values()
    # What follows from codec, pattern and conditions is no setting of the model's.
    known = {a.name: a.default for a in arguments if a.default is not a.empty}
    known.pop("conditioner")
    return {k: v for k, v in (known | model).items() if k not in HOW_NOT_WHAT}


def describe_clips(mix: Mix) -> list[dict[str, Any]]:
    """The clips of each store of a mix, and where it is, as plain data for a checkpoint."""
    return [
        {**ClipSet.of(store).settings(), "store": str(RunFolder.as_typed(path).path)}
        for store in mix.stores
        for path in [store.path.resolve()]
    ]


def changed_clips(path: Path, mix: Mix) -> list[str]:
    """What is to be said of the clips of a resumed run, in lines: nothing where they are the same.

    Args:
        path: the checkpoint.
        mix: as many stores as the checkpoint has.

    Raises:
        ValueError: as `compare_clips`.
    """
    data = read_checkpoint(path)["hyper_parameters"]["data"] or {}
    known = data.get("clips")
    if known is None:
        stores = [str(store.path.resolve()) for store in mix.stores]
        return [] if stores == [*data.get("stores", {})] else [NOT_SAID]
    lines = []
    for then, store in zip(known, mix.stores, strict=True):
        remedy = (
            f"pass the recordings of the run (they were at data.path={data.get('path')}), or its "
            f"codes, data=store data.path={then['store']}"
        )
        now = ClipSet.of(store)
        if then["fingerprint"] != now.fingerprint:
            lines += compare_clips(path, then, now, audio_keys(store), str(store.path), remedy)
    return lines


NOT_SAID = "  changed     the run is of a version that did not keep which clips it was trained on"


def compare_clips(
    path: Path,
    then: dict[str, Any],
    now: ClipSet,
    keys: NDArray[np.uint64],
    where: str,
    remedy: str,
) -> list[str]:
    """What is to be said of clips that are not those of the checkpoint, in lines.

    Which clips there are counts, and not where they are. A collection may have grown.

    Args:
        path: the checkpoint.
        then: settings of its `ClipSet`.
        now: the clips to train on.
        keys: of their audio.
        where: they are.
        remedy: what to pass to get those of the checkpoint.

    Raises:
        ValueError: more than half of the clips are not there any more.
    """
    known = ClipSet.from_settings(then)
    if known.fingerprint == now.fingerprint:
        return []
    share = known.share_in(keys)
    if share < 0.5:
        raise ValueError(
            f"{path} was trained on other clips, {share:.0%} of which are in {where}; {remedy}; or "
            f"start a new run without ckpt_path"
        )
    return [
        f"  changed     {where} has {counted(now.count, 'clip')}, the run had {known.count:,} "
        f"({share:.0%} of these are there)"
    ]


def comparable_conditions(
    labels: Iterable[str] = (),
    text: str | None = None,
    vector: str | None = None,
    drop: float | None = None,
    text_layers: int | None = None,
    sequence: str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """Which columns, and how they are read; how is of no account where there are none."""
    there = bool(labels or text or vector or sequence)
    return {
        "conditioning.labels": list(labels),
        "conditioning.text": text or None,
        "conditioning.vector": vector or None,
        "conditioning.sequence": sequence or None,
        "conditioning.drop": drop if there else None,
        "conditioning.text_layers": text_layers if there else None,
    }
