"""A small store, made through the codec, and what makes a run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from audiolm.codec import EncodecCodec
from audiolm.datasets.checks.check import check_clips
from audiolm.datasets.checks.rules import Rules
from audiolm.datasets.folder import folder_clips
from audiolm.tokens import TokenStore, prepare_store
from audiolm.training import AtomicCheckpointIO, LanguageModelTraining, TokenData

CONTEXT = 12  # frames
MODEL: dict[str, Any] = {"embed_dim": 16, "num_layers": 2, "num_heads": 2, "dropout": 0.2}
OPTIM: dict[str, Any] = {"lr": 3e-3, "warmup_steps": 2}


class Batches:
    """Batches that are a function of their number, from `first` on."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def __len__(self) -> int:
        return self.last

    def __iter__(self) -> Iterator[Tensor]:
        for n in range(self.first, self.last):
            yield torch.randn(2, 4, generator=torch.Generator().manual_seed(n))


@pytest.fixture(scope="session")
def tiny_codec(make_tiny_codec: Callable[..., EncodecCodec]) -> EncodecCodec:
    return make_tiny_codec(num_codebooks=3)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_codec: EncodecCodec) -> TokenStore:
    """24 clips of noise and tones, some shorter than CONTEXT."""
    folder = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(0)
    for i in range(24):
        samples = rng.integers(100, 400)
        tone = np.sin(np.arange(samples) * rng.uniform(0.02, 0.5))
        soundfile.write(folder / f"{i:02d}.wav", 0.4 * tone + rng.normal(0, 0.05, samples), 800)
    return encode_folder(folder, tmp_path_factory.mktemp("tokens"), tiny_codec)


def encode_folder(folder: Path, out: Path, codec: EncodecCodec) -> TokenStore:
    """The store of a folder of recordings, below `out`."""
    report = check_clips(
        folder_clips(folder), out / "checked", Rules(), num_workers=0, show_progress=False
    )
    prepare_store(report, codec, out / "store", show_progress=False)
    return TokenStore(out / "store")


def make_module(codec: EncodecCodec, **overrides: Any) -> LanguageModelTraining:
    settings: dict[str, Any] = {
        "model": MODEL,
        "pattern": "delay",
        "codec": codec.identity(),
        "context_frames": CONTEXT,
        "optim": OPTIM,
    }
    pl.seed_everything(0, verbose=False)
    return LanguageModelTraining(**(settings | overrides))


def make_data(store: TokenStore, **overrides: Any) -> TokenData:
    settings: dict[str, Any] = {"context_frames": CONTEXT, "batch_size": 4, "valid_fraction": 0.2}
    return TokenData(store, **(settings | overrides))


def make_trainer(folder: Path, **overrides: Any) -> pl.Trainer:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_steps": 12,
        "val_check_interval": 5,
        "check_val_every_n_epoch": None,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
        "gradient_clip_val": 1.0,
        "logger": False,
        "enable_checkpointing": True,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "plugins": [AtomicCheckpointIO()],
    }
    return pl.Trainer(**(settings | overrides))
