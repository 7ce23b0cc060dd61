"""A list of recordings, or of parts of recordings, as a source of clips.

path,start,end,text,speaker            {"path": "talk.wav", "start": 3.5, "end": 6.2, ...}
talk.wav,3.5,6.2,One sentence.,ann     {"audio_filepath": "a.wav", "duration": 2.1, ...}
/data/song.flac,,,,
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from audiolm.datasets.clip import Clip, SkippedClip, make_clip, without_repeats
from audiolm.datasets.tables import BadRow, Row, read_table
from audiolm.files import one_line, user_path

_PATH_COLUMNS = ("path", "audio_filepath", "audio", "file_name")


def manifest_clips(manifest: str | Path) -> Iterator[Clip | SkippedClip]:
    """The clips that a table lists, in its order. For the kinds of tables, see `read_table`.

    path (or audio_filepath, audio, file_name): the file, absolute or relative to the manifest's
        folder.
    start, end (or offset, duration; an end counts before a duration): the part of the file, in
        seconds; from its beginning or to its end where they are not given.
    id: the clip's id. Else the path below the manifest's folder (the absolute path of a file
        elsewhere), and "#START-END" where a part is given.
    label, text, split and other columns go to the clip, see `make_clip`.

    A row that cannot be used, and one with the id of a row before it, is skipped with its line.
    Raises FileNotFoundError or ValueError, when the first clip is asked for, where there is no such
    table or no column for the path; see `read_table`.
    """
    return without_repeats(_clips(user_path(manifest)))


def _clips(manifest: Path) -> Iterator[Clip | SkippedClip]:
    if manifest.is_dir():
        raise IsADirectoryError(f"{one_line(manifest)} is a folder; pass the manifest's file")
    if not manifest.exists():
        raise FileNotFoundError(f"no such manifest: {one_line(manifest)}")
    folder = Path(os.path.abspath(manifest)).parent
    for row in read_table(manifest, _PATH_COLUMNS):
        yield SkippedClip(manifest, str(row)) if isinstance(row, BadRow) else _clip(row, folder)


def _clip(row: Row, folder: Path) -> Clip | SkippedClip:
    path = folder / row.path
    values = row.values
    times = {name: values.pop(name, None) for name in ("start", "offset", "end", "duration")}
    try:
        seconds = {name: _seconds(name, text) for name, text in times.items() if text is not None}
    except ValueError as error:
        return SkippedClip(path, f"{row.where}: {error}")
    start = seconds.get("start", seconds.get("offset", 0.0))
    end = seconds.get("end")
    if end is None and "duration" in seconds:
        end = start + seconds["duration"]
    if end is not None and end <= start:
        return SkippedClip(path, f"{row.where}: end {end:g} s is not after start {start:g} s")
    id = values.pop("id", "").strip()
    if not id:
        id = _place(row.path, folder)
        if seconds:
            id += f"#{_short(start)}-{'' if end is None else _short(end)}"
    return make_clip(id, path, values, start=start, end=end, where=row.where)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} {text[:40]!r} is not a number of seconds, 0 or more")
    return value


def _place(path: str, folder: Path) -> str:
    """A file's path as an id: below the folder where it is relative or lies there."""
    normal = Path(os.path.normpath(path))
    return (normal.relative_to(folder) if normal.is_relative_to(folder) else normal).as_posix()


def _short(seconds: float) -> str:
    """The number as it was given, mostly: 3 and 3.0 are one."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".")
