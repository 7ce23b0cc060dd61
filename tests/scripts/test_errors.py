"""What a user gets wrong: one line that helps, no traceback, an exit code that is not 0."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audiolm.tokens import TokenStore

from .conftest import RunScript


def refused(result: object, *parts: str) -> None:
    assert result.code == 2, result
    lines = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.err
    assert "Traceback" not in result.err
    for part in parts:
        assert part in lines[0], lines[0]


@pytest.mark.parametrize(
    "overrides, parts",
    [
        (["modle=tiny"], ["modle is not a setting, did you mean model?"]),
        (["optim.lrr=1"], ["optim.lrr is not a setting, did you mean optim.lr?"]),
        (["trainer.max_step=5"], ["did you mean trainer.max_steps?"]),
        (["model=tinny"], ["did you mean tiny?", "large, medium, small, tiny"]),
        (["pattern=delayed"], ["did you mean delay?"]),
        (["optim.lr=fast"], ["optim.lr=fast must be a number"]),
        (["data.batch_size=2.5"], ["data.batch_size=2.5 must be a whole number"]),
        (["trainer.val_check_interval=0.5"], ["must be a whole number"]),
        (["optim.betas=3"], ["must be a list"]),
        (["optim.betas=[0.9]"], ["optim.betas=[0.9] must be a list of 2 numbers"]),
        (["seed=-1"], ["seed=-1 must be a whole number from 0 to 4,294,967,295"]),
        (["seed=18446744073709551616"], ["seed=18446744073709551616 must be"]),
        (["trainer.devices=many"], ["trainer.devices=many must be"]),
        (["optim=null"], ["optim=null leaves nothing to work with; choose adamw"]),
        (["~model"], ["~model leaves nothing to work with", "small"]),
        (["callbacks=null"], ["callbacks.NAME=null"]),
        (["codec.num_codebooks=2.5"], ["num_codebooks=2.5"]),
        (["model.feedforward_dim=1.5"], ["feedforward_dim=1.5"]),
        (["callbacks.samples.num_samples=-1"], ["num_samples=-1"]),
        (["data=folder", "codec=local"], ["data.path is not set"]),
        (["model.num_heads=5"], ["embed_dim=192", "num_heads=5"]),
        (["+model.depth=5"], ["unexpected keyword argument 'depth'"]),
        (["model.positions=absolute"], ["positions='absolute'", "rotary"]),
        (["trainer.max_steps=0"], ["max_steps=0"]),
        (["trainer.max_steps=null"], ["max_steps=None must be a whole number"]),
        (["trainer.accumulate_grad_batches=0"], ["accumulate_grad_batches=0"]),
        (["model.num_layers=0"], ["num_layers=0"]),
        (["data.valid_fraction=2"], ["valid_fraction=2"]),
        (["sampling.temperature=0"], ["temperature=0"]),
        (["optim.weight_decay=-1"], ["weight_decay=-1"]),
        (["callbacks.ema.decay=2"], ["decay=2"]),
        (["trainer=gpu"], ["gpu"]),
        (["data.path="], ["data.path is empty"]),
        (["ckpt_path=nowhere.ckpt"], ["nowhere.ckpt: no such file"]),
        (["ckpt_path=last"], ["hydra.run.dir=DIR"]),
        (["codec=bundled", "codec.num_codebooks=17"], ["num_codebooks=17", "16"]),
        (["codec=bundeled"], ["did you mean bundled?"]),
    ],
)
def test_overrides(
    workplace: Path,
    run_script: RunScript,
    codec_folder: Path,
    recordings: Path,
    overrides: list[str],
    parts: list[str],
) -> None:
    usable = ["data=folder", f"data.path={recordings}", "codec=local", f"codec.path={codec_folder}"]
    groups = {o.split("=")[0] for o in overrides}
    arguments = [] if "data" in groups else usable
    if "codec" in groups:
        arguments = [f"codec.path={codec_folder}"] if "codec=local" in overrides else usable[:2]
    refused(run_script("train", *arguments, *overrides), *parts)


def test_compiling_without_a_compiler(
    workplace: Path, run_script: RunScript, local: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused(run_script("train", *local, "compile=true"), "no-such-compiler", "compile=false")


def test_folders_without_audio(workplace: Path, run_script: RunScript, codec_folder: Path) -> None:
    def prepare(folder: str) -> object:
        return run_script(
            "prepare",
            "data=folder",
            f"data.path={folder}",
            "codec=local",
            f"codec.path={codec_folder}",
        )

    refused(prepare("nowhere"), "nowhere")
    (workplace / "empty").mkdir()
    refused(prepare("empty"), "no audio files", ".wav")
    (workplace / "bad").mkdir()
    (workplace / "bad" / "text.wav").write_text("not a sound")
    (workplace / "bad" / "zero.flac").touch()
    refused(prepare("bad"), "2")


def test_bad_files_among_good_ones_are_skipped_and_listed(
    workplace: Path, run_script: RunScript, codec_folder: Path
) -> None:
    folder = workplace / "mixed"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        soundfile.write(folder / f"good {i}.wav", rng.normal(0, 0.1, 1200), 800)
    (folder / "text.wav").write_text("not a sound")
    (folder / "zero.wav").touch()
    bad = rng.normal(0, 0.1, 1200).astype(np.float32)
    bad[5] = np.nan
    soundfile.write(folder / "nan.wav", bad, 800, subtype="FLOAT")
    soundfile.write(folder / "whole.flac", rng.normal(0, 0.1, 40_000), 800)
    data = (folder / "whole.flac").read_bytes()
    (folder / "whole.flac").rename(workplace / "aside")
    (folder / "cut.flac").write_bytes(data[: len(data) // 2])
    result = run_script(
        "prepare",
        "data=folder",
        f"data.path={folder}",
        "codec=local",
        f"codec.path={codec_folder}",
        "data.store=store",
    )
    assert result.code == 0, result.err
    for name in ("text.wav", "zero.wav", "nan.wav", "cut.flac"):
        assert name in result.out
    assert len(TokenStore(workplace / "store")) == 3


def test_a_store_of_another_codec(
    workplace: Path, run_script: RunScript, local: list[str], make_tiny_codec: object
) -> None:
    assert run_script("prepare", *local[1:], "data.store=store").code == 0
    other = make_tiny_codec(seed=1)
    other.save(workplace / "other")
    result = run_script(
        "train", *local[:-1], f"codec.path={workplace / 'other'}", "data.store=store"
    )
    refused(result, other.fingerprint, TokenStore("store").codec["fingerprint"])


def test_checkpoints(workplace: Path, run_script: RunScript, local: list[str]) -> None:
    refused(run_script("generate"), "no run with a checkpoint")
    refused(run_script("generate", "ckpt_path=nowhere.ckpt"), "nowhere.ckpt")
    assert run_script("train", *local, "hydra.run.dir=run").code == 0
    whole = Path("run/checkpoints/last.ckpt")
    cut = whole.with_name("cut.ckpt")
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    refused(run_script("generate", f"ckpt_path={cut}"), "cut.ckpt", "cut short")
    Path("text.ckpt").write_text("hello")
    refused(run_script("generate", "ckpt_path=text.ckpt"), "text.ckpt")
    for script, arguments in (("generate", []), ("train", local)):
        refused(run_script(script, *arguments, "ckpt_path=text.ckpt"), "text.ckpt")
    # Another model than that of the checkpoint.
    for change, *parts in (
        ("model.embed_dim=64", "model.embed_dim=32", "64"),
        ("pattern=parallel", "pattern=delay", "parallel"),
        ("context=2", "context=1.0", "has 1.99"),
        ("seed=7", "seed=0", "7"),
        ("data.batch_size=2", "data.batch_size=4", "2"),
        ("trainer.max_steps=6", "at step 6 already", "trainer.max_steps=6"),
    ):
        refused(run_script("train", *local, f"ckpt_path={whole}", change), *parts)
    others = workplace / "others"
    others.mkdir()
    for i in range(20):
        noise = np.random.default_rng(100 + i).normal(0, 0.1, 1200)
        soundfile.write(others / f"{i:02d}.wav", noise, 800)
    change = [f"data.path={others}", "trainer.max_steps=8"]
    refused(run_script("train", *local, f"ckpt_path={whole}", *change), "other clips", "data.path=")
    # Files that torch reads and that are not ours.
    foreign = torch.load(whole, weights_only=True)
    for key in ("audiolm_format", "hyper_parameters", "state_dict"):
        torch.save({k: v for k, v in foreign.items() if k != key}, "foreign.ckpt")
        refused(run_script("generate", "ckpt_path=foreign.ckpt"), "foreign.ckpt")
    for bad, part in (
        ("sampling.temperature=0", "temperature=0"),
        ("sampling.top_k=0", "top_k=0"),
        ("duration=0", "duration=0"),
        ("duration=inf", "duration=inf"),
        ("duration=1e9", "more than a WAV file"),
        ("seed=18446744073709551616", "seed=18446744073709551616 must be"),
        ("prompt_duration=2", "there is none"),
        ("out=text.ckpt", "out=text.ckpt: text.ckpt is a file"),
        ("num_samples=0", "num_samples=0"),
        ("device=tpu", "device=tpu"),
        ("sampling.topk=3", "did you mean sampling.top_k?"),
    ):
        refused(run_script("generate", f"ckpt_path={whole}", bad), part)
    for out, part in (("run", "must end in .json"), ("text.ckpt/a.json", "is a file")):
        refused(run_script("evaluate", f"ckpt_path={whole}", f"out={out}"), part)
    # A run that has lost its codec, and a run folder that is taken.
    shutil.rmtree("run/codec")
    refused(run_script("generate", f"ckpt_path={whole}"), "fingerprint")
    refused(
        run_script("train", *local, "hydra.run.dir=run"), "holds a run already", "ckpt_path=last"
    )


def test_codecs(workplace: Path, run_script: RunScript, recordings: Path) -> None:
    data = ["data=folder", f"data.path={recordings}"]
    refused(run_script("prepare", *data, "codec=encodec_24khz", "codec.bandwidth=7"), "1.5, 3, 6")
    Path("empty").mkdir()
    refused(
        run_script("prepare", *data, "codec=encodec_24khz", "codec.repository=empty"),
        "encodec_24khz-d7cc33bc.th",
    )
    refused(run_script("prepare", *data, "codec=local", "codec.path=empty"), "empty")
