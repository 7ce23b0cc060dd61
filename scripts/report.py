"""One page about a run, with its curves and sounds: python scripts/report.py [run=RUN]

compare=[RUN1,RUN2,...], or compare=runs/NAME/TIME, lays runs beside each other.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from pathlib import Path

from omegaconf import DictConfig

from audiolm.cli.app import start
from audiolm.cli.report import compared_runs, comparison_path, named_run
from audiolm.report.page import write_comparison, write_run_page


def main(cfg: DictConfig) -> None:
    if cfg.compare is None:
        out = None if cfg.out is None else Path(cfg.out)
        print(f"report    {write_run_page(named_run(cfg), out)}")
        return
    runs = compared_runs(cfg)
    print(f"report    {write_comparison(runs, comparison_path(cfg, runs))}, of {len(runs)} runs")


if __name__ == "__main__":
    start("report", main)
