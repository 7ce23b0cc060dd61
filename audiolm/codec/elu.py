"""A fast ELU: torch's own takes about half of the time of a small EnCodec on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class _ELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        # exp is vectorised on a CPU, expm1 (which torch's ELU calls) is not; the difference is
        # one rounding of numbers near 1.
        y = x.clamp(max=0).exp_().sub_(1).add_(x.clamp(min=0))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        result: Tensor = torch.ops.aten.elu_backward(gradient, 1.0, 1.0, 1.0, True, y)
        return result


class FastELU(nn.ELU):
    """ELU with alpha 1, equal to `nn.ELU` within 1e-6, and four times as fast on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        y: Tensor = _ELU.apply(x) if x.device.type == "cpu" else super().forward(x)
        return y


def use_fast_elu(module: nn.Module) -> None:
    """Replace every `nn.ELU` in `module`; it has no weights, so state dicts stay the same."""
    for name, child in module.named_children():
        if isinstance(child, nn.ELU):
            setattr(module, name, FastELU())
        else:
            use_fast_elu(child)
