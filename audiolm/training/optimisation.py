"""AdamW and its schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.lr_scheduler import LambdaLR

from audiolm.limits import NOT_NEGATIVE, POSITIVE, SHARE_BELOW_1


def warmup_cosine(step: int, max_steps: int, warmup_steps: int, final_lr_ratio: float) -> float:
    """Factor on the learning rate of optimiser step `step` (from 0): linear rise, cosine fall.

    Source: Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, max_steps - warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return final_lr_ratio + (1 - final_lr_ratio) * cosine


def make_optimizer(
    model: nn.Module,
    max_steps: int,
    lr: float = 1e-3,
    weight_decay: float = 0.1,
    betas: Sequence[float] = (0.9, 0.95),
    warmup_steps: int = 100,
    final_lr_ratio: float = 0.1,
) -> tuple[torch.optim.AdamW, LambdaLR]:
    """AdamW with decoupled decay on matrices only, and `warmup_cosine`.

    Args:
        model: whose parameters are trained.
        max_steps: optimiser steps of the whole run.
        lr: the highest learning rate.
        weight_decay: decay of matrices and embeddings; gains of norms have none.
        betas: decay of the averages of the gradient and of its square.
        warmup_steps: steps until `lr` is reached; no more than `max_steps` are taken.
        final_lr_ratio: learning rate at the end, as a share of `lr`.

    Raises:
        ValueError: for settings out of range.

    Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization".
    """
    POSITIVE.check("optim.lr", lr)
    NOT_NEGATIVE.check("optim.warmup_steps", warmup_steps)
    NOT_NEGATIVE.check("optim.weight_decay", weight_decay)
    NOT_NEGATIVE.check("optim.final_lr_ratio", final_lr_ratio)
    if len(betas) != 2:
        raise ValueError(f"optim.betas={list(betas)} must be two numbers, such as [0.9,0.95]")
    first, second = (SHARE_BELOW_1.check("optim.betas", beta) for beta in betas)
    warmup_steps = min(warmup_steps, max_steps)
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(first, second), fused=True)
    schedule = LambdaLR(
        optimizer, lambda step: warmup_cosine(step, max_steps, warmup_steps, final_lr_ratio)
    )
    return optimizer, schedule


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Scale all gradients down to a norm of `limit` in all, if it is larger; return the norm.

    Unlike torch's `clip_grad_norm_`, gradients below the limit are not multiplied by 1, which on
    a CPU is a pass over the memory of all of them.

    Source: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks",
    section 3.2.
    """
    parameters = [p for p in parameters if p.grad is not None]
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    if not bool(norm <= limit):  # also where it is not finite: what torch does then stays
        clip_grads_with_norm_(parameters, limit, norm)
    return norm


def override_optimizer_settings(
    optimizer: torch.optim.Optimizer, schedule: LambdaLR, fresh: tuple[torch.optim.AdamW, LambdaLR]
) -> None:
    """Give a resumed optimiser and schedule the settings of fresh ones, and keep their state.

    A checkpoint brings its own learning rate, decay and betas back; a user who resumes with others
    means the others. With the same settings nothing changes, not even by rounding.
    """
    new_optimizer, new_schedule = fresh
    schedule.base_lrs = list(new_schedule.base_lrs)
    for group, new, base, factor in zip(
        optimizer.param_groups,
        new_optimizer.param_groups,
        schedule.base_lrs,
        new_schedule.lr_lambdas,
        strict=True,
    ):
        for key in ("weight_decay", "betas", "initial_lr"):
            group[key] = new[key]
        group["lr"] = base * factor(schedule.last_epoch)
