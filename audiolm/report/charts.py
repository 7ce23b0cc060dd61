"""The curves of runs, with their baselines plotted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from audiolm.report.files import RunFiles
from audiolm.report.theme import CYCLE, MARKERS, STYLES, new_axes

MOST_POINTS = 400
"""Of a curve: more cannot be distinguished, and make the page heavy."""

BASELINES = {"uniform": (0, (1, 1)), "unigram": (0, (5, 2)), "bigram": (0, (4, 1, 1, 1))}
"""Each with its dashes."""


def thin(steps: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most `MOST_POINTS` of the points, evenly chosen, the first and the last among them."""
    if len(steps) <= MOST_POINTS:
        return list(steps), list(values)
    chosen = np.unique(np.linspace(0, len(steps) - 1, MOST_POINTS).round().astype(int))
    return [steps[i] for i in chosen], [values[i] for i in chosen]


def loss_chart(files: RunFiles) -> Figure | None:
    """Training and validation loss by step."""
    figure, (axes,) = new_axes()
    drawn = False
    for stage, style, colour in (("train", "-", 7), ("valid", "-", 0)):
        steps, values = thin(*files.curve(f"{stage}/{files.loss}"))
        if steps:
            name = {"train": "training", "valid": "validation"}[stage]
            marked: Any = (
                {"marker": "o", "markersize": 4, "linewidth": 1.8} if stage == "valid" else {}
            )
            axes.plot(steps, values, style, color=CYCLE[colour], label=name, **marked)
            drawn = True
    if not drawn:
        return None
    for name, nats in baselines_of(files).items():
        axes.axhline(nats, color="black", linewidth=0.9, linestyle=BASELINES[name], label=name)
    _mark_resumes(axes, files)
    axes.set_xlabel("step")
    axes.set_ylabel("loss" if files.trains_a_codec else "nats per code")
    _legend(axes)
    return figure


def codebook_chart(files: RunFiles) -> Figure | None:
    """Validation loss of each codebook by step, each unigram baseline in its colour and marker."""
    codebooks = [k for k in range(64) if files.curve(f"valid/nats_per_code_k{k}")[0]]
    if not codebooks:
        return None
    figure, (axes,) = new_axes()
    unigram = files.look_up("plan.json", "baselines", "unigram", "nats_per_code_by_codebook")
    for k in codebooks:
        style: Any = {
            "color": CYCLE[k % 10],
            "marker": MARKERS[k % 8],
            "markersize": 4,
            "linestyle": STYLES[(k // 8) % 4],
        }
        axes.plot(*thin(*files.curve(f"valid/nats_per_code_k{k}")), label=f"k{k}", **style)
        if isinstance(unigram, list) and k < len(unigram):
            axes.axhline(unigram[k], color=CYCLE[k % 10], linewidth=0.8, linestyle=(0, (5, 2)))
            # Its marker at the right end, for those who cannot tell the colours apart.
            at_the_end: Any = {**style, "linestyle": "", "clip_on": False}
            axes.plot(1, unigram[k], transform=axes.get_yaxis_transform(), **at_the_end)
    if unigram is not None:
        axes.plot([], [], color="black", linewidth=0.8, linestyle=(0, (5, 2)), label="unigram")
    axes.set_xlabel("step")
    axes.set_ylabel("nats per validation code")
    _legend(axes)
    return figure


def pace_chart(files: RunFiles) -> Figure | None:
    """Learning rate, gradient norm and speed by step."""
    names = {
        "optim/lr": "learning rate",
        "optim/grad_norm": "gradient norm",
        "train/codes_per_second": "codes a second",
    }
    found = {name: label for name, label in names.items() if files.curve(name)[0]}
    if not found:
        return None
    figure, many = new_axes(len(found), height=1.4 * len(found) + 0.3)
    for axes, (name, label) in zip(many, found.items(), strict=True):
        axes.plot(*thin(*files.curve(name)), color=CYCLE[0], linewidth=1.2)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 5))
        _mark_resumes(axes, files)
    many[-1].set_xlabel("step")
    return figure


def lengths_chart(edges: Sequence[float], clips: Sequence[int]) -> Figure:
    """A histogram of the clips' lengths."""
    figure, (axes,) = new_axes(height=2.2)
    axes.stairs(clips, edges, fill=True, color=CYCLE[0])
    axes.set_xlabel("seconds of a clip")
    axes.set_ylabel("clips")
    axes.set_ylim(bottom=0)
    return figure


def comparison_chart(runs: Sequence[tuple[str, RunFiles]]) -> Figure | None:
    """The validation loss of several runs in one figure, with the baselines they share."""
    figure, (axes,) = new_axes(height=3.2)
    shared: dict[str, set[float]] = {}
    drawn = 0
    for label, files in runs:
        steps, values = thin(*files.curve(f"valid/{files.loss}"))
        if steps:
            style: Any = {"color": CYCLE[drawn % 10], "marker": MARKERS[drawn % 8], "markersize": 4}
            axes.plot(steps, values, STYLES[(drawn // 8) % 4], label=label, **style)
            drawn += 1
        for name, nats in baselines_of(files).items():
            shared.setdefault(name, set()).add(round(nats, 3))
    if not drawn:
        return None
    for name, all_nats in shared.items():
        if len(all_nats) == 1:
            dashed: Any = {"color": "black", "linewidth": 0.9, "linestyle": BASELINES[name]}
            axes.axhline(all_nats.pop(), label=name, **dashed)
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss, nats per code")
    _legend(axes)
    return figure


def baselines_of(files: RunFiles) -> dict[str, float]:
    """Nats per code of what knows nothing of the past, by name: of the plan, or an evaluation."""
    if files.trains_a_codec:
        return {}
    found = {}
    for name in BASELINES:
        nats = files.look_up("plan.json", "baselines", name, "nats_per_code")
        if nats is None:
            nats = files.look_up("evaluation.json", "nats_per_code", -1, name)
        if isinstance(nats, int | float):
            found[name] = float(nats)
    return found


def resume_steps(files: RunFiles) -> list[int]:
    """The steps at which a later session went on, where the one before it was able to say."""
    steps = []
    for before, after in zip(files.sessions, files.sessions[1:], strict=False):
        if after.get("resumed_from") and before.get("ended"):
            steps.append(int(before["ended"]["step"]))
    return steps


def _mark_resumes(axes: Axes, files: RunFiles) -> None:
    for index, step in enumerate(resume_steps(files)):
        label = "resumed" if index == 0 else None
        axes.axvline(step, color="black", linewidth=0.6, linestyle=(0, (1, 3)), label=label)


def _legend(axes: Axes) -> None:
    """Above the axes, where it hides no curve."""
    columns = min(5, max(1, len(axes.get_legend_handles_labels()[0])))
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, fontsize=8, frameon=False,
        handlelength=2.2, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip
