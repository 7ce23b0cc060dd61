"""A model that trains on one batch, again and again.

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from audiolm.batches.windows import WindowBatch
from audiolm.benchmarks.disturbance import Stopwatch
from audiolm.benchmarks.limits import SECONDS
from audiolm.benchmarks.sizes import PATTERN, ModelSize
from audiolm.training import LanguageModelTraining, make_optimizer

UNIT = "codes/s"


@dataclass
class Trainee:
    """A model and its loss (mean nats per code) on the batch that all train on."""

    name: str
    model: nn.Module
    loss: Callable[[], Tensor]
    optimizer: torch.optim.Optimizer

    def step(self, bf16: bool) -> float:
        """Train a step, and return the loss before it. bf16: as Lightning's bf16-mixed."""
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = self.loss()
        torch.autograd.backward(loss)
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def steps(self, count: int, bf16: bool) -> None:
        for _ in range(count):
            self.step(bf16)

    def timed(self, bf16: bool) -> tuple[Callable[[], None], int]:
        """Steps that take about `SECONDS` together, and how many they are; warmed up by one."""
        with Stopwatch() as watch:
            self.step(bf16)
        times = max(1, round(SECONDS / watch.sample.seconds))
        return lambda: self.steps(times, bf16), times


def random_codes(size: ModelSize, batch: int) -> Tensor:
    """(B, K, T), the same each time."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch, size.num_codebooks, size.frames)
    return torch.randint(size.codebook_size, shape, generator=generator)


def our_trainee(
    name: str,
    size: ModelSize,
    codes: Tensor,
    model: Mapping[str, Any],
    optim: Mapping[str, Any],
) -> Trainee:
    """This package's model on codes (B, K, T). model: its arguments beside those of the size."""
    module = our_module(size, model, optim)
    lengths = torch.full((len(codes),), size.frames)
    batch = full_batch(codes, lengths)
    return trainee_of(name, module, batch, make_optimizer(module.model, 1000, **optim)[0])


def full_batch(codes: Tensor, lengths: Tensor) -> WindowBatch:
    """A batch of windows (B, K, T) from the middle of clips."""
    return {
        "codes": codes,
        "lengths": lengths,
        "reaches_end": torch.zeros(len(codes), dtype=torch.bool),
        "conditions": {},
        "full": codes.numel(),
    }


def our_module(
    size: ModelSize, model: Mapping[str, Any], optim: Mapping[str, Any]
) -> LanguageModelTraining:
    """This package's model, untrained. model: its arguments beside those of the size."""
    torch.manual_seed(0)
    return LanguageModelTraining(
        model={**size.model, **model},
        pattern=PATTERN,
        codec=size.codec,
        context_frames=size.frames,
        optim=dict(optim),
    )


def trainee_of(
    name: str, module: LanguageModelTraining, batch: WindowBatch, optimizer: torch.optim.Optimizer
) -> Trainee:
    """The module's model, with the loss that it trains on."""

    def loss() -> Tensor:
        nats, _ = module.predict(batch).nats()
        mean: Tensor = nats.sum() / batch["full"]
        return mean

    return Trainee(name, module.model, loss, optimizer)
