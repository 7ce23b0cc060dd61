"""A run's folder with a model that has learnt nothing, and a workshop for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from audiolm.app.workshop import Workshop
from audiolm.codec import EncodecCodec
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.synthesis.request import SAMPLING
from audiolm.synthesis.synthesizer import Synthesizer

from ..untrained import save_untrained

VOCABULARY = ConditionVocabulary(
    {"label": ["no", '<b>oh</b> & "so"', "${1} {{x}} `"]},
    text="text",
    alphabet=" hnos",
    max_text_len=12,
    vector="embedding",
    vector_size=2,
)

MakeRun = Callable[..., Path]


def make_run_folder(
    path: Path, codec: EncodecCodec, vocabulary: ConditionVocabulary = VOCABULARY, seed: int = 0
) -> Path:
    """A run's folder with its codec; return its checkpoint."""
    path.mkdir(parents=True)
    checkpoint = path / "checkpoints" / "last.ckpt"
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        save_untrained(checkpoint, codec.identity(), vocabulary, 60)
    codec.save(path / "codec")
    return checkpoint


@pytest.fixture
def make_run(tmp_path: Path, make_tiny_codec: Callable[..., EncodecCodec]) -> MakeRun:
    """`make_run("name", seed=0)`: the checkpoint of a new run."""

    def make(name: str, seed: int = 0, vocabulary: ConditionVocabulary = VOCABULARY) -> Path:
        return make_run_folder(tmp_path / name, make_tiny_codec(), vocabulary, seed)

    return make


@pytest.fixture
def workshop(make_run: MakeRun) -> Workshop:
    """Of one run, with another to compare with."""
    one = Synthesizer.load(make_run("one"))
    other = make_run("other", seed=1)
    return Workshop(one, Synthesizer.load, {"other": other}, sampling=SAMPLING)
