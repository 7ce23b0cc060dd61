"""An exported folder is the model: equal logits, samples and bytes; whole or not there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import audiolm
from audiolm.codec import EncodecCodec
from audiolm.export import export as module
from audiolm.export.export import export_model
from audiolm.export.samples import sample_conditions
from audiolm.export.settings import Export
from audiolm.model.checkpoint import load_checkpoint
from audiolm.run_folder import find_checkpoint

from .conftest import VOCABULARY

EXPORT = Export(num_samples=2, duration=0.3, conditions={"said": "ab"})


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_folder_is_the_model(run: Path, tmp_path: Path) -> None:
    assert export_model(find_checkpoint(run), tmp_path / "out", EXPORT) == []
    assert sorted(contents(tmp_path / "out")) == [
        *("README.md", "codec.json", "codec.safetensors", "config.json", "evaluation.json"),
        "model.safetensors",
        *(f"samples/sample_{i:03d}.{ending}" for i in range(2) for ending in ("png", "wav")),
    ]
    (run / "codec").rename(run / "elsewhere")  # the folder needs nothing of the run
    exported = audiolm.load(tmp_path / "out")
    trained = load_checkpoint(find_checkpoint(run))
    steps = torch.randint(32, (2, 4, 9), generator=torch.Generator().manual_seed(0))
    conditions = VOCABULARY.encode([{"label": "1", "said": "ab"}, {"speaker": "ann"}])
    assert torch.equal(exported.trained.model(steps, conditions), trained.model(steps, conditions))
    (run / "elsewhere").rename(run / "codec")
    samples = [
        loaded.generate(duration=0.4, seed=3, label="1", said="cab")
        for loaded in (audiolm.load(run), exported)
    ]
    assert torch.equal(samples[0].waveform, samples[1].waveform)


def test_the_folder_needs_no_network_and_no_package_of_the_hub(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network is asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    export_model(find_checkpoint(run), tmp_path / "out", EXPORT)
    (run / "codec").rename(run / "elsewhere")
    audiolm.load(str(tmp_path / "out")).generate(duration=0.2)


def test_the_same_is_the_same_bytes(run: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_model(find_checkpoint(run), tmp_path / name, EXPORT)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    # and so is the export of an export
    export_model(find_checkpoint(tmp_path / "one"), tmp_path / "three", EXPORT)
    again = contents(tmp_path / "three")
    first = contents(tmp_path / "one")
    assert {k: v for k, v in again.items() if k != "README.md"} == {
        k: v for k, v in first.items() if k != "README.md"
    }


def test_nothing_of_the_machine_is_in_it(run: Path, tmp_path: Path) -> None:
    export_model(find_checkpoint(run), tmp_path / "out", EXPORT)
    for name, data in contents(tmp_path / "out").items():
        assert b"someone" not in data and str(tmp_path).encode() not in data, name


def test_averages_are_exported_where_training_kept_them(run: Path, tmp_path: Path) -> None:
    path = run / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["ema_state_dict"] = {k: w + 1 for k, w in checkpoint["state_dict"].items()}
    torch.save(checkpoint, path)
    export_model(path, tmp_path / "out", Export(num_samples=0))
    read = load_checkpoint(find_checkpoint(tmp_path / "out")).model.state_dict()
    assert all(torch.equal(read[k], checkpoint["ema_state_dict"][f"model.{k}"]) for k in read)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["weights"]["averaged"]


def test_metrics_of_another_step_are_left_out_and_said(run: Path, tmp_path: Path) -> None:
    evaluation = run / "evaluation.json"
    evaluation.write_text(evaluation.read_text().replace('"step": 7', '"step": 6'))
    (line,) = export_model(find_checkpoint(run), tmp_path / "a", Export(num_samples=0))
    assert "is of step 6, the model of 7" in line
    evaluation.unlink()
    (line,) = export_model(find_checkpoint(run), tmp_path / "b", Export(num_samples=0))
    assert "is not there" in line
    assert not (tmp_path / "b" / "evaluation.json").exists()


def test_it_is_there_whole_or_not_at_all(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(tmp_path)
    for fails in ("write_model_folder", "save_codec", "save_samples", "Card"):
        with monkeypatch.context() as patch:

            def fail(*_: object, **__: object) -> None:
                raise OSError("the disk is gone")

            patch.setattr(module, fails, fail)
            with pytest.raises(OSError):
                export_model(find_checkpoint(run), tmp_path / "out", EXPORT)
        assert contents(tmp_path) == before


def test_a_kill_leaves_nothing_under_the_name(run: Path, tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from audiolm.export import export as e; from audiolm.export.settings import Export\n"
        "e.Card = lambda **_: os.kill(os.getpid(), 9)\n"  # all else is written by then
        "e.export_model(Path(sys.argv[1]), Path(sys.argv[2]), Export(num_samples=0))\n"
    )
    checkpoint = str(find_checkpoint(run))
    done = subprocess.run([sys.executable, "-c", code, checkpoint, str(tmp_path / "out")])
    assert done.returncode == -9
    assert not (tmp_path / "out").exists()
    (left,) = tmp_path.glob(".*.tmp")
    assert (left / "model.safetensors").is_file()
    export_model(find_checkpoint(run), tmp_path / "out", Export(num_samples=0))
    assert (tmp_path / "out" / "README.md").is_file()


def test_what_is_there_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(FileExistsError, match="out is there already; name a new folder"):
        export_model(find_checkpoint(run), tmp_path / "out", Export(num_samples=0))


def test_a_model_without_its_codec_is_a_line(
    run: Path, tmp_path: Path, make_tiny_codec: Callable[..., EncodecCodec]
) -> None:
    export_model(find_checkpoint(run), tmp_path / "out", Export(num_samples=0))
    (tmp_path / "out" / "codec.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"codec 'codec' .* is not in .*out: put its pair"):
        audiolm.load(tmp_path / "out")
    make_tiny_codec(seed=1).save(tmp_path / "out")
    with pytest.raises(ValueError, match="fingerprint"):
        audiolm.load(tmp_path / "out")
    (run / "codec" / "codec.json").unlink()
    with pytest.raises(FileNotFoundError, match="put its pair"):
        export_model(find_checkpoint(run), tmp_path / "other", Export(num_samples=0))
    assert not (tmp_path / "other").exists()


def test_a_license_that_the_base_forbids(run: Path, tmp_path: Path) -> None:
    path = run / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    origin = {"license": "cc-by-nc-4.0", "base_model": "facebook/musicgen-small"}
    checkpoint["hyper_parameters"]["origin"] = origin
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=r"license=mit: .* facebook/musicgen-small, whose license"):
        export_model(path, tmp_path / "out", Export(num_samples=0, license="mit"))
    export_model(path, tmp_path / "out", Export(num_samples=0))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: config[key] for key in origin} == origin


def test_labels_are_taken_in_turn() -> None:
    rows = sample_conditions(VOCABULARY, {"label": "1", "said": "ab", "other": "x"}, 3)
    assert [row["label"] for row in rows] == ["1", "0", "1"]
    assert [row["speaker"] for row in rows] == ["ann", "bo|b", "ann"]
    assert all(row["said"] == "ab" and "other" not in row for row in rows)
    assert sample_conditions(None, {"label": "1"}, 2) == [{}, {}]
