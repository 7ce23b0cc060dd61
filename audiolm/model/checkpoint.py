"""What a checkpoint holds, and a trained model from it.

A checkpoint is the file that training writes, read here without anything of the training: the
model's weights under `model.` in "state_dict", and in "hyper_parameters" as plain data what they
are weights of: the model's arguments, the pattern, the context, the codec's identity and the names
of the conditions. An exported model's folder is read as the same (see `folder`).
"""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audiolm.files import short, user_path
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.conditioning import Conditioner
from audiolm.model.folder import read_model_folder
from audiolm.model.language_model import AudioLM
from audiolm.model.patterns import Pattern, make_pattern
from audiolm.run_folder import is_of_model_folder
from audiolm.tensor_files import load_without_code

CHECKPOINT_FORMAT = 1
PREFIX = "model."
"""Of the names of the model's weights in a checkpoint."""


@dataclass(frozen=True)
class TrainedModel:
    """A model and what it takes to use it.

    Attributes:
        model: in eval mode, on the CPU, in float32.
        pattern: lays codes out in steps.
        context_frames: frames of the windows it was trained on.
        codec: identity of the codec whose codes it models.
        step: optimiser steps it was trained for.
        vocabulary: what it is conditioned on; None for an unconditional model.
    """

    model: AudioLM
    pattern: Pattern
    context_frames: int
    codec: dict[str, Any]
    step: int
    vocabulary: ConditionVocabulary | None = None


def build_model(
    model: dict[str, Any],
    pattern: str | Sequence[int],
    codec: dict[str, Any],
    context_frames: int,
    vocabulary: ConditionVocabulary | None = None,
    device: str = "cpu",
) -> tuple[AudioLM, Pattern]:
    """An untrained model that fits the codec, and reads windows of `context_frames` frames.

    `pattern` is a name or delays, as of `make_pattern`.

    With an end token it holds the end token of a clip that fills the window. On the device "meta"
    it is only checked: it has no weights.

    Raises:
        ValueError: for settings that do not fit together.
    """
    if context_frames < 1:
        raise ValueError(f"a context of {context_frames} frames holds nothing; raise context")
    laid_out = make_pattern(pattern, codec["num_codebooks"])
    steps = laid_out.num_steps(context_frames + model.get("end_token", False))
    with torch.device(device):
        audiolm = AudioLM(
            num_codebooks=codec["num_codebooks"],
            codebook_size=codec["codebook_size"],
            max_seq_len=steps,
            conditioner=None if vocabulary is None else _make_conditioner(vocabulary, **model),
            **model,
        )
    return audiolm, laid_out


def _make_conditioner(
    vocabulary: ConditionVocabulary, embed_dim: int, num_heads: int, dropout: float = 0.0, **_: Any
) -> Conditioner:
    return vocabulary.make_conditioner(embed_dim, num_heads, dropout)


def load_checkpoint(path: Path) -> TrainedModel:
    """The trained model of a checkpoint.

    Raises:
        FileNotFoundError, ValueError: as `read_checkpoint` and `restore_model`.
    """
    return restore_model(read_checkpoint(path), path)


def restore_model(checkpoint: dict[str, Any], path: Path) -> TrainedModel:
    """The trained model in the contents of a checkpoint; `path` is for the messages.

    Raises:
        ValueError: as `check_format`; also when settings are missing or the weights do not fit.
    """
    check_format(checkpoint, path)
    try:
        settings, step = checkpoint["hyper_parameters"], checkpoint["global_step"]
        conditioning = settings.get("conditioning")
        vocabulary = None
        if conditioning is not None:
            vocabulary = ConditionVocabulary.from_settings(conditioning)
        model, pattern = build_model(
            settings["model"],
            settings["pattern"],
            settings["codec"],
            settings["context_frames"],
            vocabulary,
        )
    except (
        *(LookupError, TypeError, AttributeError),
        *(ArithmeticError, RuntimeError, ValueError),
    ) as error:
        first_line = str(error).partition("\n")[0]
        raise ValueError(f"{path} lacks a setting or has a wrong one: {first_line}") from error
    load_weights(model, weights_to_use(checkpoint), path)
    return TrainedModel(
        model.eval().requires_grad_(False),
        pattern,
        settings["context_frames"],
        settings["codec"],
        step,
        vocabulary,
    )


