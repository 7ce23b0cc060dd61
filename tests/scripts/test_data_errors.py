"""What a user can get wrong about data ends in one line, before anything is decoded for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Result, RunScript


@pytest.mark.parametrize(
    ("script", "overrides", "part"),
    [
        ("train", ["data=mix", "data.mix=[a]"], "must be {STORE: WEIGHT"),
        ("train", ["data=mix", "data.mix={a: 0}"], "must be a number above 0"),
        ("train", ["data=mix", "data.mix={a: 1}"], "no token store here"),
        ("train", ["data=store", "data.path=a"], "no token store here"),
        ("prepare", ["data=store", "data.path=a"], "nothing to prepare"),
        ("prepare", ["data.valid_fraction=2"], "data.valid_fraction=2"),
        ("prepare", ["prepare.num_workers=-1"], "prepare.num_workers=-1"),
        ("prepare", ["data.store=file"], "file is a file"),
        ("prepare", ["data.store=file/below"], "file is a file"),
        ("prepare", ["part=2", "num_parts=2"], "parts count from 0, give 0 to 1"),
        ("prepare", ["shard=0"], "shard is called part now; pass part=0"),
        ("prepare", ["rules.silent.action=dropp"], "drop, report, off"),
        ("prepare", ["data=folder", "data.path=nowhere"], "nowhere"),
        ("prepare", ["data=librispeech"], "data.root is not set"),
        ("prepare", ["data=folder", "data.path=.", "data.pattern={a}{b}"], "{a}{b}"),
        ("train_codec", ["data=store", "data.path=a"], "holds codes and no recordings"),
    ],
)
def test_one_line(
    run_script: RunScript,
    workplace: Path,
    codec_folder: Path,
    script: str,
    overrides: list[str],
    part: str,
) -> None:
    (workplace / "file").write_text("")
    (workplace / "a.wav").write_text("")
    codec = [] if script == "train_codec" else ["codec=local", f"codec.path={codec_folder}"]
    few = ["data.num_melodies=20"] if not any(o.startswith("data=") for o in overrides) else []
    result: Result = run_script(script, *codec, *few, *overrides)
    assert result.code == 2 and result.err.count("\n") == 1, result.err
    assert part in result.err


def test_two_parts_give_the_store_of_one_run_which_trains_alone_and_in_a_mix(
    run_script: RunScript, workplace: Path, recordings: Path, codec_folder: Path
) -> None:
    codec = ["codec=local", f"codec.path={codec_folder}"]
    data = ["data=folder", f"data.path={recordings}", *codec]
    part = run_script("prepare", *data, "part=1", "num_parts=2", "data.store=parts")
    assert part.code == 0, part.err
    assert run_script("prepare", *data, "part=0", "num_parts=2", "data.store=parts").code == 0
    assert run_script("prepare", *data, "data.store=whole").code == 0
    same = [sorted(p.name for p in Path(s).glob("clips-*")) for s in ("parts", "whole")]
    assert same[0] == same[1]
    short = ["trainer.max_steps=2", "trainer.val_check_interval=2", "logger=csv", "context=1"]
    short += ["callbacks.samples.num_samples=0", "data.batch_size=2"]
    alone = ["data=store", "data.path=parts", *codec, *short, "hydra.run.dir=alone"]
    mixed = ["data=mix", "data.mix={parts: 3, whole: 1}", *codec, *short, "hydra.run.dir=mixed"]
    for arguments, run in ((alone, "alone"), (mixed, "mixed")):
        result = run_script("train", *arguments)
        assert result.code == 0, result.err
        result = run_script("evaluate", f"ckpt_path={run}/checkpoints/last.ckpt")
        assert result.code == 0 and "validation codes" in result.out, result.err
    again = ["ckpt_path=last", "trainer.max_steps=4", "data.mix={parts: 1, whole: 1}"]
    result = run_script("train", *mixed, *again)
    assert result.code == 2 and "data.mix" in result.err, result.err
