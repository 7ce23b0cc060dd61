"""Normalisation of what a block reads: by root mean square, or LayerNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, which has `weight`'s width.

    Under autocast the result has autocast's type, for the matrix product that follows. On a CPU it
    is computed in few passes over memory: torch's own, made of single operations there, takes
    three times as long in training.

    Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4.
    """

    def __init__(self, embed_dim: int, eps: float = 1e-6) -> None:
        super().__init__(embed_dim, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        autocast = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if autocast else x.dtype
        normed: Tensor = _RMSNorm.apply(x, self.weight, self.eps, dtype)
        return normed


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        # Squares in float32 or wider, whatever x is.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_() / x.shape[-1]
        rstd = mean_square.add_(eps).rsqrt_()
        normed = wide * rstd
        ctx.save_for_backward(normed, rstd, weight)
        ctx.dtype = x.dtype
        y: Tensor = (normed * weight).to(dtype)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        normed, rstd, weight = ctx.saved_tensors
        gradient = gradient.to(normed.dtype)
        product = (gradient * normed).reshape(-1, len(weight))
        grad_weight = product.sum(dim=0).to(weight.dtype)
        along = (product @ weight.to(product.dtype) / len(weight)).view(rstd.shape)
        grad_x = (gradient * weight).addcmul_(normed, along, value=-1).mul_(rstd)
        return grad_x.to(ctx.dtype), grad_weight, None, None


NORMS: dict[str, Callable[[int], RMSNorm | nn.LayerNorm]] = {"rms": RMSNorm, "layer": nn.LayerNorm}
"""Makes a norm of a width: with a weight; "layer", as in MusicGen, with mean and bias besides."""
