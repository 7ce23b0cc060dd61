"""The table of docs/benchmarks.md, rerun: `pytest -m slow`, about six minutes on two idle cores."""

from __future__ import annotations

import json
import math
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .conftest import ROOT


class Row(NamedTuple):
    """A metric of scores.json, by its path there, with what it is and the bounds it must keep."""

    name: str
    reference: float
    least: float
    most: float


def reference_table() -> list[Row]:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = re.search(r"<!-- reference -->(.*?)<!-- /reference -->", page, flags=re.S)
    assert table is not None
    cells = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in table[1].splitlines()
        if line.startswith("| `")
    ]
    return [
        Row(name, float(value), float(least or -math.inf), float(most or math.inf))
        for name, value, least, most in cells
    ]


def metric(scores: dict[str, Any], name: str) -> float:
    value: Any = scores
    for key in name.split("/"):
        value = value[key]
    return float(value)


def test_the_table_is_whole_and_keeps_its_own_bounds() -> None:
    rows = reference_table()
    for kind in (
        "validation/nats_per_code_k0",
        "validation/bits_per_second",
        "samples/legal_notes",
    ):
        assert kind in [row.name for row in rows]
    assert sum(row.name.startswith("seconds/") for row in rows) == 3
    for row in rows:
        assert row.least <= row.reference <= row.most, row
        assert row.least > -math.inf or row.most < math.inf, row


@pytest.mark.slow
def test_the_default_run_keeps_to_the_table(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), "logger=csv"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (file,) = tmp_path.glob("runs/demo/*/scores.json")
    scores = json.loads(file.read_text(encoding="utf-8"))
    outside = [
        f"{row.name} is {metric(scores, row.name):.3f}, not in {row.least} .. {row.most}"
        for row in reference_table()
        if not row.least <= metric(scores, row.name) <= row.most
    ]
    assert not outside, "; ".join(outside)
    samples, ceiling = scores["samples"], scores["ceiling"]
    assert samples["legal_notes"] >= 0.9 * ceiling["legal_notes"]
    assert samples["legal_transitions"] >= 0.8 * ceiling["legal_transitions"]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024  # kibibytes on Linux
    assert peak < 3e9
