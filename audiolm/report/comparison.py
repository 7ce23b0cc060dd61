"""Several runs beside each other: what differs between them, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from audiolm.report.clips import Player, Wanted, make_players
from audiolm.report.files import (
    CONFIG,
    METRICS,
    PLAN,
    SCORES,
    SESSIONS,
    RunFiles,
    as_text,
    flat_config,
)
from audiolm.report.sections import conditions
from audiolm.run_folder import RunFolder

NOT_SETTINGS = ("run_dir", "ckpt_path", "hydra")
"""Keys of a config that differ in every run and say nothing."""


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs in a folder, at any depth: each has a metrics.csv, a config or a checkpoint.

    Raises:
        FileNotFoundError: there is none.
    """
    marks = ("metrics.csv", "plan.json", ".hydra/config.yaml", "checkpoints/last.ckpt")
    found = {path.parents[mark.count("/")] for mark in marks for path in sorted(folder.rglob(mark))}
    if not found:
        raise FileNotFoundError(f"{folder} holds no run; give the folder of a run or of a sweep")
    return [RunFolder(path) for path in sorted(found)]


def sorted_runs(runs: Sequence[RunFolder]) -> list[RunFiles]:
    """The runs' files by their best validation loss, those without one last.

    The names of files in the page begin with the folder of their run.
    """
    many = [RunFiles(run, prefix=f"{run.path}/") for run in runs]

    def best(files: RunFiles) -> tuple[float, str]:
        row = files.best_row()
        loss = math.inf if row is None else files.rows[row][f"valid/{files.loss}"]
        return loss, files.name

    return sorted(many, key=best)


def labels(many: Sequence[RunFiles]) -> list[str]:
    """A short name for each run: what its folder has that the others' have not."""
    parts = [Path(files.name).parts for files in many]
    shared = 0
    while len(many) > 1 and all(len(p) > shared + 1 for p in parts):
        if len({p[shared] for p in parts}) > 1:
            break
        shared += 1
    return ["/".join(p[shared:]) if len(many) > 1 else p[-1] for p in parts]


def table(many: Sequence[RunFiles], names: Sequence[str]) -> list[list[Any]]:
    """A row a run: best validation loss, step, size, time, and its scores where it has them."""
    rows = []
    for name, files in zip(names, many, strict=True):
        best = files.best_row()
        ended = [i for i, session in enumerate(files.sessions) if session.get("ended")]
        seconds = Markup(" + ").join(
            files.number(SESSIONS, i, "ended", "seconds", style=",.1f", scale=60) for i in ended
        )
        rows.append(
            [
                name,
                "none" if best is None else files.number(METRICS, best, f"valid/{files.loss}"),
                "none"
                if best is None
                else files.number(METRICS, best, "valid/bits_per_second", style=",.0f"),
                "none" if best is None else files.number(METRICS, best, "step"),
                files.number(PLAN, "parameters"),
                seconds or "not recorded",
                files.number(SCORES, "samples", "legal_transitions", style=".2f")
                if files.scores
                else "none",
            ]
        )
    return rows


def differing_settings(many: Sequence[RunFiles]) -> list[list[Any]]:
    """A row for each setting that is not the same in all runs: its key, and each run's value."""
    flat = [flat_config(files.config) for files in many]
    rows = []
    for place in sorted({place for config in flat for place in config}):
        if place[0] in NOT_SETTINGS:
            continue
        values = {as_text(config[place]) if place in config else None for config in flat}
        if len(values) > 1:
            cells = [
                files.text(CONFIG, *place) if place in config else "not set"
                for files, config in zip(many, flat, strict=True)
            ]
            rows.append([".".join(place), *cells])
    return rows


def player_rows(
    many: Sequence[RunFiles], names: Sequence[str], budget: int, first_figure: int
) -> tuple[list[tuple[str, list[Player]]], list[str]]:
    """The last samples of each run: those of the same number in a row; and what has no room."""
    rows: dict[int, list[Player]] = {}
    omitted = []
    for index, (name, files) in enumerate(zip(names, many, strict=True)):
        samples = files.samples()
        last = [sample for sample in samples if sample.step == samples[-1].step]
        wanted = [
            Wanted(
                str(s.number),
                f"{name}, step {s.step:,}",
                s.name,
                s.number,
                conditions(files, PLAN, s.number),
            )
            for s in last
        ]
        groups, left = make_players(files, wanted, budget // len(many), first_figure)
        first_figure += len(wanted)
        omitted += [f"{names[index]}/{file}" for file in left]
        for number, players in groups.items():
            rows.setdefault(int(number), []).extend(players)
    return [(f"sample {number}", rows[number]) for number in sorted(rows)], omitted
