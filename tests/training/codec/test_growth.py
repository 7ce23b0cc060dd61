from __future__ import annotations

from typing import Any

import pytest
import torch

from audiolm.codec import build_model
from audiolm.training.codec.growth import grow_decoder

from ...conftest import TINY


def decoders(settings: dict[str, Any], **grown: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    small, large = build_model(TINY | settings), build_model(TINY | settings | grown)
    return small.decoder.double(), large.decoder.double()


def difference(small: Any, large: Any) -> float:
    latents = torch.randn(2, TINY["dimension"], 9, dtype=torch.float64)
    with torch.no_grad():
        before, after = small(latents), large(latents)
    return float((after - before).norm() / before.norm())


@pytest.mark.parametrize(
    "settings", [{}, {"norm": "none", "causal": True}, {"true_skip": False, "channels": 2}], ids=str
)
@pytest.mark.parametrize("layers", [1, 3])
def test_a_deeper_decoder_computes_the_same_at_first(settings: dict[str, Any], layers: int) -> None:
    small, large = decoders(settings, decoder_residual_layers=layers)
    assert difference(small, large) > 0.01  # before
    grow_decoder(small, large)
    assert difference(small, large) < 1e-6


@pytest.mark.parametrize("settings", [{}, {"true_skip": False, "norm": "none"}], ids=str)
def test_a_wider_decoder_computes_nearly_the_same_at_first(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = decoders(settings, decoder_filters=3 * TINY["n_filters"])
    grow_decoder(small, large)
    assert 0 < difference(small, large) < 0.2
    monkeypatch.setattr("audiolm.training.codec.growth.SPREAD", 0.0)
    grow_decoder(small, large)
    assert difference(small, large) < 1e-6


def test_all_that_is_new_learns() -> None:
    small, large = decoders({}, decoder_filters=2 * TINY["n_filters"], decoder_residual_layers=2)
    grow_decoder(small, large)
    optimizer = torch.optim.SGD(large.parameters(), 0.01)
    before = {name: p.detach().clone() for name, p in large.named_parameters()}
    for _ in range(2):  # a layer that gives zeros learns its own size first
        optimizer.zero_grad()
        large(torch.randn(2, TINY["dimension"], 9, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
    same = [name for name, p in large.named_parameters() if torch.equal(p, before[name])]
    assert not same
    first = large.model[0].conv.conv.weight_v
    copies = first.chunk(2)
    assert not torch.equal(*copies)


@pytest.mark.parametrize(
    ("settings", "grown", "words"),
    [
        ({}, {"decoder_filters": 6}, ["4 filters", "multiple", "6"]),
        ({}, {"decoder_residual_layers": 0}, ["1 residual", "0"]),
        ({"lstm": 1}, {"decoder_residual_layers": 2}, ["SLSTM", "cannot be grown"]),
    ],
)
def test_what_cannot_be_grown_is_refused(
    settings: dict[str, Any], grown: dict[str, int], words: list[str]
) -> None:
    with pytest.raises(ValueError) as error:
        grow_decoder(*decoders(settings, **grown))
    assert all(word in str(error.value) for word in words)
