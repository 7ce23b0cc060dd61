from __future__ import annotations

import csv
import shutil
import zipfile
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch import Callback

from audiolm.codec import EncodecCodec
from audiolm.model.checkpoint import read_checkpoint
from audiolm.tokens import TokenStore
from audiolm.training.callbacks.checkpoints import (
    AtomicCheckpointIO,
    BestCheckpoint,
    LastCheckpoint,
)
from audiolm.training.loggers.metrics_csv import MetricsCSV

from ..conftest import OPTIM, make_data, make_module, make_trainer


def checkpoint(value: float) -> dict[str, Any]:
    return {"state_dict": {"weight": torch.full((1000,), value)}, "global_step": 3}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(checkpoint(1.0), path)
    return path


def test_what_is_saved_is_read_back_and_nothing_else_is_left(saved: Path) -> None:
    loaded = AtomicCheckpointIO().load_checkpoint(saved)
    assert loaded["global_step"] == 3
    torch.testing.assert_close(loaded["state_dict"]["weight"], torch.ones(1000))
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("moment", ["torch.save", "os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_save_that_ends_half_way_keeps_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: Any
) -> None:
    def stop(*args: Any) -> None:
        raise error

    monkeypatch.setattr(moment, stop)
    with pytest.raises((KeyboardInterrupt, OSError)):
        AtomicCheckpointIO().save_checkpoint(checkpoint(2.0), saved)
    assert read_checkpoint(saved)["state_dict"]["weight"][0] == 1.0
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_full_disk_is_an_os_error_that_names_the_file(saved: Path, size: int) -> None:
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old_limit[1]))
    try:
        with pytest.raises(
            OSError, match=r"last.ckpt: the checkpoint could not be written .*ckpt_path=last"
        ):
            AtomicCheckpointIO().save_checkpoint({"state_dict": torch.zeros(size)}, saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert read_checkpoint(saved)["state_dict"]["weight"][0] == 1.0


def test_what_an_earlier_kill_left_is_removed(saved: Path) -> None:
    (saved.parent / ".step=5.ckpt.partial").write_bytes(b"PK half a file")
    AtomicCheckpointIO().save_checkpoint(checkpoint(2.0), saved)
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        read_checkpoint(tmp_path / "none.ckpt")


class Payload:
    """An object that would write a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("empty", r"cut short \(0 bytes\)"),
        ("half", "cut short"),
        ("text", "is not a checkpoint"),
        ("flipped", "is damaged"),
        ("zip", "is not a training checkpoint"),
        ("object", "could run code"),
        ("tensor", "no 'state_dict'"),
        ("weights", "no 'state_dict'"),
    ],
)
def test_a_bad_file_is_one_line_with_path_and_remedy(
    saved: Path, content: str, message: str
) -> None:
    whole = saved.read_bytes()
    ran = saved.with_name("ran")
    if content == "empty":
        saved.write_bytes(b"")
    elif content == "half":
        saved.write_bytes(whole[: len(whole) // 2])
    elif content == "text":
        saved.write_text("not a checkpoint\n")
    elif content == "flipped":
        middle = len(whole) // 2
        saved.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    elif content == "zip":
        with zipfile.ZipFile(saved, "w") as archive:
            archive.writestr("readme.txt", "not a checkpoint")
    elif content == "object":
        torch.save({"state_dict": {}, "hyper_parameters": Payload(ran)}, saved)
    else:
        torch.save(torch.zeros(3) if content == "tensor" else {"weight": torch.zeros(3)}, saved)
    with pytest.raises(ValueError, match=message) as caught:
        AtomicCheckpointIO().load_checkpoint(saved, weights_only=False)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not ran.exists()


def train(codec: EncodecCodec, store: TokenStore, run: Path, steps: int, **more: Any) -> None:
    """Train in `run`, from its last checkpoint on where there is one."""
    last = run / "last.ckpt"
    monitor = more.pop("monitor", "valid/nats_per_code")
    checkpoints = [BestCheckpoint(run, monitor), LastCheckpoint(run, more.pop("every", 100))]
    trainer = make_trainer(
        run,
        max_steps=steps,
        val_check_interval=more.pop("val_check_interval", 2),
        log_every_n_steps=1,
        logger=MetricsCSV(run) if more.pop("logger", False) else False,
        callbacks=[*more.pop("callbacks", ()), *checkpoints],
    )
    module = make_module(codec, optim={**OPTIM, **more})
    trainer.fit(module, make_data(store), ckpt_path=last if last.exists() else None)


@pytest.mark.parametrize("place", ["in place", "moved", "copied", "by another path"])
def test_the_best_stays_the_best_wherever_the_run_lies(
    tiny_codec: EncodecCodec,
    store: TokenStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    run = tmp_path / "run"
    train(tiny_codec, store, run, 6)
    best = read_checkpoint(run / "best.ckpt")
    if place == "moved":
        run = run.rename(tmp_path / "other")
    elif place == "copied":
        run = Path(shutil.copytree(run, tmp_path / "a" / "b"))
    elif place == "by another path":
        monkeypatch.chdir(tmp_path)
        run = Path("run")
    train(tiny_codec, store, run, 10, lr=30.0)  # which is ruinous
    assert read_checkpoint(run / "last.ckpt")["global_step"] == 10
    after = read_checkpoint(run / "best.ckpt")
    assert after["global_step"] == best["global_step"]
    for name, weight in best["state_dict"].items():
        assert torch.equal(weight, after["state_dict"][name])
    assert {path.name for path in run.iterdir()} == {"last.ckpt", "best.ckpt"}


@pytest.mark.parametrize("place", ["moved", "by a relative path", "by a link"])
def test_a_better_one_takes_its_place_after_a_move(
    tiny_codec: EncodecCodec,
    store: TokenStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    train(tiny_codec, store, tmp_path / "run", 4)
    run = (tmp_path / "run").rename(tmp_path / "other")
    if place == "by a relative path":
        monkeypatch.chdir(tmp_path)
        run = Path("other")
    elif place == "by a link":
        run = tmp_path / "link"
        run.symlink_to("other")
    train(tiny_codec, store, run, 40, lr=1e-2)
    assert read_checkpoint(run / "best.ckpt")["global_step"] > 4
    assert {path.name for path in run.iterdir()} == {"last.ckpt", "best.ckpt"}


def test_a_best_one_by_another_loss_is_not_overwritten(
    tiny_codec: EncodecCodec, store: TokenStore, tmp_path: Path
) -> None:
    train(tiny_codec, store, tmp_path / "run", 4)
    best = (tmp_path / "run" / "best.ckpt").read_bytes()
    with pytest.raises(ValueError, match=r"best\.ckpt is not the best by valid/nats_per_code_k0"):
        train(tiny_codec, store, tmp_path / "run", 8, monitor="valid/nats_per_code_k0")
    assert (tmp_path / "run" / "best.ckpt").read_bytes() == best


class Killed(Exception):
    pass


class Kill(Callback):
    """Ends the training at a hook, the first time that step 4 is done there."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._stop)

    def _stop(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 4:
            raise Killed


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if "per_s" not in k} for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    "hook", ["on_validation_start", "on_validation_batch_end", "on_validation_end", "after"]
)
def test_a_kill_in_a_validation_takes_nothing_of_it_away(
    tiny_codec: EncodecCodec, store: TokenStore, tmp_path: Path, hook: str
) -> None:
    """Where a step is saved and validated, as each is here, the next start does not validate it."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(tiny_codec, store, whole, 8, every=1, logger=True)
    kill = Kill("on_train_batch_start" if hook == "after" else hook)
    with pytest.raises(Killed):
        train(tiny_codec, store, run, 8, every=1, logger=True, callbacks=[kill])
    assert read_checkpoint(run / "last.ckpt")["global_step"] == (4 if hook == "after" else 3)
    train(tiny_codec, store, run, 8, every=1, logger=True)
    assert rows(run) == rows(whole)
    for name in ("last.ckpt", "best.ckpt"):
        one, other = read_checkpoint(whole / name), read_checkpoint(run / name)
        assert one["global_step"] == other["global_step"], name
        for key, weight in one["state_dict"].items():
            assert torch.equal(weight, other["state_dict"][key]), (name, key)


def test_a_run_that_validates_at_other_steps_from_now_on_counts_on(
    tiny_codec: EncodecCodec, store: TokenStore, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(tiny_codec, store, run, 4, every=1, logger=True)  # saved after a validation
    train(tiny_codec, store, run, 9, every=1, logger=True, val_check_interval=3)
    steps = [int(row["step"]) for row in rows(run) if row["train/nats_per_code"]]
    assert steps == list(range(9))
    validated = [int(row["step"]) for row in rows(run) if row["valid/nats_per_code"]]
    assert validated == [1, 3, 5, 8]
