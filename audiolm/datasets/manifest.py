"""A list of recordings, or of parts of recordings, as a source of clips.

path,start,end,text,speaker            {"path": "talk.wav", "start": 3.5, "end": 6.2, ...}
talk.wav,3.5,6.2,One sentence.,ann     {"audio_filepath": "a.wav", "duration": 2.1, ...}
/data/song.flac,,,,
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from audiolm.datasets.clip import Clip, SkippedClip, make_clip, without_repeats
from audiolm.datasets.matching import FileNames
from audiolm.datasets.tables import BadRow, Row, read_table
from audiolm.datasets.times import take_span
from audiolm.files import one_line, user_path

_PATH_COLUMNS = ("path", "audio_filepath", "audio", "file_name")


def manifest_clips(manifest: str | Path) -> Iterator[Clip | SkippedClip]:
    """The clips that a table lists, in its order. For the kinds of tables, see `read_table`.

    path (or audio_filepath, audio, file_name): the file, absolute or relative to the manifest's
        folder; see `FileNames`.
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
    names = FileNames(folder)
    for row in read_table(manifest, _PATH_COLUMNS):
        if isinstance(row, BadRow):
            yield SkippedClip(manifest, str(row))
        else:
            yield _clip(row, folder, names)


def _clip(row: Row, folder: Path, names: FileNames) -> Clip | SkippedClip:
    path, values = names.find(row.path), row.values
    try:
        span = take_span(values)
    except ValueError as error:
        return SkippedClip(path, f"{row.where}: {error}")
    id = values.pop("id", "").strip() or _place(row.path, folder) + span.suffix
    return make_clip(id, path, values, start=span.start, end=span.end, where=row.where)


def _place(path: str, folder: Path) -> str:
    """A file's path as an id: below the folder where it is relative or lies there."""
    normal = Path(os.path.normpath(path))
    return (normal.relative_to(folder) if normal.is_relative_to(folder) else normal).as_posix()
