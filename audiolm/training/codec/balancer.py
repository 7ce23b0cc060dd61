"""Weights of losses that mean what they say: shares of the gradient, whatever the losses' scale."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def running_norm(average: Tensor, gradient: Tensor, decay: float) -> Tensor:
    """The decayed mean of gradients' norms, this one's included, which is kept in `average`.

    average: two float64 numbers, at first 0: the sum of decayed norms, and of the weights that they
    have in it, so that the mean has no bias.
    """
    average.mul_(decay)
    average += torch.stack([gradient.double().norm(), average.new_ones(())])
    return (average[0] / average[1]).clamp(min=1e-12)


class Balancer(nn.Module):
    """Joins the gradients of several losses with respect to one output.

    Gradient i is divided by the running average of its own norm and gets the share
    w_i / sum of w. The averages are buffers, so that a checkpoint holds them. `encodec` on the
    package index lacks this part. Source: EnCodec, arXiv:2210.13438, section 3.4, equation 4.

    Args:
        weights: of the losses, by name.
        decay: of the averages of the norms.
        total_norm: of the joined gradient, were all losses to point the same way.
    """

    def __init__(
        self, weights: Mapping[str, float], decay: float = 0.999, total_norm: float = 1.0
    ) -> None:
        super().__init__()
        self.weights = {name: weight for name, weight in weights.items() if weight}
        if not self.weights or min(self.weights.values()) < 0:
            raise ValueError(
                f"weights of the losses {dict(weights)}: none may be below 0, not all 0"
            )
        self.decay = decay
        self.total_norm = total_norm
        for name in self.weights:
            self.register_buffer(f"norm_{name}", torch.zeros(2, dtype=torch.float64))

    def gradient(self, losses: Mapping[str, Tensor], output: Tensor) -> Tensor:
        """The joined gradient, of the shape of `output`; `losses` keep their graphs up to there.

        Losses without a weight are omitted; a weight without a loss gets no share.
        """
        present = {name: w for name, w in self.weights.items() if name in losses}
        joined = torch.zeros_like(output)
        for name, weight in present.items():
            (gradient,) = torch.autograd.grad(losses[name], [output], retain_graph=True)
            norm = running_norm(self.get_buffer(f"norm_{name}"), gradient, self.decay)
            scale = self.total_norm * weight / sum(present.values())
            joined += gradient * (scale / norm).to(joined)
        return joined
