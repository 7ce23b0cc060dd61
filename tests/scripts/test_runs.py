"""A run's folder and its record: who gets which, what a refused start leaves, what resumes."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from audiolm.model.checkpoint import read_checkpoint
from audiolm.run_folder import RunFolder, claim_folder

from .conftest import RunScript
from .test_errors import refused

OWN = ["optim.lr=3e-3", "optim.weight_decay=0.2", "callbacks.ema.decay=0.9"]
"""Settings of the run below that are not the defaults."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def run(workplace: Path, run_script: RunScript, local: list[str], kept: Path) -> Path:
    """A run of six steps in the current folder, with its codes: trained once, then copied."""
    if not (kept / "run").exists():
        trained = run_script("train", *local, *OWN, "hydra.run.dir=run", "data.store=codes")
        assert trained.code == 0, trained.err
        for name in ("run", "codes"):
            shutil.copytree(name, kept / name)
    else:
        for name in ("run", "codes"):
            shutil.copytree(kept / name, workplace / name)
    return Path("run")


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_a_start_that_is_refused_changes_nothing(
    workplace: Path, run: Path, run_script: RunScript, local: list[str]
) -> None:
    before = content(workplace)
    here = ["ckpt_path=last", f"hydra.run.dir={run}", "trainer.max_steps=8"]
    for wrong in ("model.embed_dim=64", "seed=7", "optim.lr=-1", "optim.lrr=1", "trainer=gpu"):
        assert run_script("train", *local, *here, wrong).code == 2
        assert content(workplace) == before, wrong
    # Without anything to resume, in a folder that holds a run, and of a new run.
    for arguments in (
        ["hydra.run.dir=new/a/b", "model.num_heads=5"],
        ["ckpt_path=last", "name=nothing"],
        [f"hydra.run.dir={run}"],
        ["data.path=nowhere"],
        ["name=exp/one", "optim.lr=-1"],
    ):
        assert run_script("train", *local, *arguments).code == 2
        assert content(workplace) == before, arguments
        assert {path.name for path in workplace.iterdir()} <= {"run", "codes", "data"}
    assert not (workplace / "data" / "tokens").exists()


def test_a_folder_resumes_with_its_own_settings(run: Path, run_script: RunScript) -> None:
    again = run_script("train", f"ckpt_path={run}", "trainer.max_steps=8")
    assert again.code == 0, again.err
    assert f"settings  those of {run}: experiment=smoke data=folder" in again.out
    changed = [line.split(maxsplit=1)[1] for line in again.out.splitlines() if "changed " in line]
    assert changed == ["trainer.max_steps=8 (the run had 6)"]
    checkpoint = read_checkpoint(run / "checkpoints" / "last.ckpt")
    assert checkpoint["global_step"] == 8 and "ema_state_dict" in checkpoint
    assert {"lr": 3e-3, "weight_decay": 0.2}.items() <= checkpoint["hyper_parameters"][
        "optim"
    ].items()
    # The record is of the last start; that of before stays.
    config = yaml.safe_load((run / ".hydra" / "config.yaml").read_text())
    before = yaml.safe_load((run / ".hydra" / "config_until_step_00000006.yaml").read_text())
    assert (config["trainer"]["max_steps"], before["trainer"]["max_steps"]) == (8, 6)
    overrides = yaml.safe_load((run / ".hydra" / "overrides.yaml").read_text())
    assert {*OWN[:2], "trainer.max_steps=8"} < set(overrides)


def test_what_differs_from_the_run_is_said(
    run: Path, run_script: RunScript, local: list[str]
) -> None:
    here = ["ckpt_path=last", f"hydra.run.dir={run}", "trainer.max_steps=7"]
    again = run_script("train", *local, "data.store=codes", *here, "optim.lr=1e-4")
    assert again.code == 0, again.err
    changed = [line.split(maxsplit=1)[1] for line in again.out.splitlines() if "changed " in line]
    assert changed == [
        "optim.lr=0.0001 (the run had 0.003)",
        "trainer.max_steps=7 (the run had 6)",
    ]
    # What the command left out is the run's.
    optim = read_checkpoint(run / "checkpoints/last.ckpt")["hyper_parameters"]["optim"]
    assert optim["weight_decay"] == 0.2


