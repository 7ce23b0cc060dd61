"""The number format that trains fastest without harm."""

from __future__ import annotations

import time
from functools import cache

import torch

SHAPE = (1024, 256, 256)
"""Of the product that is timed: what a linear layer of a small model multiplies in a step."""
REPEATS = 7


def best_precision(accelerator: str = "auto") -> str:
    """ "bf16-mixed" where matrix products are faster in bfloat16, else "32-true".

    On a CPU that is measured, in some milliseconds: its flags do not tell. With AMX bfloat16 is
    about eight times as fast as float32, by AVX-512 BF16 twice as fast on an AMD EPYC (Zen 4) and
    half as fast on an Intel Xeon whose AMX is turned off, and several times slower where it is
    emulated.

    Args:
        accelerator: of `lightning.pytorch.Trainer`: "auto", "cpu", "gpu", "cuda", "mps", ...
    """
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    elif accelerator == "cpu" or (accelerator == "auto" and not torch.backends.mps.is_available()):
        fast = _seconds_of_product(torch.bfloat16) < _seconds_of_product(torch.float32)
    else:
        fast = False
    return "bf16-mixed" if fast else "32-true"


@cache
def _seconds_of_product(dtype: torch.dtype) -> float:
    """The shortest of some products on the CPU, so that other work beside does not decide."""
    rows, inner, columns = SHAPE
    left, right = torch.ones(rows, inner, dtype=dtype), torch.ones(inner, columns, dtype=dtype)
    shortest = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        left @ right
        shortest = min(shortest, time.perf_counter() - start)
    return shortest
