"""That the models that are compared are of one size, and that their work is counted right."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from audiolm.benchmarks.plain_gpt import plain_gpt
from audiolm.benchmarks.sizes import (
    ModelSize,
    attention_gflop,
    check_peers,
    check_same_work,
    check_size,
    matrix_parameters,
    products_gflop,
)
from audiolm.benchmarks.trainee import our_trainee, random_codes
from audiolm.model import AudioLM

SIZE = ModelSize(
    embed_dim=48, num_layers=2, num_heads=4, num_codebooks=3, codebook_size=32, frames=20
)


def test_parameters_of_matrices_are_those_of_a_plain_transformer() -> None:
    by_hand = SIZE.num_layers * 12 * SIZE.embed_dim**2 + 3 * 32 * SIZE.embed_dim
    assert matrix_parameters(plain_gpt(SIZE)) == by_hand
    ours = our_trainee("ours", SIZE, random_codes(SIZE, 2), {}, {}).model
    assert matrix_parameters(ours) == pytest.approx(by_hand, rel=0.02)


def test_the_size_of_the_comparison_is_that_of_ours_too() -> None:
    size = ModelSize()
    peer = plain_gpt(size)
    steps = size.num_steps
    with torch.device("meta"):
        ours = AudioLM(size.num_codebooks, size.codebook_size, steps, **size.model)
    check_same_work("ours", ours, peer)
    assert matrix_parameters(peer) / 1e6 == pytest.approx(27.3, abs=0.1)


@pytest.mark.parametrize("ours", [False, True])
def test_operations_are_those_that_torch_counts(ours: bool) -> None:
    codes = random_codes(SIZE, 2)
    rows = 2 * SIZE.num_steps
    if ours:
        trainee = our_trainee("ours", SIZE, codes, {"kernel": "from_scratch"}, {})
        model, pairs = trainee.model, 2 * SIZE.num_steps / (SIZE.num_steps + 1)
    else:  # torch does not count its fused attention on a CPU
        model, pairs = plain_gpt(SIZE), 0.0
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(2, SIZE.num_codebooks, SIZE.num_steps, dtype=torch.long))
    counted = counter.get_total_flops() / 1e9
    expected = products_gflop(model, rows) + pairs * attention_gflop(SIZE, 2)
    assert counted == pytest.approx(expected, rel=1e-6)


def test_another_amount_of_work_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"wide has 110 parameters in matrices.* 100"):
        check_same_work("wide", nn.Linear(10, 11), nn.Linear(10, 10))
    check_same_work("alike", nn.Linear(100, 101), nn.Linear(100, 100))


def test_widths_that_cannot_be_compared_are_refused_with_those_that_can() -> None:
    for width in (24, 48, 96, 480, 512, 768):
        check_size(replace(SIZE, embed_dim=width), ["plain_gpt"])
    wide = replace(SIZE, embed_dim=32, num_heads=8)
    check_size(wide, [])
    with pytest.raises(ValueError, match=r"compared\.embed_dim=32 gives .* 48, such as 48, or"):
        check_size(wide, ["plain_gpt"])
    with pytest.raises(ValueError, match="num_heads=7"):
        check_size(replace(SIZE, num_heads=7), [])


@pytest.mark.parametrize("name", [field.name for field in fields(ModelSize)])
def test_a_size_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"compared\.{name}=0 must be a whole number from 1"):
        replace(SIZE, **{name: 0})


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train\.peers: 'gpt' is unknown; choose some of"):
        check_peers("train", ["plain_gpt", "gpt"])
