from __future__ import annotations

import pytest
import torch
from torch import Tensor

from audiolm.training.codec.balancer import Balancer


def directions() -> tuple[Tensor, dict[str, Tensor]]:
    """An output of four numbers, and losses whose gradients point along one axis each."""
    output = torch.zeros(4, requires_grad=True)
    return output, {"a": 1000 * output[0], "b": 1e-3 * output[1], "c": -5 * output[2]}


def test_shares_follow_the_weights_whatever_the_scale_of_the_losses() -> None:
    output, losses = directions()
    balancer = Balancer({"a": 1, "b": 3, "c": 0}, total_norm=2)
    torch.testing.assert_close(
        balancer.gradient(losses, output), torch.tensor([0.5, 1.5, 0.0, 0.0])
    )
    # A loss that is not there yet leaves its share to the others.
    only = balancer.gradient({"b": losses["b"]}, output)
    torch.testing.assert_close(only, torch.tensor([0.0, 2.0, 0.0, 0.0]))


def test_norms_are_averaged_without_bias_from_the_first_step_on() -> None:
    balancer = Balancer({"a": 1}, decay=0.5)
    output = torch.zeros(1, requires_grad=True)
    found = [float(balancer.gradient({"a": s * output.sum()}, output)) for s in (1.0, 3.0)]
    # (0.5 * 1 + 3) / (0.5 + 1) is the average after the second.
    assert found == pytest.approx([1.0, 3 / (3.5 / 1.5)])


def test_a_vanished_gradient_stays_finite_and_averages_are_in_checkpoints() -> None:
    output, losses = directions()
    balancer = Balancer({"a": 1, "b": 1})
    assert bool(torch.isfinite(balancer.gradient({"a": 0 * output[0]}, output)).all())
    balancer.gradient(losses, output)
    other = Balancer({"a": 1, "b": 1})
    other.load_state_dict(balancer.state_dict())
    assert torch.equal(other.gradient(losses, output), balancer.gradient(losses, output))


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": 1, "b": -1}])
def test_bad_weights(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="weights of the losses"):
        Balancer(weights)
