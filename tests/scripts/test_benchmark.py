"""scripts/benchmark.py at the size of a smoke test: that it measures, not what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import audiolm.benchmarks.limits as limits

from .conftest import RunScript

SMALL = [
    "rounds=1",
    "encode.short_seconds=2",
    "encode.lengths=[5]",
    "encode.long_seconds=10",
    "data.clips=30",
]
TINY = ["model.embed_dim=12", "model.num_layers=1", "model.num_heads=2", "data.context=0.2"]
COMPARED = [
    "compared.embed_dim=48",
    "compared.num_layers=1",
    "compared.num_heads=2",
    "compared.codebook_size=32",
    "compared.frames=12",
    "train.peers=[plain_gpt]",
    "train.lightning_steps=1",
    "generate.frames=4",
    "generate.prompt_frames=3",
    "generate.peers=[plain_gpt]",
    "generate.rounds=1",
    "generate.large={embed_dim: 96, num_layers: 1, num_heads: 2}",
    "generate.large_frames=3",
    "length.contexts=[6,12]",
    "length.step_frames=12",
    "length.frames=[5,9]",
    "length.last=2",
    "length.window=6",
    "length.peers=[]",
    "length.rounds=1",
]
LIMITS = ["fp32 matrix product", "bf16 matrix product", "memory read"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.02)
    monkeypatch.setattr(limits, "READ_BYTES", 2**16)
    monkeypatch.setattr("audiolm.benchmarks.data.SECONDS", 0.02)
    monkeypatch.setattr("audiolm.benchmarks.trainee.SECONDS", 0.02)

    def no_compiler(*arguments: object) -> None:
        raise ValueError("no compiler")

    monkeypatch.setattr("audiolm.generation.engines.engine.load_library", no_compiler)


def test_the_model_is_measured(run_script: RunScript, workplace: Path) -> None:
    result = run_script("benchmark", *SMALL, *COMPARED, "sections=[train,generate,length]")
    assert result.code == 0, result.err
    written = json.loads((workplace / "benchmark.json").read_text())
    assert list(written["sections"]) == ["train", "generate", "length"]
    for section in written["sections"].values():
        assert [measurement["name"] for measurement in section["measurements"][:3]] == LIMITS
        assert all(measurement["name"] in result.out for measurement in section["measurements"])
        shares = [measurement["share_of_limit"] for measurement in section["measurements"]]
        assert all(0 < share < 1.2 for share in shares if share is not None)
        assert any(shares) and section["facts"]
    assert written["settings"]["compared"]["frames"] == 12
    assert written["machine"]["cpu_features"] and "environment" in written["machine"]
    assert [path.name for path in workplace.iterdir()] == ["benchmark.json"]


def test_encoding_and_data_are_measured(
    run_script: RunScript, workplace: Path, codec_folder: Path
) -> None:
    codec = ["codec=local", f"codec.path={codec_folder}", "sections=[encode,data]"]
    result = run_script("benchmark", *SMALL, *TINY, *codec, "out=results/speed.json")
    assert result.code == 0, result.err
    written = json.loads((workplace / "results" / "speed.json").read_text())
    assert list(written["sections"]) == ["encode", "data"]
    encode, data = written["sections"].values()
    for section in (encode, data):
        names = [measurement["name"] for measurement in section["measurements"]]
        assert names[:3] == LIMITS
        assert all(name in result.out for name in names)
        assert all(measurement["rate"]["median"] > 0 for measurement in section["measurements"])
    shares = [measurement["share_of_limit"] for measurement in encode["measurements"][3:]]
    assert len(shares) == 8 and all(0 < share < 1 for share in shares)
    same = [text for name, text in encode["facts"].items() if "codes the same" in name]
    assert len(same) == 2 and all(float(text.split(" %")[0]) >= 99.9 for text in same)
    assert any("this package" in measurement["name"] for measurement in data["measurements"])
    assert "times the windows" in data["facts"]["loader / training step"]
    assert written["settings"]["rounds"] == 1 and written["machine"]["threads"] >= 1
    assert result.out.splitlines()[-1] == "results   results/speed.json"
    assert not list(workplace.glob("runs*")) and not list(workplace.glob("data*"))


def test_too_few_recordings_are_said(
    run_script: RunScript, workplace: Path, codec_folder: Path, recordings: Path
) -> None:
    codec = ["codec=local", f"codec.path={codec_folder}", "encode.check_workers=1"]
    much = ["sections=[encode]", f"audio={recordings}", "encode.long_seconds=9000"]
    result = run_script("benchmark", *SMALL, *codec, *much)
    assert result.code == 2 and "less than encode.long_seconds=9000; lower that" in result.err
    assert not (workplace / "benchmark.json").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["sections=[speed]"], "sections=['speed'] must be some of train, generate, length, "),
        (["sections=[]"], "sections=[] must be some of train, generate, length, encode, data"),
        (["rounds=0"], "rounds=0 must be a whole number"),
        (["sections=[encode]", "audio=nowhere"], "no such folder: nowhere"),
        (
            ["sections=[encode]", "encode.short_seconds=0"],
            "encode.short_seconds=0 must be a number",
        ),
        (["encode.minuets=1"], "encode.minuets"),
        (["train.peers=[gpt]"], "train.peers: 'gpt' is unknown; choose some of"),
        (["train.kernel=fast"], "kernel='fast' is unknown"),
        (["compared.num_heads=7"], "num_heads=7"),
        (["sections=[generate]", "generate.frames=0"], "generate.frames=0 must be a whole number"),
        (["train.batch_size=0", "train.peers=[]"], "train.batch_size=0 must be a whole number"),
        (["train.lightning_steps=-1"], "train.lightning_steps=-1 must be a whole number"),
        (["compared.frames=0"], "compared.frames=0 must be a whole number"),
        (["compared.num_heads=0"], "compared.num_heads=0 must be a whole number"),
        (["compared.num_layers=0"], "compared.num_layers=0 must be a whole number"),
        (["compared.embed_dim=32"], "multiples of 12, such as 36, or no peers"),
        (["compared.embed_dim=32", "sections=[generate]"], "compared.embed_dim=32 gives"),
        # Before the sections that come first are timed.
        (["generate.batches=[0]"], "generate.batches=0 must be a whole number"),
        (["generate.batches=[]"], "generate.batches=[] measures nothing"),
        (["generate.top_k=0"], "generate.top_k=0 must be a whole number"),
        (["generate.large_codebooks=[4,0]"], "generate.large_codebooks=0 must be a whole"),
        (["generate.large.embed_dim=0"], "generate.large.embed_dim=0 must be a whole number"),
        (["length.window=0"], "length.window=0 must be a whole number"),
        (["sections=[generate]", "generate.engines=[gpu]"], "engine='gpu' is unknown"),
        (["sections=[length]", "length.frames=[9,5]"], "length.frames=[9, 5] must grow"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(
    run_script: RunScript, workplace: Path, overrides: list[str], message: str
) -> None:
    result = run_script("benchmark", *SMALL, *COMPARED, *overrides)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert message in line
    assert not (workplace / "benchmark.json").exists()


def test_ctrl_c_keeps_what_was_measured(
    run_script: RunScript, workplace: Path, codec_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("audiolm.benchmarks.data.data_section", interrupted)
    codec = ["codec=local", f"codec.path={codec_folder}", "sections=[encode,data]"]
    result = run_script("benchmark", *SMALL, *TINY, *codec)
    assert result.code == 130
    assert result.err.splitlines()[-1] == "stopped; encode in benchmark.json"
    assert list(json.loads(Path("benchmark.json").read_text())["sections"]) == ["encode"]
