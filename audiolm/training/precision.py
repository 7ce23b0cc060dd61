"""The number format that trains fastest on the hardware at hand, without harm."""

from __future__ import annotations

from pathlib import Path

import torch


def best_precision(accelerator: str = "auto") -> str:
    """ "bf16-mixed" where matrix products in bfloat16 run in hardware, else "32-true".

    Args:
        accelerator: of `lightning.pytorch.Trainer`: "auto", "cpu", "gpu", "cuda", "mps", ...
    """
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    elif accelerator == "cpu" or (accelerator == "auto" and not torch.backends.mps.is_available()):
        # Emulated bfloat16 is several times slower than float32, so only what the CPU can do.
        fast = bool({"avx512_bf16", "amx_bf16"} & _cpu_features())
    else:
        fast = False
    return "bf16-mixed" if fast else "32-true"


def _cpu_features() -> set[str]:
    if hasattr(torch.cpu, "get_capabilities"):  # not in torch 2.6
        return {name for name, there in torch.cpu.get_capabilities().items() if there is True}
    cpuinfo = Path("/proc/cpuinfo")
    return set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
