"""Which runs a report is of, and the report that ends every training and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, ListConfig

from audiolm.report.comparison import find_runs
from audiolm.report.page import write_run_page
from audiolm.run_folder import RUNS, RunFolder


def write_report(run: RunFolder) -> None:
    """Write the run's page and name it; what goes wrong is a line, as the run itself is done."""
    try:
        path = write_run_page(run)
    except Exception as error:  # a finished run is not lost for its page
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"report    none ({reason}); try again: python scripts/report.py run={run.path}")
    else:
        print(f"report    {path}")


def named_run(cfg: DictConfig) -> RunFolder:
    """The run that the config names, or the newest.

    Raises:
        FileNotFoundError: there is none.
    """
    if cfg.run is not None:
        return RunFolder.as_typed(str(cfg.run))
    newest = RunFolder.newest()
    if newest is None:
        raise FileNotFoundError(
            f"no run with a checkpoint in {RUNS.resolve()}; run scripts/train.py first, or pass "
            f"run=RUN, also of one that has no checkpoint yet"
        )
    return newest


def compared_runs(cfg: DictConfig) -> list[RunFolder]:
    """The runs to compare: the one named by `run`, and those in the folders of `compare`.

    Raises:
        FileNotFoundError: a folder is not there, or holds no run.
        ValueError: there are fewer than two.
    """
    folders = _folders(cfg)
    found = [] if cfg.run is None else [named_run(cfg)]
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(
                f"compare={folder}: no such folder; give runs, such as "
                f"compare=[runs/demo/TIME1,runs/demo/TIME2], or a sweep's folder"
            )
        found += find_runs(folder)
    different = list({run.path.resolve(): run for run in found}.values())
    if len(different) < 2:
        raise ValueError(
            f"compare={cfg.compare}: {len(different)} run, and it takes two; name another one"
        )
    return [RunFolder.as_typed(run.path) for run in different]


def comparison_path(cfg: DictConfig, runs: Sequence[RunFolder]) -> Path:
    """Where the page of several runs goes: `out`, or comparison.html in the folder they share."""
    if cfg.out is not None:
        return Path(cfg.out)
    folders = _folders(cfg)
    if len(folders) == 1 and cfg.run is None:
        return folders[0] / "comparison.html"
    parents = [run.path.resolve().parents for run in runs]
    shared = next(path for path in parents[0] if all(path in others for others in parents))
    return RunFolder.as_typed(shared).path / "comparison.html"


def _folders(cfg: DictConfig) -> list[Path]:
    named = list(cfg.compare) if isinstance(cfg.compare, ListConfig) else [cfg.compare]
    return [Path(str(folder)) for folder in named]
