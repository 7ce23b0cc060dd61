"""Tables as people keep them beside recordings: CSV, TSV and JSON lines, read row by row.

    clips.csv     path,text                    clips.jsonl     {"path": "a.wav", "text": "one"}
                  a.wav,one                                    {"path": "b.wav", "text": "two"}
                  b.wav,two

UTF-8 with or without a byte order mark (or UTF-16 with one, as spreadsheets export it), any line
ends. A row that cannot be read is a `BadRow` and the next is read; so a missing quotation mark
takes no rows away in silence.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from audiolm.files import one_line

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
"""Suffixes (lower case) that `read_table` knows."""


class Row(NamedTuple):
    """where: "line 7 of clips.csv". path: as it stands there. values: the other columns, by name,
    without those that are empty."""

    where: str
    path: str
    values: dict[str, str]


class BadRow(NamedTuple):
    """A row that cannot be read, and why. where: as in `Row`."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class NoPathColumn(ValueError):
    """A table that names no files. reason: without the table's path."""

    def __init__(self, table: Path, reason: str) -> None:
        super().__init__(f"{one_line(table)}: {reason}")
        self.reason = reason


class _Values(NamedTuple):
    where: str
    values: dict[str, str]


def read_table(table: Path, path_columns: Sequence[str]) -> Iterator[Row | BadRow]:
    """The rows of a table, in its order, in constant memory; empty rows are passed over.

    path_columns: what the column that names a row's file may be called, the preferred name first.

    CSV has its columns named by the first row, between commas, or semicolons or tabs where the
    first row has more of these; fields that hold these, line ends or quotation marks stand in
    quotation marks. TSV is the same with tabs. JSON lines (.jsonl, .json) hold an object a line;
    what is not a string there becomes one: numbers as they are written, lists and objects as JSON.

    Raises NoPathColumn where no row has one of `path_columns` (at once for CSV, after the last row
    for JSON lines), ValueError for another suffix, a table of no rows, columns of one name and text
    in another encoding; OSError where the file cannot be read.
    """
    suffix = table.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        raise ValueError(
            f"{one_line(table)}: the suffix is not one of {', '.join(TABLE_SUFFIXES)}; "
            "write a table of one of these"
        )
    is_empty, has_paths = True, False
    with _open_text(table) as file:
        rows = _json_rows(file, table) if "json" in suffix else _csv_rows(file, table, path_columns)
        for row in rows:
            is_empty = False
            if isinstance(row, BadRow):
                yield row
            elif not _is_text(row.values):
                yield BadRow(row.where, "is not in UTF-8; save the table in this encoding")
            elif column := next((name for name in path_columns if name in row.values), None):
                has_paths = True
                yield Row(row.where, row.values.pop(column), row.values)
            else:
                yield BadRow(row.where, f"has no {path_columns[0]}")
    if is_empty:
        raise ValueError(f"{one_line(table)} holds no rows; write one for each clip")
    if "json" in suffix and not has_paths:
        raise NoPathColumn(table, f"no row has a {' or '.join(path_columns)}")


def _open_text(path: Path) -> TextIO:
    with open(path, "rb") as file:
        marked = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if marked:
        return open(path, encoding="utf-16", errors="replace", newline="")
    # Bytes that are not UTF-8 stay visible, for `_is_text` to find them row by row.
    return open(path, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _csv_rows(file: TextIO, path: Path, path_columns: Sequence[str]) -> Iterator[_Values | BadRow]:
    first = file.readline()
    file.seek(0)
    tabs = path.suffix.lower() == ".tsv"
    delimiter = "\t" if tabs else max(",;\t", key=first.count)
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    names: list[str] | None = None
    while True:
        start = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if names is None:
                raise ValueError(f"{one_line(path)}: the first row is not CSV: {error}") from None
            yield BadRow(_where(path, start, reader.line_num), f"is not CSV: {error}")
            continue
        where = _where(path, start, reader.line_num)
        if not any(field.strip() for field in fields):
            continue
        if names is None:
            names = _column_names(fields, path)
            if not set(path_columns) & set(names):
                raise NoPathColumn(
                    path,
                    f"no column is named {' or '.join(path_columns)} among the first row's "
                    f"{one_line(Path(', '.join(names)[:80]))}",
                )
        elif any(field.strip() for field in fields[len(names) :]):
            yield BadRow(
                where,
                f"has {len(fields)} fields where the first row names {len(names)}; put a field "
                f"that holds {delimiter!r} in quotation marks",
            )
        else:
            pairs = zip(names, fields, strict=False)
            yield _Values(where, {name: field for name, field in pairs if name and field})


def _column_names(fields: list[str], path: Path) -> list[str]:
    names = [field.strip() for field in fields]
    if not _is_text(dict.fromkeys(names, "")) or any("\0" in name for name in names):
        raise ValueError(f"{one_line(path)} is not a table in UTF-8; save it in this encoding")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(f"{one_line(path)}: two columns are named {twice[0]!r}; rename one")
    return names


def _json_rows(file: TextIO, path: Path) -> Iterator[_Values | BadRow]:
    for number, line in enumerate(file, 1):
        line = line.strip()
        if not line:
            continue
        where = _where(path, number, number)
        if number == 1 and line.startswith("["):
            raise ValueError(
                f"{one_line(path)} holds one JSON list; write its objects a line each instead"
            )
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadRow(where, f"is not JSON: {error}")
            continue
        if isinstance(values, dict):
            texts = {name: _as_text(value) for name, value in values.items()}
            yield _Values(where, {name: text for name, text in texts.items() if name and text})
        else:
            yield BadRow(where, 'is not a JSON object: write {"path": ...}')


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_text(values: dict[str, str]) -> bool:
    """Whether these can be written as UTF-8: half of a pair of surrogates cannot."""
    try:
        for name, value in values.items():
            name.encode()
            value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _where(path: Path, first: int, last: int) -> str:
    lines = f"line {first}" if first >= last else f"lines {first} to {last}"
    return f"{lines} of {one_line(Path(path.name))}"