def test_a_folder_that_is_no_run_of_this_script(
    run: Path, run_script: RunScript, workplace: Path
) -> None:
    Path("empty").mkdir()
    refused(run_script("train", "ckpt_path=empty"), "empty holds no run", "runs/NAME/TIME")
    refused(run_script("train_codec", f"ckpt_path={run}"), "a run of train.py")
    (run / ".hydra" / "overrides.yaml").write_text("{a: [")
    refused(run_script("train", f"ckpt_path={run}"), "overrides.yaml", "move it away")


def test_folders_of_one_moment_have_names_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        wanted = [tmp_path / "runs" / "x" / "2026-12-01_10-00-00"] * 40
        claimed = list(threads.map(claim_folder, wanted))
    assert len(set(claimed)) == 40 and all(folder.is_dir() for folder in claimed)
    assert {claimed[0].parent} == {folder.parent for folder in claimed}


def test_two_starts_in_one_second(
    workplace: Path, run: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("audiolm.cli.app", "audiolm.run_folder"):
        monkeypatch.setattr(f"{module}.time_stamp", lambda: "2026-12-01_10-00-00")
    start = [f"ckpt_path={run}/checkpoints/last.ckpt", "trainer.max_steps=7", "name=two/starts"]
    for lr in ("1e-4", "2e-4"):
        trained = run_script("train", *start, f"optim.lr={lr}")
        assert trained.code == 0, trained.err
    runs = [Path("runs/two/starts") / f"2026-12-01_10-00-00{more}" for more in ("", "-2")]
    configs = [yaml.safe_load((folder / ".hydra/config.yaml").read_text()) for folder in runs]
    assert [config["optim"]["lr"] for config in configs] == [1e-4, 2e-4]
    # Of all runs the newest, which is said.
    for _ in range(2):
        made = run_script("generate", "num_samples=2", "duration=0.3")
        assert made.code == 0, made.err
        assert f"checkpoint {runs[1]}/checkpoints/" in made.out
    assert len(list(runs[1].glob("generated/*/sample_*.wav"))) == 4


@pytest.mark.parametrize("newest", ["runs/a/t1", "runs/exp/one/t", "runs/a/2026-12-01/3", "runs/l"])
def test_the_newest_of_all_runs_is_found(workplace: Path, newest: str) -> None:
    for i, name in enumerate(("runs/a/t0", "runs/exp/two/t", "runs/a/2026-12-01/2", newest)):
        folder = Path(name)
        if name == "runs/l":
            folder.parent.mkdir(exist_ok=True)
            folder.symlink_to(workplace / "elsewhere", target_is_directory=True)
            folder = workplace / "elsewhere"
        last = RunFolder(folder).last_checkpoint
        last.parent.mkdir(parents=True)
        last.touch()
        os.utime(last, (i, i))
    found = RunFolder.newest()
    assert found is not None and found.path == Path(newest)
    for name, wanted in (("exp/two", "runs/exp/two/t"), ("exp", None), ("b", None)):
        named = RunFolder.newest(name=name)
        assert (named and str(named.path)) == wanted


def test_a_sweep_is_a_run_each(workplace: Path, run: Path, run_script: RunScript) -> None:
    start = [f"ckpt_path={run}/checkpoints/last.ckpt", "trainer.max_steps=7", "name=sweep"]
    own = yaml.safe_load((run / ".hydra/overrides.yaml").read_text())
    swept = run_script("train", "--multirun", *own, *start, "data.num_workers=0,1")
    assert swept.code == 0, swept.err
    jobs = sorted(Path("runs/sweep").glob("*/*/checkpoints/last.ckpt"))
    assert [path.parents[1].name for path in jobs] == ["0", "1"]
    found = RunFolder.newest(name="sweep")
    assert found is not None and found.last_checkpoint == jobs[1]
