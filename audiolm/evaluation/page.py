"""The metrics of an evaluation as one page of plots.

Metrics are plain data, by name, as scripts/evaluate.py writes them to evaluation.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from audiolm.files import replacing

LEAST = 20
"""Codes in a bin of confidence that is plotted: the share of a few is noise."""

_COLOURS = {"generated": "tab:orange", "validation": "tab:blue", "training": "tab:grey"}


Panel = Callable[[Axes], None]


def plot_page(path: Path | str, metrics: Mapping[str, Any], title: str) -> None:
    """Write the page as a PNG file; without clips it is its first row.

    Raises:
        OSError: the file cannot be written; then none is left.
    """
    plotted = panels(metrics)
    rows = math.ceil(len(plotted) / 2)
    figure = Figure(figsize=(11, 4 * rows), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11, parse_math=False, wrap=True)
    for axes, panel in zip(figure.subplots(rows, 2).flat, plotted.values(), strict=True):
        panel(axes)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def panels(metrics: Mapping[str, Any]) -> dict[str, Panel]:
    """What plots each part of the metrics that there is, by what it shows."""
    found: dict[str, Panel] = {
        "nats per code by codebook": lambda axes: _plot_nats(axes, metrics["nats_per_code"]),
        "calibration": lambda axes: _plot_calibration(axes, metrics["calibration"]),
    }
    clips = metrics.get("clips")
    if clips is None:
        return found
    shared = metrics.get("memorisation", {})
    return found | {
        "perplexity of the codes": lambda axes: _plot_perplexity(axes, clips["perplexity"]),
        "Fréchet distance": lambda axes: _plot_distances(axes, clips["frechet"]),
        "seconds of a clip": lambda axes: _plot_seconds(axes, clips["clip_seconds"]),
        "runs shared with training": lambda axes: _plot_runs(axes, shared),
    }


def _plot_nats(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    names = [
        name
        for name in ("model", "without_conditions", "bigram", "unigram", "uniform")
        if name in rows[0]
    ]
    for index, name in enumerate(names):
        offsets = np.arange(len(rows)) + (index - (len(names) - 1) / 2) * 0.8 / len(names)
        label = name.replace("_", " ")
        axes.bar(offsets, [row[name] for row in rows], 0.8 / len(names), label=label)
    axes.set_xticks(range(len(rows)), [str(row["codebook"]) for row in rows])
    axes.set_xlabel("codebook")
    axes.set_ylabel("nats per validation code")
    axes.set_ylim(0, 1.25 * max(row[name] for row in rows for name in names))  # for the legend
    axes.legend(fontsize=8)


def _plot_calibration(axes: Axes, calibration: Mapping[str, Any]) -> None:
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
    for k, bins in enumerate(calibration["codebooks"]):
        _plot_reliability(axes, bins, {"linewidth": 0.8, "alpha": 0.6, "label": f"codebook {k}"})
    _plot_reliability(
        axes, calibration["all"], {"color": "black", "marker": "o", "markersize": 3, "label": "all"}
    )
    axes.set_xlabel("probability of the most probable code")
    axes.set_ylabel("share of these that are right")
    if len(calibration["codebooks"]) <= 8:
        axes.legend(fontsize=8)


def _plot_reliability(axes: Axes, bins: Sequence[Mapping[str, Any]], style: dict[str, Any]) -> None:
    full = [b for b in bins if b["codes"] >= LEAST]
    axes.plot([b["confidence"] for b in full], [b["right"] for b in full], **style)


def _plot_perplexity(axes: Axes, perplexity: Mapping[str, Sequence[float]]) -> None:
    for index, (kind, of_codebooks) in enumerate(perplexity.items()):
        offsets = np.arange(len(of_codebooks)) + (index - 1) * 0.27
        axes.bar(offsets, of_codebooks, 0.27, color=_COLOURS[kind], label=kind.replace("_", " "))
    axes.set_xlabel("codebook")
    axes.set_ylabel("perplexity of the codes")
    axes.legend(fontsize=8)


def _plot_distances(axes: Axes, frechet: Mapping[str, Mapping[str, Any]]) -> None:
    """In units of the floor, as the features have different ones."""
    if any(distances["training"] is None for distances in frechet.values()):
        axes.set_title("too few frames for a Fréchet distance", fontsize=9)
        return
    ratios = [(d["generated"] or 0.0) / max(d["training"], 1e-12) for d in frechet.values()]
    axes.bar(range(len(ratios)), ratios, 0.5, color=_COLOURS["generated"], label="generated")
    axes.axhline(1, color=_COLOURS["training"], linestyle="--", label="training")
    for index, d in enumerate(frechet.values()):  # each set of training clips
        sets = np.array(d["training_sets"]) / max(d["training"], 1e-12)
        axes.plot([index] * len(sets), sets, "_", color="black", markersize=14)
    axes.set_xticks(range(len(frechet)), [name.replace("_", " ") for name in frechet])
    axes.set_ylabel("Fréchet distance to validation, of training = 1")
    axes.legend(fontsize=8)


def _plot_seconds(axes: Axes, seconds: Mapping[str, Sequence[float]]) -> None:
    for kind, of_clips in seconds.items():
        _plot_shares(axes, of_clips, {"color": _COLOURS[kind], "label": kind.replace("_", " ")})
    axes.set_xlabel("seconds of a clip")
    axes.set_ylabel("share of clips up to this long")
    axes.legend(fontsize=8)


def _plot_runs(axes: Axes, memorisation: Mapping[str, Mapping[str, Any]]) -> None:
    for (name, kinds), line in zip(memorisation.items(), ("-", "--"), strict=False):
        for kind, runs in kinds.items():
            label = f"{kind.replace('_', ' ')}, {name.replace('_', ' ')}"
            style = {"color": _COLOURS[kind], "linestyle": line, "label": label}
            _plot_shares(axes, [run["seconds"] for run in runs], style)
    axes.set_xlabel("seconds of the longest run shared with training")
    axes.set_ylabel("share of clips up to this long")
    if memorisation:
        axes.legend(fontsize=8)


def _plot_shares(axes: Axes, values: Sequence[float], style: dict[str, Any]) -> None:
    ordered = np.sort(np.array([0.0, *values]))
    axes.step(ordered, np.linspace(0, 1, len(ordered)), where="post", **style)
