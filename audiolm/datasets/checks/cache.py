"""What clips were measured as, on disk, so that each is decoded once.

    measured-3-20260131T120000-1f2e3d4c.jsonl    one line a clip; 3 is the version

A file is written whole every `seconds` and never changed, so a kill loses at most that much work;
many files are merged into one. Several processes may share a folder. An entry counts for a file of
this path, size and time of last change, and for these seconds of it. Paths below the working folder
are kept as seen from the cache's, so that a project that is moved with its recordings is not
measured again. (By a name, a size and a time alone they are no different: all clips of a set
may have the same.) The version rises with what a line holds, and with how files are read: what was
measured otherwise is measured again.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.datasets.checks.measure import MEASURED, Fault, Measurement
from audiolm.files import atomic_file, hash64, json_line
from audiolm.locks import FileLock

_NAME = "measured-3-"
_MAX_FILES = 16  # more are merged
_ROWS = 65536  # lines turned into an array at a time
_STALE = 3600.0  # seconds after which a temporary file is what a killed process left
_CACHED = np.dtype([("cache_key", np.uint64), *MEASURED.descr])


@dataclass(frozen=True, slots=True)
class Source:
    """Seconds `start` to `end` (None: to its end) of a file as it was when it was looked at."""

    path: str
    """Absolute, or from the cache's folder; see `path_in`."""
    size: int
    mtime_ns: int
    start: float
    end: float | None

    @property
    def key(self) -> int:
        """64 bits that tell it from others."""
        return hash64(f"{self.path}\0{self.size}\0{self.mtime_ns}\0{self.start}\0{self.end}")


def path_in(folder: Path, path: Path) -> str:
    """A file's path as a cache in ``folder`` keeps it: one for each place, wherever both lie."""
    absolute, here = os.path.abspath(path), os.getcwd()
    inside = os.path.commonpath([absolute, os.path.abspath(folder), here]) == here
    return os.path.relpath(absolute, folder) if inside else absolute


class CheckCache:
    """Measurements by `Source.key`.

    folder: made if it is not there. seconds: at most so much work is lost by a kill.
    formats: names that `MEASURED["format"]` counts in.
    """

    def __init__(self, folder: Path, seconds: float = 20.0) -> None:
        self.folder = folder
        self.formats: list[str] = []
        self._numbers: dict[str, int] = {}
        self._seconds = seconds
        self._pending: list[bytes] = []
        self._written = time.monotonic()
        self._faults: dict[int, Fault] = {}
        self._rows = np.empty(0, _CACHED)
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_stale()
        self._load()

    def find(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which of these are cached, and a `MEASURED` row for each (zeros where it is not)."""
        rows = np.zeros(len(keys), MEASURED)
        if not len(self._rows):
            return np.zeros(len(keys), np.bool_), rows
        indices = np.minimum(np.searchsorted(self._rows["cache_key"], keys), len(self._rows) - 1)
        found = self._rows["cache_key"][indices] == keys
        for name in MEASURED.names or ():
            rows[name][found] = self._rows[name][indices[found]]
        return found, rows

    def fault(self, key: int) -> Fault | None:
        """The fault of a cached clip, if it has one."""
        return self._faults.get(key)

    def row(self, source: Source, measured: Measurement) -> tuple[Any, ...]:
        """A measurement as a `MEASURED` row."""
        return (
            measured.key,
            measured.num_samples,
            measured.sample_rate,
            source.size,
            source.mtime_ns,
            measured.channels,
            self._format_number(measured.format),
            measured.peak,
            measured.rms,
            measured.mix_rms,
            measured.offset,
            measured.clipped,
            measured.missing,
            measured.trailing,
        )

    def add(self, source: Source, result: Measurement | Fault) -> None:
        """Keep what was measured; on disk within `seconds` if this is called again and again.

        Not that a file is unreadable: permissions, programs and libraries change without it, and
        it costs little to see again.
        """
        if isinstance(result, Fault) and result.rule == "unreadable":
            return
        facts = {
            "path": source.path,
            "size": source.size,
            "mtime_ns": source.mtime_ns,
            "start": source.start,
            "end": source.end,
        }
        self._pending.append(json_line(facts | result._asdict()))
        if time.monotonic() - self._written >= self._seconds:
            self.flush()

    def flush(self) -> None:
        """Write what was added since the last time."""
        if self._pending:
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            name = f"{_NAME}{stamp}-{secrets.token_hex(4)}.jsonl"
            with atomic_file(self.folder / name) as file:
                file.writelines(self._pending)
            self._pending = []
        self._written = time.monotonic()

    def merge(self) -> None:
        """Make one file of many, unless another process is at it."""
        if len(self._files()) <= _MAX_FILES:
            return
        lock = FileLock(self.folder / ".merge.lock")
        if not lock.acquire(timeout=0):
            return
        try:
            files = self._files()
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            name = f"{_NAME}{stamp}-{secrets.token_hex(4)}.jsonl"
            with atomic_file(self.folder / name) as merged:
                for path in files:
                    with open(path, "rb") as file:
                        shutil.copyfileobj(file, merged)
            for path in files:
                path.unlink()
        finally:
            lock.release()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_NAME}*.jsonl"))

    def _remove_stale(self) -> None:
        for path in self.folder.glob(".*.tmp"):
            try:
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink(missing_ok=True)
            except FileNotFoundError:
                pass  # another process's, which is done with it

    def _load(self) -> None:
        while True:
            try:
                parts = [np.empty(0, _CACHED), *self._read(self._files())]
                break
            except FileNotFoundError:
                pass  # merged with others by another process in between: look again
        rows = np.concatenate(parts)
        self._rows = rows[np.argsort(rows["cache_key"], kind="stable")]

    def _read(self, files: list[Path]) -> Iterator[NDArray[Any]]:
        rows: list[tuple[Any, ...]] = []
        for path in files:
            with open(path, "rb") as lines:
                for line in lines:
                    try:
                        rows.append(self._parse(line))
                    except (ValueError, KeyError, TypeError):
                        continue  # a damaged line: its clip is measured again
                    if len(rows) == _ROWS:
                        yield np.array(rows, _CACHED)
                        rows = []
        yield np.array(rows, _CACHED)

    def _parse(self, line: bytes) -> tuple[Any, ...]:
        facts = json.loads(line)
        source = Source(*(facts[n] for n in ("path", "size", "mtime_ns", "start", "end")))
        key = source.key
        if "rule" in facts:
            self._faults[key] = Fault(facts["rule"], facts["reason"])
            return (key, *(0 for _ in MEASURED.names or ()))
        return (key, *self.row(source, Measurement(*(facts[n] for n in Measurement._fields))))

    def _format_number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.formats)
            self.formats.append(name)
        return number
