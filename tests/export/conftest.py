"""A run's folder with a checkpoint of a model that has learnt nothing, and all that a run has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.codec import EncodecCodec
from audiolm.model.condition_vocabulary import ConditionVocabulary

from ..untrained import save_untrained

VOCABULARY = ConditionVocabulary(
    {"label": ["0", "1"], "speaker": ["ann", "bo|b"]}, text="said", alphabet="abc ", max_text_len=9
)
EVALUATION: dict[str, Any] = {
    "checkpoint": "/home/someone/secret.ckpt",
    "stores": ["/home/someone/store"],
    "step": 7,
    "validation_seconds": 12.5,
    "bits_per_second": 123.0,
    "codec_bits_per_second": 1000.0,
    "nats_per_code": [
        {"codebook": 0, "model": 2.0, "uniform": 3.46},
        {"codebook": "mean", "model": 2.5, "unigram": 3.0, "uniform": 3.46},
    ],
    "clips": {"frechet": {"latents": {"generated": 4.5, "training": 1.5}}},
}
PLAN: dict[str, Any] = {
    "generate": ["conditioning.label=1", "conditioning.said=ab c", "duration=0.3"],
    "data": {
        "stores": [
            {
                "path": "/home/someone/store",
                "splits": {
                    name: {"clips": clips, "hours": clips / 100, "codes": 1}
                    for name, clips in (("train", 40), ("valid", 3), ("test", 0))
                },
            }
        ]
    },
}


@pytest.fixture
def run(tmp_path: Path, make_tiny_codec: Callable[..., EncodecCodec]) -> Path:
    """runs/x in an empty folder."""
    folder = tmp_path / "runs" / "x"
    folder.mkdir(parents=True)
    codec = make_tiny_codec()
    codec.save(folder / "codec")
    torch.manual_seed(0)
    save_untrained(
        folder / "checkpoints" / "last.ckpt",
        {**codec.identity(), "name": "codec"},
        VOCABULARY,
        20,
        data={"path": "/home/someone/recordings"},
    )
    (folder / "evaluation.json").write_text(json.dumps(EVALUATION))
    (folder / "plan.json").write_text(json.dumps(PLAN))
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "config.yaml").write_text("sampling:\n  temperature: 0.5\n  top_k: 7\n")
    return folder