def weights_to_use(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    """The model's weights in a checkpoint: their average (EMA), where training kept one."""
    weights = checkpoint.get("ema_state_dict", checkpoint["state_dict"])
    return {
        name.removeprefix(PREFIX): weight
        for name, weight in weights.items()
        if name.startswith(PREFIX)
    }


def load_weights(model: AudioLM, weights: dict[str, Tensor], path: Path) -> None:
    """Put weights into a model: those that it has, all of them, of its shapes.

    Raises:
        ValueError: as `check_weights`.
    """
    check_weights(model, weights, path)
    model.load_state_dict(weights)


def check_weights(model: AudioLM, weights: dict[str, Tensor], path: Path) -> None:
    """Refuse weights that are not a model's; it may be on the device "meta".

    Raises:
        ValueError: naming the first one that is missing, not known, or of another shape.
    """
    wanted = model.state_dict()
    for what, names in (
        ("lacks", wanted.keys() - weights),
        ("has a weight that the model does not know,", weights.keys() - wanted),
    ):
        if names:
            raise ValueError(
                f"{path} holds weights that do not fit its own settings: it {what} "
                f"{short(min(names), 80)} ({len(names):,} such of {len(wanted):,})"
            )
    for name, weight in wanted.items():
        if weights[name].shape != weight.shape:
            raise ValueError(
                f"{path} holds weights that do not fit its own settings: {name} is "
                f"{tuple(weights[name].shape)}, the settings ask for {tuple(weight.shape)}"
            )


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The checkpoint in a file, its tensors on the CPU. Runs no code of the file.

    Of an exported model it is the weights' file that is named (`run_folder.find_checkpoint`).

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is cut short, damaged, or no training checkpoint.
    """
    path = user_path(path)
    if is_of_model_folder(path):
        return {"audiolm_format": CHECKPOINT_FORMAT, **read_model_folder(path.parent)}
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such checkpoint; give the path of a .ckpt file, or of an exported folder"
        )
    if problem := _damage(path):
        raise ValueError(f"{path} {problem}")
    checkpoint = load_without_code(
        path,
        f"{path} is not a training checkpoint, or holds Python objects, which could run code, "
        f"and is not loaded: give a .ckpt file that train.py wrote",
    )
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise ValueError(
            f"{path} is not a training checkpoint (it has no 'state_dict'): "
            f"give a .ckpt file that train.py wrote"
        )
    _check_kinds(checkpoint, path)
    return checkpoint


_KINDS = {
    "audiolm_format": int,
    "state_dict": dict,
    "ema_state_dict": dict,
    "hyper_parameters": dict,
    "callbacks": dict,
    "global_step": int,
}


def _check_kinds(checkpoint: dict[str, Any], path: Path) -> None:
    """Refuse parts that are something else than what training writes there."""
    for key, kind in _KINDS.items():
        if key in checkpoint and not isinstance(checkpoint[key], kind):
            found = type(checkpoint[key]).__name__
            raise ValueError(
                f"{path} has a {found} as {key}: give a .ckpt file that train.py wrote"
            )
    for key in ("state_dict", "ema_state_dict"):
        for name, weight in checkpoint.get(key, {}).items():
            if not isinstance(name, str) or not isinstance(weight, torch.Tensor):
                raise ValueError(
                    f"{path} has a {type(weight).__name__} as {name} in {key}: give a .ckpt file "
                    f"that train.py wrote"
                )


def _damage(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    if size == 0 or (is_zip and not zipfile.is_zipfile(path)):
        return (
            f"is cut short ({size} bytes), as by a copy that did not finish: "
            f"copy it again, or use an older checkpoint"
        )
    if not is_zip:
        return "is not a checkpoint: give a .ckpt file that train.py wrote"
    # torch does not look at the checksums: a flipped bit would go unseen into the weights.
    try:
        with zipfile.ZipFile(path) as archive:
            is_whole = archive.testzip() is None
    except OSError as error:
        # zipfile goes to where a damaged directory points, which may be before the file's begin.
        if error.errno != errno.EINVAL:
            raise
        is_whole = False
    except MemoryError:
        raise
    except Exception:  # what zipfile raises for a damaged directory depends on its bytes
        is_whole = False
    return None if is_whole else "is damaged: copy it again, or use an older checkpoint"


def check_format(checkpoint: dict[str, Any], path: Path) -> None:
    """Refuse checkpoints of other programs, and of versions whose checkpoints differ.

    Raises:
        ValueError: one line with the format found and the one wanted.
    """
    found = checkpoint.get("audiolm_format")
    if found is None and "audiolm_codec_format" in checkpoint:
        raise ValueError(
            f"{path} is a checkpoint of a codec, which train_codec.py wrote, and not of a language "
            f"model; train one on its codes: codec=local codec.path=RUN/codec"
        )
    if found is None:
        raise ValueError(f"{path} is not a checkpoint of audiolm; take one that train.py wrote")
    if found != CHECKPOINT_FORMAT:
        raise ValueError(
            f"{path} has format {found}, this version reads {CHECKPOINT_FORMAT}; use the version "
            f"of audiolm that wrote it"
        )
