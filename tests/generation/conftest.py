"""A small model whose samples depend on the past, and the engines that a machine can have."""

import sys
from collections.abc import Callable

import pytest
import torch

from audiolm.generation import generate
from audiolm.generation.engines.build import find_compiler
from audiolm.model import AudioLM, make_pattern
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.patterns import num_steps

K, V, CONTEXT = 3, 19, 8


@pytest.fixture
def make_model() -> Callable[..., AudioLM]:
    """Makes the model of a pattern's name, for windows of `CONTEXT` frames."""

    def make(
        pattern: str,
        positions: str = "rotary",
        end_token: bool = False,
        vocabulary: ConditionVocabulary | None = None,
    ) -> AudioLM:
        torch.manual_seed(0)
        steps = num_steps(make_pattern(pattern, K).positions(CONTEXT + end_token))
        model = AudioLM(
            K,
            V,
            steps,
            embed_dim=24,
            num_layers=2,
            num_heads=4,
            positions=positions,
            end_token=end_token,
            conditioner=vocabulary and vocabulary.make_conditioner(24, 4, dropout=0.1),
        ).eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim >= 2:  # far from uniform, so that samples depend on the past
                    weight.mul_(8)
        return model

    return make


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How generation goes past a window: "auto", or "reread" also where a ring can be had."""
    name: str = getattr(request, "param", "reread")
    if name == "reread":
        monkeypatch.setattr(sys.modules[generate.__module__], "takes_ring", lambda *_: False)
    return name


@pytest.fixture(params=["eager", "native"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engines of a CPU; native is skipped where no compiler is."""
    name: str = request.param
    if name == "native":
        try:
            find_compiler()
        except ValueError as error:
            pytest.skip(str(error))
    return name
