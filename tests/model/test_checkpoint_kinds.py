"""A checkpoint whose parts are something else than training writes: a line, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.model.checkpoint import CHECKPOINT_FORMAT, build_model, load_checkpoint

CODEC = {"num_codebooks": 2, "codebook_size": 8, "frame_rate": 50.0, "fingerprint": "f"}
MODEL = {"embed_dim": 8, "num_layers": 1, "num_heads": 2}
STRANGE: tuple[Any, ...] = (None, [], {}, "text", -1, 2.5, [1, 2], {"a": 1}, True, torch.zeros(2))


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    model, _ = build_model(MODEL, "delay", CODEC, 4)
    return {
        "audiolm_format": CHECKPOINT_FORMAT,
        "state_dict": {f"model.{name}": x for name, x in model.state_dict().items()},
        "hyper_parameters": {
            "model": MODEL,
            "pattern": "delay",
            "codec": CODEC,
            "context_frames": 4,
            "conditioning": None,
        },
        "global_step": 3,
    }


def places(whole: dict[str, Any]) -> list[tuple[str, ...]]:
    """Where something may stand: on top, in the settings, in those of the model, in weights."""
    found: list[tuple[str, ...]] = [(key,) for key in (*whole, "ema_state_dict")]
    for key in ("state_dict", "hyper_parameters"):
        found += [(key, inner) for inner in whole[key]]
    found += [("hyper_parameters", "model", key) for key in MODEL]
    found += [("hyper_parameters", "codec", key) for key in ("num_codebooks", "codebook_size")]
    return found


def test_it_loads_as_it_is(tmp_path: Path, whole: dict[str, Any]) -> None:
    torch.save(whole, tmp_path / "a.ckpt")
    assert load_checkpoint(tmp_path / "a.ckpt").step == 3


def test_anything_else_anywhere_is_refused_or_harmless(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    path = tmp_path / "a.ckpt"
    refused = 0
    for place in places(whole):
        for strange in STRANGE:
            changed: dict[str, Any] = {**whole}
            inner = changed
            for key in place[:-1]:
                inner[key] = dict(inner[key])
                inner = inner[key]
            inner[place[-1]] = strange
            torch.save(changed, path)
            try:
                load_checkpoint(path)
            except ValueError as error:
                refused += 1
                assert "\n" not in str(error), (place, strange)
    assert refused > len(places(whole)) * len(STRANGE) // 2


def test_a_damaged_directory_of_a_checkpoint_is_a_line(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    """Every byte of the zip's directory in turn: refused in one line, or read as it was."""
    path = tmp_path / "a.ckpt"
    torch.save(whole, path)
    data = path.read_bytes()
    begin = data.index(b"PK\x01\x02")
    refused = 0
    for at in [*range(begin, begin + 64), *range(len(data) - 22, len(data))]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            load_checkpoint(path)
        except ValueError as error:
            assert "\n" not in str(error) and str(path) in str(error)
            refused += 1
    assert refused > 20
