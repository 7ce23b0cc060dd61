"""The table and the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audiolm.benchmarks.disturbance import Sample
from audiolm.benchmarks.machine import describe_machine
from audiolm.benchmarks.report import Section, table, write_report
from audiolm.benchmarks.rounds import Measurement, Spread

SECTION = Section(
    "encode",
    [
        Measurement(
            "loop", "h/h", Spread(24.23, 22.0, 27.0), None, None, 0.031, "fp32", (Sample(1, 0.0),)
        ),
        Measurement(
            "ours, with a longer name",
            "h/h",
            Spread(12345.6, 0.01234, 61.0),
            Spread(2.523, 2.0, 3.0),
            "loop",
            None,
            None,
            (Sample(1.0, 0.5), Sample(1.0, None)),
        ),
    ],
    {"codes": "100 % of 10", "share": 0.5},
)


def test_a_table_has_a_line_a_figure_and_a_fact() -> None:
    lines = table(SECTION).splitlines()
    assert lines[0] == "encode"
    assert lines[2].split() == ["loop", "24.2", "22.0", "..", "27.0", "h/h", "3.1%", "0/1"]
    assert "12,300" in lines[3] and "0.0123 .. 61.0" in lines[3]
    assert "2.52 x (2.00 .. 3.00)" in lines[3] and lines[3].endswith("1/2")
    assert lines[4:] == ["  codes: 100 % of 10", "  share: 0.500"]
    columns = [line.index("h/h") for line in lines[2:4]]
    assert columns[0] == columns[1], "columns are straight"


def test_the_file_holds_all_of_it(tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "benchmark.json"
    write_report(out, describe_machine(), {"rounds": 2}, [SECTION])
    written = json.loads(out.read_text())
    assert written["settings"] == {"rounds": 2}
    assert written["machine"]["threads"] >= 1 and written["machine"]["cpu"]
    ours = written["sections"]["encode"]["measurements"][1]
    assert ours["ratio"] == {"median": 2.523, "low": 2.0, "high": 3.0}
    assert ours["against"] == "loop" and ours["disturbed"] == 1
    assert ours["samples"][1] == {"seconds": 1.0, "foreign": None}
    assert written["sections"]["encode"]["facts"]["share"] == 0.5
    assert [path.name for path in out.parent.iterdir()] == ["benchmark.json"]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        write_report(tmp_path / "file" / "out.json", {}, {}, [])
