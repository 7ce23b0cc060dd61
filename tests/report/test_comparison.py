"""Runs beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from audiolm.report.comparison import find_runs, labels, sorted_runs
from audiolm.report.page import comparison_page
from audiolm.run_folder import RunFolder

from .pages import Page, check_numbers
from .runs import make_run


@pytest.fixture(scope="module")
def multirun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of two learning rates; the second is the best, the third logged nothing."""
    folder = tmp_path_factory.mktemp("multirun")
    make_run(folder / "0", loss=1.75)
    make_run(folder / "1", loss=1.25, seed=1, optim={"lr": 0.002})
    make_run(folder / "2", loss=1.5, seed=2).metrics.unlink()
    return folder


def test_the_table_is_sorted_by_validation_loss(multirun: Path) -> None:
    runs = find_runs(multirun)
    assert [run.path.name for run in runs] == ["0", "1", "2"]
    many = sorted_runs(runs)
    assert [files.run.path.name for files in many] == ["1", "0", "2"]
    assert labels(many) == ["1", "0", "2"]
    html = comparison_page(runs)
    table = html.split("<tbody>")[1].split("</tbody>")[0]
    assert table.index("1.250") < table.index("1.750") < table.index("none")


def test_every_number_is_that_of_its_file(multirun: Path) -> None:
    page = Page.read(comparison_page(find_runs(multirun)))
    assert check_numbers(page, Path("/")) >= 10
    assert len(page.players) == 6  # the last two of each, those of a seed in a row
    assert page.text.index("sample 0") < page.text.index("sample 1")


def test_only_settings_that_differ_are_shown(multirun: Path) -> None:
    text = Page.read(comparison_page(find_runs(multirun))).text
    settings = text.split("Settings that differ")[1].split("Samples of the same seed")[0]
    assert "optim.lr" in settings and "max_steps" not in settings and "seed" not in settings


def test_what_is_missing_is_said_of_each_run(multirun: Path) -> None:
    text = Page.read(comparison_page(find_runs(multirun))).text
    assert "metrics.csv" in text.split("What is missing, and why")[1]


def test_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run"):
        find_runs(tmp_path)
    assert labels(sorted_runs([RunFolder(tmp_path / "a" / "x"), RunFolder(tmp_path / "b" / "x")]))
