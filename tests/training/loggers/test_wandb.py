from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import wandb
from lightning.pytorch.utilities import rank_zero_only
from PIL import Image

from audiolm.training.loggers.metrics_csv import MetricsCSV
from audiolm.training.loggers.wandb import TolerantWandbLogger, log_audio, make_wandb_logger


@pytest.fixture(autouse=True)
def nothing_goes_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield
    wandb.teardown()


def test_a_second_training_in_a_process_is_a_run_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        logger = make_wandb_logger(tmp_path / name, project="tests", config={"name": name})
        assert isinstance(logger, TolerantWandbLogger)
        assert dict(logger.experiment.config) == {"name": name}
        logger.finalize("success")
        assert wandb.run is None


class FakeRun:
    """Takes what a run takes; fails on request."""

    url = "http://127.0.0.1:9/a/b"

    def finish(self) -> None:
        pass

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.logged: list[dict[str, Any]] = []
        self.config = SimpleNamespace(update=self.log)

    def define_metric(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log(self, metrics: dict[str, Any], **kwargs: Any) -> None:
        if self.fails:
            raise OSError("No space left on device\nand more")
        self.logged.append(metrics)


def test_offline_logs_all_below_the_run_folder_and_a_resumed_run_has_the_same_id(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "a run"
    pictures = [tmp_path / "a.png", tmp_path / "b.png"]
    for size, picture in enumerate(pictures, 4):
        Image.new("RGB", (size, 4)).save(picture)
    ids = set()
    for first in (0, 3):
        logger = make_wandb_logger(run_dir, project="tests", config={"optim": {"lr": 0.1}})
        assert isinstance(logger, TolerantWandbLogger)
        for step in range(first, first + 3):
            logger.log_metrics({"loss": 1.0}, step)
        logger.log_hyperparams({"model": {"dim": 8}})
        clips = [torch.rand(2, 80) - 0.5, torch.zeros(1, 80)]
        log_audio([logger], "samples", clips, 800, ["a", "b"], pictures, first + 3)
        assert logger.experiment.config["optim"] == {"lr": 0.1}
        assert logger.experiment.config["model"] == {"dim": 8}
        assert logger.experiment.summary["trainer/global_step"] == first + 3
        assert logger.experiment.summary["loss"] == 1.0
        ids.add(logger.version)
        logger.experiment.finish()
    assert len(ids) == 1
    runs = list((run_dir / "wandb").glob(f"offline-run-*-{ids.pop()}*"))
    assert len(runs) == 2
    for run in runs:
        media = [p.suffix for p in (run / "files" / "media").rglob("*") if p.is_file()]
        assert sorted(media) == [".png", ".png", ".wav", ".wav"]
    line = f"W&B is offline; upload later with: wandb sync '{run_dir}/wandb'/offline-run-*\n"
    out, err = capfd.readouterr()
    assert out == 2 * line
    assert err == ""


def test_online_prints_the_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(wandb, "init", lambda **kwargs: calls.append(kwargs) or FakeRun())
    monkeypatch.delenv("WANDB_MODE")
    assert make_wandb_logger(tmp_path, tags=["x"]) is not None
    assert calls[0]["mode"] == "online"
    assert calls[0]["resume"] == "allow"
    assert calls[0]["tags"] == ["x"]
    assert calls[0]["settings"].silent
    assert capsys.readouterr().out == f"W&B: {FakeRun.url}\n"


def test_a_failing_server_turns_to_offline_with_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    init = wandb.init

    def fail_online(mode: str, **kwargs: Any) -> Any:
        if mode == "online":
            raise wandb.errors.CommError("no route to host.\nmore\nlines")
        return init(mode=mode, **kwargs)

    monkeypatch.setattr(wandb, "init", fail_online)
    logger = make_wandb_logger(tmp_path, mode="online")
    assert logger is not None
    logger.log_metrics({"loss": 1.0}, 0)
    out, err = capfd.readouterr()
    assert out.startswith("W&B is offline (no route to host); upload later with: wandb sync ")
    assert out.count("\n") == 1
    assert err == ""


def test_if_nothing_works_there_is_one_line_and_no_logger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**kwargs: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(wandb, "init", fail)
    for mode in ("online", "offline"):
        assert make_wandb_logger(tmp_path, mode=mode) is None
        assert capsys.readouterr().out == "W&B is off (broken); metrics.csv has all numbers\n"


def test_without_wandb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert make_wandb_logger(tmp_path) is None
    assert capsys.readouterr().out.startswith("W&B is off (import of wandb halted")
    monkeypatch.undo()


def test_disabled_by_mode_or_environment_or_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_wandb_logger(tmp_path, mode="disabled") is None
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert make_wandb_logger(tmp_path) is None
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    assert make_wandb_logger(tmp_path) is None
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_mode(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mode='onlin' must be one of auto, online"):
        make_wandb_logger(tmp_path, mode="onlin")


def test_errors_while_logging_are_reported_once_and_stop_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = TolerantWandbLogger(experiment=FakeRun(fails=True))
    logger.log_metrics({"loss": 1.0}, 0)
    logger.log_metrics({"loss": 1.0}, 1)
    logger.log_hyperparams({"a": 1})
    log_audio([logger], "samples", [torch.zeros(1, 8)], 8, ["a"], ["no such.png"], 1)
    out = capsys.readouterr().out
    assert out == (
        "W&B failed (No space left on device); training continues, metrics.csv has all numbers\n"
    )


def test_audio_goes_to_wandb_loggers_only(tmp_path: Path) -> None:
    log_audio([MetricsCSV(tmp_path)], "samples", [torch.zeros(1, 8)], 8, ["a"], ["no.png"], 1)
    assert list(tmp_path.iterdir()) == []
