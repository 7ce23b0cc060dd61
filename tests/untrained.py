"""A checkpoint of a model that has learnt nothing, for the tests of what evaluates models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from audiolm.model.checkpoint import CHECKPOINT_FORMAT, build_model
from audiolm.model.condition_vocabulary import ConditionVocabulary


def save_untrained(
    path: Path,
    codec: dict[str, Any],
    vocabulary: ConditionVocabulary,
    context_frames: int,
    **more: Any,
) -> None:
    """Write the smallest model with an end token, as train.py would. more: hyper-parameters."""
    settings: dict[str, Any] = {
        "model": {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "end_token": True},
        "pattern": "delay",
        "codec": codec,
        "context_frames": context_frames,
        "conditioning": vocabulary.settings(),
        **more,
    }
    model, _ = build_model(
        settings["model"], settings["pattern"], codec, context_frames, vocabulary
    )
    path.parent.mkdir()
    torch.save(
        {
            "audiolm_format": CHECKPOINT_FORMAT,
            "global_step": 7,
            "hyper_parameters": settings,
            "state_dict": {f"model.{name}": weight for name, weight in model.state_dict().items()},
        },
        path,
    )
