"""What the machine can do at most: candidates beside which the others are measured.

Matrix products of sizes as they occur in a model of width 512, and a read of memory that no cache
holds. They keep all of torch's threads busy, as many as the other candidates use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from audiolm.benchmarks.disturbance import Stopwatch
from audiolm.benchmarks.rounds import Candidate

FP32, BF16, READ = "fp32 matrix product", "bf16 matrix product", "memory read"
OWN_FP32, OWN_BF16 = "fp32 products of the model", "bf16 products of the model"
NUM_ROWS, WIDTH, HIDDEN = 2048, 512, 2048
READ_BYTES = 2**28
SECONDS = 0.3
"""About how long a sample takes: long beside the ticks that other load is counted in."""


def limits() -> list[Candidate]:
    """FP32 and BF16 in GFLOP/s, READ in GB/s."""
    return [_product(FP32), _product(BF16), _read()]


def _product(name: str) -> Candidate:
    dtype = torch.bfloat16 if name == BF16 else torch.float32
    generator = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator).to(dtype)

    x, up, down = matrix(NUM_ROWS, WIDTH), matrix(HIDDEN, WIDTH), matrix(WIDTH, HIDDEN)
    # The two products of a feed-forward layer; their outputs stay in the cache, as a model's do.
    flops = 2 * 2.0 * NUM_ROWS * WIDTH * HIDDEN

    @torch.inference_mode()
    def multiply(times: int) -> None:
        for _ in range(times):
            F.linear(F.linear(x, up), down)

    times = times_that_take(multiply, SECONDS)
    return Candidate(name, lambda: multiply(times), times * flops / 1e9, "GFLOP/s")


def products_of(name: str, shapes: Mapping[tuple[int, int], int], rows: int) -> Candidate:
    """The matrix products of a training step of one model alone, in GFLOP/s.

    Of each matrix: forward, and backward to the input and to the weight, all with operands as
    `linear` likes them best.

    name: OWN_FP32 or OWN_BF16. shapes: (outputs, inputs) of the matrices, and how many there are.
    rows: of their inputs.
    """
    dtype = torch.bfloat16 if name == OWN_BF16 else torch.float32
    generator = torch.Generator().manual_seed(0)
    operands: list[tuple[Tensor, Tensor, int]] = []
    flops = 0.0
    for (outputs, inputs), count in shapes.items():
        sizes = (rows, inputs), (outputs, inputs), (rows, outputs)
        x, weight, gradient = (torch.randn(s, generator=generator).to(dtype) for s in sizes)
        for left, right in ((x, weight), (gradient, weight.T), (gradient.T, x.T)):
            operands.append((left.contiguous(), right.contiguous(), count))
        flops += 3 * 2.0 * rows * outputs * inputs * count

    @torch.inference_mode()
    def multiply(times: int) -> None:
        for _ in range(times):
            for left, right, count in operands:
                for _ in range(count):
                    F.linear(left, right)

    times = times_that_take(multiply, SECONDS)
    return Candidate(name, lambda: multiply(times), times * flops / 1e9, "GFLOP/s")


def _read() -> Candidate:
    memory = torch.ones(READ_BYTES // 4)
    # Which of these is bound by memory and not by its own work depends on the machine and threads.
    readers: tuple[Callable[[], object], ...] = (
        memory.sum,
        memory.amax,
        lambda: torch.dot(memory, memory),
    )

    def seconds(reader: Callable[[], object]) -> float:
        reader()
        with Stopwatch() as watch:
            reader()
        return watch.sample.seconds

    fastest = min(readers, key=seconds)

    @torch.inference_mode()
    def read(times: int) -> None:
        for _ in range(times):
            fastest()

    times = times_that_take(read, SECONDS)
    return Candidate(READ, lambda: read(times), times * READ_BYTES / 1e9, "GB/s")


def times_that_take(run: Callable[[int], None], seconds: float) -> int:
    """How often to run something for it to take about so long."""
    run(1)
    times = 1
    while True:
        with Stopwatch() as watch:
            run(times)
        # Not sooner: a fraction of that may be somebody else's.
        if watch.sample.seconds > seconds / 2:
            return max(1, round(times * seconds / watch.sample.seconds))
        times *= 2
