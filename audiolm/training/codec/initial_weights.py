"""The weights of a codec that exists, as the beginning of another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audiolm.codec import load_local
from audiolm.codec.local import read_pair
from audiolm.model.checkpoint import read_checkpoint
from audiolm.run_folder import RunFolder, is_run
from audiolm.training.codec.module import CODEC_FORMAT, CodecTraining

HEAD = "spectral_head."


def load_initial_weights(module: CodecTraining, path: Path) -> str:
    """Have `module` begin with the weights of another codec of the same settings.

    Args:
        module: that is to be trained.
        path: a codec's folder or files; a checkpoint of its training, whose spectral head is taken
            too; or the folder of such a run, which stands for its best checkpoint.

    Returns:
        what was taken, for people.

    Raises:
        ValueError, OSError: there is no codec, it cannot be read, or it has other settings.
    """
    if path.is_dir() and is_run(path):
        path = RunFolder(path).chosen_checkpoint()
    settings, weights, head = _from_checkpoint(path) if path.suffix == ".ckpt" else _local(path)
    try:
        module.begin_with(settings, weights, head)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"init_from={path}: {error}") from error
    parts = "codec" if head is None else "codec and spectral head"
    return f"{parts} of {path}"


def _local(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], None]:
    load_local(path)  # checks the fingerprint
    pair = read_pair(path)
    weights = {name: weight.float() for name, weight in pair.weights.items()}
    for name in [name for name in weights if name.endswith(".embed")]:
        codes, codebook = weights[name], name.removesuffix("embed")
        # A codec's file has no averages: as if each code had been used once.
        weights[f"{codebook}cluster_size"] = torch.ones(len(codes))
        weights[f"{codebook}embed_avg"] = codes.clone()
        weights[f"{codebook}inited"] = torch.ones(1)
    return pair.settings, weights, None


def _from_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    checkpoint = read_checkpoint(path)
    if checkpoint.get("audiolm_codec_format") != CODEC_FORMAT:
        raise ValueError(
            f"init_from={path} is no checkpoint of a codec in format {CODEC_FORMAT}; take one that "
            f"train_codec.py of this version wrote, or a codec's folder"
        )
    state: dict[str, Tensor] = checkpoint["state_dict"]

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

    return checkpoint["hyper_parameters"]["settings"], part("model."), part(HEAD)
