"""What the sections found, as a table and as a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audiolm.benchmarks.rounds import Measurement, Spread
from audiolm.files import replacing


@dataclass(frozen=True)
class Section:
    """name: of the section. measurements: what was timed. facts: what was checked and counted, one
    value or line of text each, by what it says."""

    name: str
    measurements: Sequence[Measurement]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "measurements": [measurement_as_dict(measurement) for measurement in self.measurements],
            "facts": dict(self.facts),
        }


def measurement_as_dict(measurement: Measurement) -> dict[str, Any]:
    """A measurement as plain data."""
    return {
        "name": measurement.name,
        "unit": measurement.unit,
        "rate": measurement.rate._asdict(),
        "ratio": None if measurement.ratio is None else measurement.ratio._asdict(),
        "against": measurement.against,
        "share_of_limit": measurement.share,
        "limit": measurement.limit,
        "disturbed": measurement.disturbed,
        "samples": [sample._asdict() for sample in measurement.samples],
    }


def write_report(
    path: Path, machine: dict[str, Any], settings: dict[str, Any], sections: Sequence[Section]
) -> None:
    """Write all sections as JSON; the file appears whole or not at all."""
    content = {
        "machine": machine,
        "settings": settings,
        "sections": {section.name: section.as_dict() for section in sections},
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")


def table(section: Section) -> str:
    """A section to print: its measurements in columns, then its facts."""
    rows = [("", "median", "range", "unit", "ratio", "of limit", "disturbed")]
    for measurement in section.measurements:
        ratio = "" if measurement.ratio is None else f"{_number(measurement.ratio.median)} x"
        if measurement.ratio is not None and len(measurement.samples) > 1:
            ratio += f" ({_range(measurement.ratio)})"
        rows.append(
            (
                measurement.name,
                _number(measurement.rate.median),
                _range(measurement.rate),
                measurement.unit,
                ratio,
                "" if measurement.share is None else f"{measurement.share:.1%}",
                f"{measurement.disturbed}/{len(measurement.samples)}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [section.name]
    for row in rows:
        name, *cells = (
            cell.ljust(width) if column in (0, 3, 4) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(["", name, *cells]).rstrip())
    lines += [f"  {name}: {_value(value)}" for name, value in section.facts.items()]
    return "\n".join(lines)


def as_times(ratio: Spread) -> str:
    """A ratio as text: 1.50 x (1.41 .. 1.62)."""
    return f"{_number(ratio.median)} x ({_range(ratio)})"


def _range(spread: Spread) -> str:
    return f"{_number(spread.low)} .. {_number(spread.high)}"


def _value(value: Any) -> str:
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """Three digits, with thousands apart and no powers of ten."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"
