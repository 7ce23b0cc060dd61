from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from lightning.pytorch.utilities import rank_zero_only

from audiolm.training.loggers.metrics_csv import MetricsCSV


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def steps(folder: Path) -> list[int]:
    return [int(row["step"]) for row in rows(folder)]


def test_each_event_is_a_row_on_the_disk_at_once(tmp_path: Path) -> None:
    logger = MetricsCSV(tmp_path / "run")
    for step in range(3):
        logger.log_metrics({"loss": torch.tensor(0.1), "epoch": 0}, step)
        assert steps(tmp_path / "run") == list(range(step + 1))
    assert rows(tmp_path / "run")[0] == {"step": "0", "loss": "0.100000001", "epoch": "0"}


def test_a_new_metric_is_a_new_column(tmp_path: Path) -> None:
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"loss": 1.5}, 0)
    logger.log_metrics({"valid, loss": float("nan")}, 0)
    logger.log_metrics({"loss": 1.25}, 1)
    assert rows(tmp_path) == [
        {"step": "0", "loss": "1.5", "valid, loss": ""},
        {"step": "0", "loss": "", "valid, loss": "nan"},
        {"step": "1", "loss": "1.25", "valid, loss": ""},
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.csv"]


def test_a_resumed_run_keeps_the_rows_before_its_step_and_drops_the_rest(tmp_path: Path) -> None:
    killed = MetricsCSV(tmp_path)
    for step in range(10):
        killed.log_metrics({"loss": 1.0}, step)
    resumed = MetricsCSV(tmp_path)
    resumed.start(6)
    assert steps(tmp_path) == list(range(6))
    for step in range(6, 12):
        resumed.log_metrics({"loss": 2.0, "new": 1}, step)
    assert steps(tmp_path) == list(range(12))
    assert [row["loss"] for row in rows(tmp_path)] == ["1"] * 6 + ["2"] * 6


def test_without_a_start_the_first_row_is_the_start(tmp_path: Path) -> None:
    for first in (0, 4, 2):
        logger = MetricsCSV(tmp_path)
        for step in range(first, first + 5):
            logger.log_metrics({"loss": 1.0}, step)
    assert steps(tmp_path) == list(range(7))


def test_a_row_cut_by_a_kill_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1.5\n1,1.4\n12")
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"loss": 1.25}, 2)
    assert steps(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("text", ["epoch,loss\n1,2\n", "step,loss\nx,2\n", "step;loss\n1;2\n"])
def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(ValueError, match=r"metrics.csv is not as train.py writes it.*move it"):
        MetricsCSV(tmp_path).log_metrics({"loss": 1.0}, 0)
    assert (tmp_path / "metrics.csv").read_text() == text


def test_only_the_first_rank_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = MetricsCSV(tmp_path)
    logger.start(0)
    logger.log_metrics({"loss": 1.0}, 0)
    assert list(tmp_path.iterdir()) == []
