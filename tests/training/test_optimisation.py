from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.training import optimisation
from audiolm.training.optimisation import best_precision


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"avx512_f", "avx512_bf16"}, "bf16-mixed"),
        ({"amx_bf16", "amx_tile"}, "bf16-mixed"),
        ({"avx2", "fma3"}, "32-true"),
    ],
)
def test_cpu(monkeypatch: pytest.MonkeyPatch, features: set[str], expected: str) -> None:
    monkeypatch.setattr(optimisation, "_cpu_features", lambda: features)
    assert best_precision("cpu") == expected


def test_cpu_features_are_flags_with_or_without_the_function_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        pytest.skip("needs /proc/cpuinfo")
    wanted = {"avx512_bf16", "amx_bf16"}
    by_torch = optimisation._cpu_features() & wanted
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert optimisation._cpu_features() & wanted == by_torch


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16-mixed"), (False, "32-true")])
def test_gpu(monkeypatch: pytest.MonkeyPatch, has_bf16: bool, expected: str) -> None:
    def is_bf16_supported(including_emulation: bool) -> Any:
        assert not including_emulation
        return has_bf16

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    for accelerator in ("auto", "gpu", "cuda"):
        assert best_precision(accelerator) == expected


def test_other_accelerators_get_float32() -> None:
    assert best_precision("mps") == "32-true"
