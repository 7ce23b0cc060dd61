"""scripts/report.py, and the page that every training and evaluation ends with, end to end."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..report.pages import Page, check_numbers
from .conftest import ROOT, RunScript
from .test_configs import compose


def test_training_and_evaluation_end_with_a_page(
    workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    ran = run_script("train", *local, "logger=csv", "hydra.run.dir=run", "data.valid_fraction=0.2")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == "report    run/report.html"
    page_file = workplace / "run" / "report.html"
    page = Page.read(page_file.read_text(encoding="utf-8"))
    assert check_numbers(page, workplace / "run") > 40
    assert "6 of 6 steps, finished" in " ".join(page.text.split())
    assert len(page.players) >= 3  # a sample, a recording, and what the codec keeps of it
    assert "experiment=smoke" in page.text and f"ckpt_path={Path('run')}" in page.text
    (session,) = json.loads((workplace / "run" / "sessions.json").read_text())
    assert session["ended"]["step"] == 6 and session["command"][2:] == [
        *local, "logger=csv", "data.valid_fraction=0.2",
    ]  # fmt: skip
    changed = json.loads((workplace / "run" / "plan.json").read_text())["changed_settings"]
    assert changed["trainer.max_steps"]["value"] == 6 and "run_dir" not in changed

    ran = run_script("evaluate", "ckpt_path=run", "num_samples=3", "duration=1.2")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == "report    run/report.html"
    page = Page.read(page_file.read_text(encoding="utf-8"))
    check_numbers(page, workplace / "run")
    assert "runs shared with training" in page.text

    again = [*local, "logger=csv", "hydra.run.dir=run", "data.valid_fraction=0.2"]
    ran = run_script("train", *again, "ckpt_path=last", "trainer.max_steps=8")
    assert ran.code == 0, ran.err
    page = Page.read(page_file.read_text(encoding="utf-8"))
    check_numbers(page, workplace / "run")
    assert "8 of 8 steps, finished, resumed once" in " ".join(page.text.split())

    before = page_file.read_bytes()
    ran = run_script("report", "run=run", "out=again.html")
    assert ran.code == 0, ran.err
    assert (workplace / "again.html").read_bytes() == before


def test_a_page_that_fails_loses_no_run(
    workplace: Path, run_script: RunScript, local: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("audiolm.cli.report.write_run_page", full)
    ran = run_script("train", *local, "logger=csv", "hydra.run.dir=run")
    assert ran.code == 0, ran.err
    assert "report    none (OSError: no space left); try again: python" in ran.out
    assert (workplace / "run" / "checkpoints" / "last.ckpt").is_file()


def test_a_multirun_is_compared_and_shares_a_group(
    workplace: Path, run_script: RunScript, local: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, names = [], []

    def no_wandb(path: Any, project: str, name: str, *_: Any, group: str | None) -> None:
        names.append(name)
        groups.append(group)

    monkeypatch.setattr("audiolm.cli.training.make_wandb_logger", no_wandb)
    sweep = ("optim.lr=1e-3,3e-1", "data.valid_fraction=0.2")
    ran = run_script("train", "--multirun", *local, *sweep)
    assert ran.code == 0, ran.err
    assert len(groups) == 2 and len(set(groups)) == 1 and str(groups[0]).startswith("runs/folder/")
    assert len(set(names)) == 2 and "optim.lr=0.3" in names[1]
    ran = run_script("report", "compare=runs/folder")
    assert ran.code == 0, ran.err
    assert ran.out == "report    runs/folder/comparison.html, of 2 runs\n"
    page = Page.read(
        (workplace / "runs" / "folder" / "comparison.html").read_text(encoding="utf-8")
    )
    assert check_numbers(page, workplace) >= 6
    losses = [float(s.value or 0) for s in page.shown if s.source.endswith("valid~1nats_per_code")]
    assert len(losses) == 2 and losses == sorted(losses)
    assert "optim.lr" in page.text.split("Settings that differ")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run=nowhere"], "nowhere: no such folder"),
        ([], "no run with a checkpoint"),
        (["compare=nowhere"], "compare=nowhere: no such folder"),
        (["compare=[nowhere,elsewhere]"], "compare=nowhere: no such folder"),
        (["compare=empty"], "empty holds no run"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(
    workplace: Path, run_script: RunScript, arguments: list[str], message: str
) -> None:
    (workplace / "empty").mkdir()
    ran = run_script("report", *arguments)
    assert ran.code == 2 and message in ran.err and ran.err.count("\n") == 1


def test_the_sweep_file_composes() -> None:
    sweep = yaml.safe_load((ROOT / "docs" / "sweep.yaml").read_text(encoding="utf-8"))
    assert (ROOT / sweep["program"]).is_file()
    assert sweep["metric"]["name"] == "valid/nats_per_code"
    choices = [
        [f"{key}={value}" for value in values.get("values", [values.get("min"), values.get("max")])]
        for key, values in sweep["parameters"].items()
    ]
    fixed = [word for word in sweep["command"] if "=" in word]
    for overrides in itertools.product(*choices):
        cfg = compose("train", *fixed, *overrides)
        assert cfg.logger.mode != "disabled"
        (rate,) = [o.partition("=")[2] for o in overrides if o.startswith("optim.lr=")]
        assert cfg.optim.lr == float(rate)
