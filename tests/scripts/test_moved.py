"""A run, or a whole project, that lies elsewhere now resumes, generates, and evaluates."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from audiolm.model.checkpoint import read_checkpoint
from audiolm.tokens import TokenStore

from .conftest import Result, RunScript
from .test_train_codec import TINY_CODEC

MORE = "trainer.max_steps=8"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def project(
    workplace: Path,
    run_script: RunScript,
    codec_folder: Path,
    recordings: Path,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The folder a/, with recordings, codec, codes and a run, all given by relative paths."""
    if not (kept / "a").exists():
        (kept / "a").mkdir()
        shutil.copytree(recordings, kept / "a" / "recs")
        shutil.copytree(codec_folder, kept / "a" / "codec")
        shutil.copytree(kept / "a", workplace / "a")
        monkeypatch.chdir(workplace / "a")
        assert run_script("train", *COMMAND, "hydra.run.dir=run").code == 0
        assert run_script("train_codec", *CODEC_COMMAND, "hydra.run.dir=codec_run").code == 0
        monkeypatch.chdir(workplace)
        shutil.copytree(workplace / "a", kept / "b")
    else:
        # As on another disk, of another user: other times of change.
        shutil.copytree(kept / "b", workplace / "a", copy_function=shutil.copy)
    return workplace / "a"


COMMAND = [
    *("experiment=smoke", "data=folder", "data.path=recs", "data.valid_fraction=0.2"),
    *("codec=local", "codec.path=codec", "optim.lr=3e-3"),
]
CODEC_COMMAND = ["data.path=recs", *TINY_CODEC]


def works(result: Result) -> str:
    assert result.code == 0, result.err
    return result.out


def only_store() -> Path:
    (store,) = Path("data/tokens").glob("*/store.json")
    return store.parent


def test_a_whole_project_moves(
    project: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = project.rename(project.with_name("another place, of {a friend}"))
    monkeypatch.chdir(moved)
    evaluated = works(run_script("evaluate", "ckpt_path=run", "num_samples=0"))
    assert "checkpoint run/checkpoints/best.ckpt" in evaluated
    store = json.loads(Path("run/evaluation.json").read_text())["stores"]
    assert [Path(folder).resolve() for folder in store] == [only_store().resolve()]
    prepared = works(run_script("prepare", *COMMAND[1:3], *COMMAND[4:6]))
    assert "0 encoded now, 20 reused" in prepared
    # The same command as before.
    again = works(run_script("train", *COMMAND, "hydra.run.dir=run", "ckpt_path=last", MORE))
    assert "0 encoded now" in again and "clips, the run had" not in again
    assert read_checkpoint("run/checkpoints/last.ckpt")["global_step"] == 8
    works(run_script("generate", "ckpt_path=run", "num_samples=1", "duration=0.5", "out=o"))
    only_store()
    codec = works(
        run_script("train_codec", *CODEC_COMMAND, "hydra.run.dir=codec_run", "ckpt_path=last", MORE)
    )
    assert [line for line in codec.splitlines() if "changed " in line] == [
        "  changed     trainer.max_steps=8 (the run had 6)"
    ]


def test_the_recordings_move_alone(
    project: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    Path("recs").rename(project.parent / "elsewhere")
    lost = run_script("train", "ckpt_path=run", MORE)
    assert lost.code == 2 and "data=store data.path=STORE" in lost.err
    there = f"data.path={project.parent / 'elsewhere'}"
    assert "0 encoded now, 20 reused" in works(run_script("train", "ckpt_path=run", there, MORE))
    only_store()
    works(run_script("train_codec", "ckpt_path=codec_run", there, MORE))
    assert read_checkpoint("codec_run/checkpoints/last.ckpt")["global_step"] == 8


def test_a_run_and_its_codes_go_to_someone_else(
    project: Path, workplace: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without recordings and without the codec that the run was started with."""
    there = workplace / "home" / "bob"
    there.mkdir(parents=True)
    (store,) = (project / "data" / "tokens").iterdir()
    shutil.copytree(project / "run", there / "mine", copy_function=shutil.copy)
    shutil.copytree(store, there / "codes", copy_function=shutil.copy)
    shutil.rmtree(project)
    for path in (there / "codes").iterdir():
        path.chmod(stat.S_IRUSR)
    monkeypatch.chdir(there)
    codes = ["data=store", "data.path=codes"]
    again = works(run_script("train", "ckpt_path=mine", *codes, MORE))
    assert "codec is not there: the run's own copy is used" in again
    assert "clips, the run had" not in again
    # Another choice is a change; settings that only one of the two choices has are none.
    changed = [line.split(maxsplit=1)[1] for line in again.splitlines() if "changed " in line]
    assert changed[0] == "data=store (the run had folder)"
    assert "data.path=codes (the run had recs)" in changed and "nothing" not in again
    assert len(changed) < 6
    lost = run_script("evaluate", "ckpt_path=mine/checkpoints/best.ckpt", "num_samples=0")
    assert lost.code == 2 and "data=store data.path=STORE where they are now" in lost.err
    works(run_script("evaluate", "ckpt_path=mine", "num_samples=0", *codes))
    works(run_script("generate", "ckpt_path=mine", "num_samples=1", "duration=0.5", "out=o"))


def test_a_collection_that_grew_is_told(
    project: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch, recordings: Path
) -> None:
    monkeypatch.chdir(project)
    for i, file in enumerate(sorted(Path("recs").rglob("*.wav"))[:3]):
        data = bytearray(file.read_bytes())
        data[-200:] = bytes(200)
        Path(f"recs/new {i}.wav").write_bytes(data)
    again = works(run_script("train", "ckpt_path=run", MORE))
    assert "has 23 clips, the run had 20 (100% of these are there)" in again
    codec = works(run_script("train_codec", "ckpt_path=codec_run", MORE))
    assert "recs has 23 clips, the run had 20" in codec


def test_a_store_is_of_one_collection(
    project: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    files = sorted(Path("recs").rglob("*.wav"))
    for name, part in (("one", files[:12]), ("two", files[12:])):
        Path(name).mkdir()
        for file in part:
            shutil.copy(file, Path(name) / file.name)
    command = ["data=folder", *COMMAND[4:6], "data.store=store"]
    works(run_script("prepare", *command, "data.path=one"))
    before = {path: path.read_bytes() for path in Path("store").glob("[!.]*.*")}
    other = run_script("prepare", *command, "data.path=two")
    assert other.code == 2 and "store holds 12 clips of" in other.err
    assert "name another data.store" in other.err
    after = {path: path.read_bytes() for path in Path("store").glob("[!.]*.*")}
    assert after == before and len(after) > 3
    # Its own files may go, by whatever path, and a grown copy may take its place.
    files[0].unlink()
    for file in sorted(Path("one").iterdir())[:8]:
        file.unlink()
    gone = works(run_script("prepare", *command, f"data.path={Path('one').resolve()}"))
    assert "removed   8 clips of the store are not among the recordings any more" in gone
    assert len(TokenStore("store")) == 4
    shutil.copytree("two", "three")
    for file in Path("one").iterdir():
        shutil.copy(file, Path("three") / file.name)
    assert "removed" not in works(run_script("prepare", *command, "data.path=three"))
