"""The page of a run, and the page of several beside each other: one file each, complete in itself.

Nothing in a page is fetched from elsewhere: figures are SVG, sounds are FLAC, both inside it. The
same files give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from audiolm.evaluation.page import panels
from audiolm.files import replacing
from audiolm.progress import waiting
from audiolm.report import charts, comparison, sections
from audiolm.report.clips import make_players
from audiolm.report.files import EVALUATION, METRICS, PLAN, RunFiles
from audiolm.report.theme import new_axes, svg
from audiolm.run_folder import RunFolder

MOST_BYTES = 5_000_000
"""Of a page."""
RESERVE = 300_000
"""Of them, for the tables and the style."""


class Figures:
    """The SVG figures of a page, numbered as they are made."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0

    def add(self, figure: Figure | None, label: str) -> Markup | None:
        """The figure as an element of the page; None where there was nothing to plot."""
        if figure is None:
            return None
        self.count += 1
        made = svg(figure, self.count, label)
        self.size += len(made)
        return made


def write_run_page(run: RunFolder, path: Path | None = None) -> Path:
    """Write the page of a run, also of one that still goes on; what is not there is said in it.

    Args:
        run: its folder.
        path: of the page; None for report.html in the folder.

    Raises:
        FileNotFoundError: there is no such folder.
        OSError: the page cannot be written; then an older one is as it was.
    """
    if not run.path.is_dir():
        raise FileNotFoundError(f"{run.path}: no such folder; give a run's, such as runs/NAME/TIME")
    with waiting("writing the report"):
        return _write(run_page(run), path or run.report)


def write_comparison(runs: Sequence[RunFolder], path: Path) -> Path:
    """Write a page of several runs beside each other, sorted by validation loss.

    Raises:
        OSError: the page cannot be written; then an older one is as it was.
    """
    with waiting("writing the report"):
        return _write(comparison_page(runs), path)


def run_page(run: RunFolder) -> str:
    """The page of a run, as HTML."""
    files, figures = RunFiles(run), Figures()
    context: dict[str, Any] = {
        "files": files,
        "loss": figures.add(charts.loss_chart(files), "loss by step, with baselines"),
        "codebooks": figures.add(charts.codebook_chart(files), "loss by step and codebook"),
        "pace": figures.add(charts.pace_chart(files), "learning rate, gradient norm and speed"),
        "evaluation": _evaluation(files, figures),
        "lengths": figures.add(_lengths(files), "lengths of the clips"),
        "METRICS": METRICS,
        "PLAN": PLAN,
    }
    budget = MOST_BYTES - RESERVE - figures.size
    clips, omitted = make_players(files, sections.wanted_clips(files), budget, figures.count + 1)
    # The dictionary keeps the order of the steps.
    context |= {
        "clips": clips,
        "omitted": omitted,
        "verdict": sections.verdict(files),
        "validations": sections.validations(files),
        "evaluation_rows": sections.evaluation_rows(files),
        "memorisation_rows": list(sections.memorisation_rows(files)),
        "split_rows": list(sections.split_rows(files)),
        "rule_rows": list(sections.rule_rows(files)),
        "codec_rows": list(sections.codec_rows(files)),
        "setting_rows": sections.setting_rows(files),
        "session_rows": list(sections.session_rows(files)),
        "commands": sections.commands(files),
    }
    return _render("run.html", context)


def comparison_page(runs: Sequence[RunFolder]) -> str:
    """The page of several runs, as HTML."""
    figures = Figures()
    many = comparison.sorted_runs(runs)
    labels = comparison.labels(many)
    chart = charts.comparison_chart(list(zip(labels, many, strict=True)))
    chart_element = figures.add(chart, "validation loss of each run by step")
    rows, omitted = comparison.player_rows(
        many, labels, MOST_BYTES - RESERVE - figures.size, figures.count + 1
    )
    context = {
        "chart": chart_element,
        "table": comparison.table(many, labels),
        "settings": comparison.differing_settings(many),
        "labels": labels,
        "players": rows,
        "omitted": omitted,
        "missing": [(files.name, files.missing) for files in many if files.missing],
    }
    return _render("comparison.html", context)


def _evaluation(files: RunFiles, figures: Figures) -> list[tuple[str, Markup | None]]:
    """The plots of an evaluation, each by what it shows."""
    if files.evaluation is None:
        return []
    found = []
    for name, panel in panels(files.evaluation).items():
        try:
            figure = _panel(panel)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            files.missing[f"{EVALUATION}, {name}"] = f"it is not as evaluate.py writes it ({error})"
            continue
        found.append((name, figures.add(figure, name)))
    return found


def _panel(panel: Callable[[Any], None]) -> Figure:
    figure, (axes,) = new_axes(height=3.2)
    panel(axes)
    return figure


def _lengths(files: RunFiles) -> Figure | None:
    lengths = files.look_up(PLAN, "data", "lengths")
    return charts.lengths_chart(lengths["edges_seconds"], lengths["clips"]) if lengths else None


def _render(template: str, context: dict[str, Any]) -> str:
    environment = Environment(
        loader=PackageLoader("audiolm.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(context)


def _write(page: str, path: Path) -> Path:
    with replacing(path) as temporary:
        # Names of files need not be valid Unicode.
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace", newline="\n")
    return path
