"""Figures as SVG inside a page: in the page's colours, light or dark, and the same bytes each time.

Matplotlib's own default colours become variables of the page's style, so that one figure serves
both; text stays text, in the page's font.
"""

from __future__ import annotations

import io
import re
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

CYCLE = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
"""Matplotlib's default colours, tab:blue to tab:cyan, in their order."""

STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

_VARIABLES = {
    "#000000": "var(--ink)",
    "#ffffff": "var(--paper)",
    "#b0b0b0": "var(--grid)",
    "#cccccc": "var(--grid)",
    **{colour: f"var(--c{i})" for i, colour in enumerate(CYCLE)},
}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "audiolm",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "image.composite_image": False,
}


def new_axes(rows: int = 1, width: float = 5.2, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """A figure of `rows` axes above each other that share their x axis; sizes in inches.

    Narrow, so that its text can be read where it is shrunk to a phone's width.
    """
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        return figure, list(axes)


def svg(figure: Figure, number: int, label: str) -> Markup:
    """The figure as an <svg> element.

    Args:
        figure: in matplotlib's default colours.
        number: of the figure in its page, which keeps its ids apart from the others'.
        label: what it shows, for those who cannot see it.
    """
    text = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    source = text.getvalue()
    source = source[source.index("<svg") :]
    source = re.sub(r"<metadata>.*?</metadata>", "", source, flags=re.S)
    source = re.sub(r"#[0-9a-f]{6}\b", lambda m: _VARIABLES.get(m[0], m[0]), source)
    for before in (r'id="', r'href="#', r"url\(#"):
        source = re.sub(before, before.replace("\\", "") + f"f{number}-", source)
    source = re.sub(r"font: [^;\"]*?(\d+(?:\.\d+)?)px [^;\"]*", r"font-size: \1px", source)
    # Coordinates to a hundredth of a point are as sharp, and half as long.
    source = re.sub(r"(\d+\.\d\d)\d+", r"\1", source)
    size = re.search(r'<svg[^>]*viewBox="([^"]+)"[^>]*>', source)
    assert size is not None, "matplotlib wrote an svg without its size"
    head = Markup(
        '<svg viewBox="{}" role="img" aria-label="{}" xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    ).format(size[1], label)
    return head + Markup(source[size.end() :].strip())
