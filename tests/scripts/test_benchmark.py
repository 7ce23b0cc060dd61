"""scripts/benchmark.py at the size of a smoke test: that it measures, not what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import audiolm.benchmark.limits as limits

from .conftest import RunScript

SMALL = ["rounds=1", "encode.short_seconds=2", "encode.minutes=1", "data.clips=30"]
TINY = ["model.embed_dim=12", "model.num_layers=1", "model.num_heads=2", "data.context=0.2"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.02)
    monkeypatch.setattr(limits, "READ_BYTES", 2**16)
    monkeypatch.setattr("audiolm.benchmark.data.SECONDS", 0.02)


def test_both_sections(run_script: RunScript, workplace: Path, codec_folder: Path) -> None:
    codec = ["codec=local", f"codec.path={codec_folder}"]
    result = run_script("benchmark", *SMALL, *TINY, *codec, "out=results/speed.json")
    assert result.code == 0, result.err
    written = json.loads((workplace / "results" / "speed.json").read_text())
    assert list(written["sections"]) == ["encode", "data"]
    encode, data = written["sections"].values()
    for section in (encode, data):
        names = [figure["name"] for figure in section["figures"]]
        assert names[:3] == ["fp32 matrix product", "bf16 matrix product", "memory read"]
        assert all(name in result.out for name in names)
        assert all(figure["rate"]["median"] > 0 for figure in section["figures"])
    shares = [figure["share_of_limit"] for figure in encode["figures"][3:]]
    assert len(shares) == 8 and all(0 < share < 1 for share in shares)
    same = [text for name, text in encode["facts"].items() if "codes the same" in name]
    assert len(same) == 2 and all(float(text.split(" %")[0]) >= 99.9 for text in same)
    assert any("this package" in figure["name"] for figure in data["figures"])
    assert "times the windows" in data["facts"]["loader / training step"]
    assert written["settings"]["rounds"] == 1 and written["machine"]["threads"] >= 1
    assert result.out.splitlines()[-1] == "results   results/speed.json"
    assert not list(workplace.glob("runs*")) and not list(workplace.glob("data*"))


def test_too_few_recordings_are_said(
    run_script: RunScript, workplace: Path, codec_folder: Path, recordings: Path
) -> None:
    codec = ["codec=local", f"codec.path={codec_folder}", "encode.check_workers=1"]
    result = run_script("benchmark", *SMALL, *codec, "sections=[encode]", f"audio={recordings}")
    assert result.code == 2 and "holds 0 minutes of audio" in result.err
    assert not (workplace / "benchmark.json").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["sections=[speed]"], "sections=['speed'] must be some of encode, data"),
        (["sections=[]"], "sections=[] must be some of encode, data"),
        (["rounds=0"], "rounds=0 must be at least 1"),
        (["audio=nowhere"], "no such folder: nowhere"),
        (["encode.short_seconds=0"], "encode.short_seconds=0 must be above 0"),
        (["encode.minuets=1"], "encode.minuets"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(
    run_script: RunScript, workplace: Path, overrides: list[str], message: str
) -> None:
    result = run_script("benchmark", *SMALL, *overrides)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert message in line


def test_ctrl_c_keeps_what_was_measured(
    run_script: RunScript, workplace: Path, codec_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("audiolm.benchmark.data.data_section", interrupted)
    codec = ["codec=local", f"codec.path={codec_folder}"]
    result = run_script("benchmark", *SMALL, *TINY, *codec)
    assert result.code == 130
    assert result.err.splitlines()[-1] == "stopped; encode in benchmark.json"
    assert list(json.loads(Path("benchmark.json").read_text())["sections"]) == ["encode"]
