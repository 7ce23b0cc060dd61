from __future__ import annotations

from typing import Any

import pytest
import torch

from audiolm.training import best_precision, precision


@pytest.mark.parametrize(
    ("bf16", "fp32", "expected"),
    [(1e-4, 8e-4, "bf16-mixed"), (8e-4, 4e-4, "32-true"), (1.0, 4e-4, "32-true")],
)
def test_a_cpu_gets_what_multiplies_faster(
    monkeypatch: pytest.MonkeyPatch, bf16: float, fp32: float, expected: str
) -> None:
    seconds = {torch.bfloat16: bf16, torch.float32: fp32}
    monkeypatch.setattr(precision, "_seconds_of_product", seconds.__getitem__)
    assert best_precision("cpu") == expected


def test_the_choice_is_made_once_a_process() -> None:
    assert len({best_precision("cpu") for _ in range(20)}) == 1
    assert precision._seconds_of_product(torch.float32) > 0


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
