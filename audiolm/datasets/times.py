"""Which part of its file a row of a table means: columns start and end, or offset and duration."""

from __future__ import annotations

import math
from typing import NamedTuple

TIMES = ("start", "offset", "end", "duration")


class Span(NamedTuple):
    """Seconds of a file. end: None for the file's. suffix: of an id, nothing for the whole file."""

    start: float
    end: float | None
    suffix: str


def take_span(values: dict[str, str]) -> Span:
    """The part that a row's values give, which are taken out of them.

    Raises ValueError for what is not a number of seconds, and for an end before the start.
    """
    times = {name: values.pop(name) for name in TIMES if name in values}
    seconds = {name: _seconds(name, text) for name, text in times.items()}
    start = seconds.get("start", seconds.get("offset", 0.0))
    end = seconds.get("end")
    if end is None and "duration" in seconds:
        end = start + seconds["duration"]
    if end is not None and end <= start:
        raise ValueError(f"end {end:g} s is not after start {start:g} s")
    suffix = f"#{_short(start)}-{'' if end is None else _short(end)}" if seconds else ""
    return Span(start, end, suffix)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} {text[:40]!r} is not a number of seconds, 0 or more")
    return value


def _short(seconds: float) -> str:
    """The number as it was given, mostly: 3 and 3.0 are one."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".")
