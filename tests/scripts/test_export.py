"""From a run to a folder, and from the folder to samples, a new run, and the hub's cache."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from audiolm.model.checkpoint import load_checkpoint, read_checkpoint
from audiolm.run_folder import find_checkpoint

from .conftest import RunScript


def test_export_generate_and_train_on(
    workplace: Path, local: list[str], run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_script("train", *local, "hydra.run.dir=run", "sampling.top_k=9").code == 0
    result = run_script("export", "ckpt_path=run", "out=shared", "num_samples=1", "duration=0.2")
    assert result.code == 0, result.err
    assert "exported  shared, of run/checkpoints/" in result.out
    assert json.loads(Path("shared/config.json").read_text())["sampling"]["top_k"] == 9
    for path in ("run", "shared"):
        sampled = [f"ckpt_path={path}", f"out={path}_out", "num_samples=1", "duration=0.2"]
        assert run_script("generate", *sampled).code == 0
    assert (
        Path("run_out/sample_000.wav").read_bytes()
        == Path("shared_out/sample_000.wav").read_bytes()
    )

    # by a name on the hub, from its cache; what is made with it does not go there
    snapshot = Path("hub/models--ann--voice/snapshots/abc")
    shutil.copytree("shared", snapshot)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(workplace / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = sorted(snapshot.rglob("*"))
    result = run_script("generate", "ckpt_path=hf://ann/voice", "num_samples=1", "duration=0.2")
    assert result.code == 0, result.err
    assert sorted(snapshot.rglob("*")) == before
    (made,) = Path("runs/hub/ann--voice/generated").glob("*/sample_000.wav")
    assert made.read_bytes() == Path("run_out/sample_000.wav").read_bytes()

    # a new run begins with it: with its codec and size, its own data and steps
    own = [word for word in local if not word.startswith("codec")]
    new = [*own, "hydra.run.dir=new", "trainer.max_steps=2", "optim.lr=1e-9"]
    result = run_script("train", *new, "init_from=hf://ann/voice")
    assert result.code == 0, result.err
    assert "  initial     hf://ann/voice, step " in result.out
    settings = read_checkpoint("new/checkpoints/last.ckpt")["hyper_parameters"]
    assert settings["origin"] == {"license": None, "base_model": "ann/voice"}
    old, now = (load_checkpoint(find_checkpoint(path)) for path in ("shared", "new"))
    assert old.codec == {**now.codec, "name": old.codec["name"]}
    for name, weight in now.model.state_dict().items():
        assert weight.sub(old.model.state_dict()[name]).abs().max() < 1e-6
    # and is resumed without it
    shutil.rmtree("hub")
    result = run_script("train", "ckpt_path=new", "trainer.max_steps=3")
    assert result.code == 0, result.err
    assert read_checkpoint("new/checkpoints/last.ckpt")["global_step"] == 3


@pytest.mark.parametrize(
    "script, arguments, message",
    [
        ("train", ["ckpt_path=shared"], "is an exported model, which holds no run to resume"),
        ("train", ["ckpt_path=hf://a/b"], "pass init_from=hf://a/b"),
        ("train", ["init_from=hf://a/b"], "hf://a/b is not in .*HF_HUB_OFFLINE is set"),
        ("train", ["init_from=nowhere"], "nowhere: no such checkpoint"),
        ("export", ["ckpt_path=nowhere"], "nowhere: no such checkpoint"),
        ("export", ["ckpt_path=shared"], "shared is exported already; pass out=DIR"),
        ("export", ["push=voice"], "voice is not a name on the hub"),
        ("generate", ["ckpt_path=shared"], r"shared/model\.safetensors: no such file"),
        ("generate", ["ckpt_path=hf://a/b"], "hf://a/b is not in .* or download its files"),
    ],
)
def test_wrong_input_is_a_line(
    workplace: Path,
    run_script: RunScript,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(workplace / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Path("shared").mkdir()
    Path("shared/config.json").write_text(
        json.dumps(
            {
                **{"audiolm_format": 1, "model": {}, "pattern": "delay", "context_frames": 3},
                **{"codec": {}, "conditioning": None, "step": 1, "license": None},
                **{"base_model": None, "sampling": None, "weights": {}, "versions": {}},
            }
        )
    )
    result = run_script(script, *arguments)
    assert result.code == 2
    line = result.err.strip().splitlines()[-1]
    assert line.startswith("error: ") and re.search(message, line), line


def test_the_codec_and_the_size_are_those_of_the_weights(
    workplace: Path, local: list[str], run_script: RunScript
) -> None:
    assert run_script("train", *local, "hydra.run.dir=run", "trainer.max_steps=1").code == 0
    begin = [*local, "init_from=run", "trainer.max_steps=1"]
    result = run_script("train", *begin, "model.num_layers=7")
    assert result.code == 2 and "model.num_layers=7: init_from=run has num_layers=" in result.err
    result = run_script("train", *begin, "codec.num_codebooks=2")
    assert result.code == 2 and "this run has 2; omit codec" in result.err
    result = run_script("train", *(word for word in begin if "codec" not in word), "codec=bundled")
    assert result.code == 2 and "whose codes mean other sounds; omit codec" in result.err
    # what does not touch the weights may be chosen
    more = ["model.dropout=0.3", "pattern=flatten", "context=0.5", "hydra.run.dir=new"]
    result = run_script("train", *begin, *more)
    assert result.code == 0, result.err
    settings = read_checkpoint("new/checkpoints/last.ckpt")["hyper_parameters"]
    assert settings["pattern"] == "flatten" and settings["model"]["dropout"] == 0.3
