"""A synthesizer of a small model whose samples depend on the past, on its conditions, and end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from audiolm.codec import EncodecCodec
from audiolm.model.checkpoint import TrainedModel, build_model
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.synthesis.synthesizer import Synthesizer

CONTEXT = 30

VOCABULARY = ConditionVocabulary(
    {"label": ["no", "oh", "so"], "speaker": ["ada", "ben"]},
    text="text",
    alphabet=" hnos",
    max_text_len=12,
    vector="embedding",
    vector_size=2,
)


@pytest.fixture(scope="session")
def make_synthesizer(
    make_tiny_codec: Callable[..., EncodecCodec],
) -> Callable[[ConditionVocabulary | None], Synthesizer]:
    """`make_synthesizer(vocabulary)`; None for an unconditional model."""

    def make(vocabulary: ConditionVocabulary | None = VOCABULARY) -> Synthesizer:
        codec = make_tiny_codec()
        settings = {"embed_dim": 16, "num_heads": 2, "num_layers": 1, "end_token": True}
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            model, pattern = build_model(settings, "delay", codec.identity(), CONTEXT, vocabulary)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim >= 2:  # far from uniform, so that samples depend on the past
                    weight.mul_(6)
        model.eval().requires_grad_(False)
        trained = TrainedModel(model, pattern, CONTEXT, codec.identity(), 7, vocabulary)
        return Synthesizer(trained, codec)

    return make


@pytest.fixture
def synthesizer(make_synthesizer: Callable[..., Synthesizer]) -> Synthesizer:
    return make_synthesizer()
