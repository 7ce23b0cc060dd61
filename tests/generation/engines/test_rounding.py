"""Rounded weights: what the numbers are."""

import pytest
import torch
from torch import nn

from audiolm.generation.engines.rounding import quantise_rows, round_weights
from audiolm.model import AudioLM


def make_model() -> AudioLM:
    torch.manual_seed(0)
    return AudioLM(2, 7, 8, embed_dim=12, num_layers=1, num_heads=2).eval()


def test_int8_rows_are_within_half_a_step_and_use_the_whole_range() -> None:
    matrix = torch.randn(9, 33) * torch.logspace(-3, 3, 9)[:, None]
    integers, scales = quantise_rows(matrix)
    assert integers.dtype == torch.int8 and scales.shape == (9,)
    assert (integers.abs().amax(dim=1) == 127).all()
    error = (integers * scales[:, None] - matrix).abs()
    assert (error <= scales[:, None] * 0.5001).all()


def test_a_row_of_zeros_stays_one() -> None:
    integers, scales = quantise_rows(torch.zeros(2, 5))
    assert (integers == 0).all() and torch.isfinite(scales).all()


def test_rounded_numbers_round_to_themselves() -> None:
    integers, scales = quantise_rows(torch.randn(20, 50))
    again, new_scales = quantise_rows(integers * scales[:, None])
    assert torch.equal(again, integers)
    torch.testing.assert_close(new_scales, scales, rtol=1e-6, atol=0)


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_matrices_are_rounded_and_nothing_else(weights: str) -> None:
    model = make_model()
    rounded = round_weights(model, weights)
    matrices = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert matrices
    for name, weight in model.named_parameters():
        other = rounded.get_parameter(name)
        assert other.dtype == torch.float32
        assert torch.equal(other, weight) != (name.removesuffix(".weight") in matrices)
        torch.testing.assert_close(other, weight, rtol=0.02, atol=0.02 * weight.abs().max().item())


def test_float32_is_the_model_itself() -> None:
    model = make_model()
    assert round_weights(model, "float32") is model


def test_a_copy_made_while_only_inferring_can_be_used_after() -> None:
    model = make_model()
    with torch.inference_mode():
        rounded = round_weights(model, "bfloat16")
    assert not any(weight.is_inference() for weight in rounded.parameters())


def test_unknown_weights() -> None:
    with pytest.raises(ValueError, match="weights='int4' is unknown; choose one of float32"):
        round_weights(make_model(), "int4")
