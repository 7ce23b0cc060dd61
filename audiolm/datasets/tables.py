"""Tables as people keep them beside recordings: CSV, TSV and JSON lines, read row by row.

    clips.csv     path,text                    clips.jsonl     {"path": "a.wav", "text": "one"}
                  a.wav,one                                    {"path": "b.wav", "text": "two"}
                  b.wav,two

UTF-8 with or without a byte order mark (or UTF-16 with one, as spreadsheets export it), any line
ends. A row that cannot be read is a `BadRow` and the next is read.

Quotation marks are where CSV loses rows: one that opens a field and is closed in a later row takes
all between into the field, as CSV has it. So a field that holds lines which look like rows is a
`BadRow`, and these are read as rows; and a table that nowhere quotes, as Common Voice's TSV, is
read as one in which quotation marks mean themselves.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from audiolm.audio import AUDIO_SUFFIXES
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
    quotation marks, unless the table nowhere quotes (see `_quoting`). TSV is the same with tabs.
    JSON lines (.jsonl, .json) hold an object a line; what is not a string there becomes one:
    numbers as they are written, lists and objects as JSON.

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
    records = _Records(file, delimiter, _quoting(file, delimiter, tabs))
    names: list[str] | None = None
    path_index = 0
    while (record := records.next()) is not None:
        fields, error, lines = record
        if names is not None and records.holds_rows(lines, len(names), path_index):
            last = records.number
            records.push_back(lines[1:])
            yield BadRow(
                _where(path, records.number, records.number),
                f"opens a quotation mark that is not closed before line {last}, and the lines "
                "between look like rows; double the mark, or close it",
            )
            continue
        where = _where(path, records.number - len(lines) + 1, records.number)
        if error:
            if names is None:
                raise ValueError(f"{one_line(path)}: the first row is not CSV: {error}")
            yield BadRow(where, f"is not CSV: {error}")
            continue
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
            path_index = next(names.index(name) for name in path_columns if name in names)
        elif any(field.strip() for field in fields[len(names) :]):
            yield BadRow(
                where,
                f"has {len(fields)} fields where the first row names {len(names)}; put a field "
                f"that holds {delimiter!r} in quotation marks",
            )
        else:
            pairs = zip(names, fields, strict=False)
            yield _Values(where, {name: field for name, field in pairs if name and field})


class _Record(NamedTuple):
    """A row of CSV, or why it is none; and the lines that were read for it."""

    fields: list[str]
    error: str
    lines: list[str]


class _Records:
    """The rows of a CSV file, one at a time, with the lines that each took.

    number: of the last line read.
    """

    def __init__(self, file: TextIO, delimiter: str, quoting: Literal[0, 3]) -> None:
        self.number = 0
        self._file = file
        self._format: Any = {"delimiter": delimiter, "quoting": quoting, "strict": True}
        self._waiting: deque[str] = deque()  # lines that were pushed back
        self._taken: list[str] = []
        self._reader = csv.reader(self._lines(), **self._format)

    def _lines(self) -> Iterator[str]:
        while line := self._waiting.popleft() if self._waiting else self._file.readline():
            self.number += 1
            self._taken.append(line)
            yield line

    def next(self) -> _Record | None:
        """The next row; None after the last."""
        self._taken = []
        try:
            return _Record(next(self._reader), "", self._taken)
        except StopIteration:
            return None
        except csv.Error as error:
            return _Record([], str(error), self._taken)

    def push_back(self, lines: list[str]) -> None:
        """Read these, the last that were read, once more as rows of their own."""
        self._waiting.extendleft(reversed(lines))
        self.number -= len(lines)
        self._reader = csv.reader(self._lines(), **self._format)

    def holds_rows(self, lines: list[str], columns: int, path_index: int) -> bool:
        """Whether some line after the first looks like a row of its own.

        It has as many fields as the table has columns (which a line of a text may have too), and
        in its field for the path the suffix of an audio file, or that of the first line's.
        """
        if len(lines) < 2:
            return False
        suffixes = {*AUDIO_SUFFIXES, self._suffix(lines[0], path_index)} - {""}
        return any(
            line.count(self._format["delimiter"]) + 1 >= columns > 1
            and self._suffix(line, path_index) in suffixes
            for line in lines[1:]
        )

    def _suffix(self, line: str, path_index: int) -> str:
        fields = line.rstrip("\r\n").split(self._format["delimiter"])
        path = fields[path_index].strip().strip('"') if path_index < len(fields) else ""
        return os.path.splitext(path)[1].lower()


def _quoting(file: TextIO, delimiter: str, tabs: bool) -> Literal[0, 3]:
    """Whether quotation marks quote in a table, or mean themselves: `csv`'s constant for it.

    They mean themselves where each line by itself is a row of as many fields as the first, some
    row does not close a mark that it opens or closes it before the field ends, and (but for TSV,
    which by custom does not quote) no field stands in marks. From the file's begin, to which it
    goes back.
    """
    columns = 0
    unbalanced = False
    for line in file:
        if not (row := line.rstrip("\r\n")).strip():
            continue
        count = row.count(delimiter) + 1
        columns = columns or count
        if count != columns:
            break
        for field in row.split(delimiter) if '"' in row else ():
            if not field.startswith('"'):
                continue
            inner = field[1:-1].replace('""', "")
            if len(field) > 1 and field.endswith('"') and '"' not in inner:
                if not tabs:
                    file.seek(0)
                    return csv.QUOTE_MINIMAL
            else:
                unbalanced = True
    else:
        file.seek(0)
        return csv.QUOTE_NONE if unbalanced else csv.QUOTE_MINIMAL
    file.seek(0)
    return csv.QUOTE_MINIMAL


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
