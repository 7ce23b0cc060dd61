"""A folder of recordings as a source of clips, with what lies beside the files or in their names.

music/                       metadata.csv or metadata.jsonl, in any folder: what it says of
  metadata.csv               files below it, by the column `file_name`
  rock/bob_1.wav             folder names: labels (label_from) or splits (split_from)
  rock/bob_2.wav             file names: a pattern such as "{speaker}_{take}"
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from audiolm.audio import FolderContents, find_audio_files, search_folder
from audiolm.datasets.clip import (
    Clip,
    Found,
    PassedOver,
    RowMatch,
    SkippedClip,
    make_clip,
    split_name,
    without_repeats,
)
from audiolm.datasets.file_names import NamePattern
from audiolm.datasets.matching import FileNames
from audiolm.datasets.tables import BadRow, NoPathColumn, read_table
from audiolm.datasets.times import Span, take_span
from audiolm.files import one_line, user_path

METADATA_NAMES = ("metadata.csv", "metadata.jsonl")


def folder_clips(
    folder: str | Path,
    *,
    pattern: str | None = None,
    label_from: str | None = None,
    split_from: str | None = None,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    parts: bool = True,
) -> Iterator[Found]:
    """Every audio file below `folder`; the id is the path below the folder.

    metadata.csv or metadata.jsonl in the folder, or in folders below it, is read as Hugging Face's
    audiofolder has it: `file_name` is a path relative to the metadata's own folder (see
    `FileNames`), other columns go to the clip. `start` and `end` (or `offset` and `duration`) make
    a clip of that part of the file. Of several that name a file the nearest counts. Files that it
    does not name are clips all the same, without columns: a recording is of use without its text.
    (Hugging Face drops these.) A name without a file is skipped, and so is a metadata file itself
    that has no column `file_name`. Files that metadata names come first, then the others in sorted
    order. What is no recording is passed over: files of other suffixes, and what this program wrote
    itself (see `audiolm.audio.outputs`).

    pattern: what file names say, see `NamePattern`; a file that does not match is skipped.
    label_from: "folder" labels a clip with the name of the folder that holds its file.
    split_from: "folder" takes the split from the folder directly below `folder`, such as train/,
        validation/ and test/, and leaves out what lies in no such folder; another word is the
        column (or the pattern's field) that names the split. None: the column `split`.
    valid, test: folders, in `folder` or apart from it, whose files are of that split; where they
        lie apart, "valid:" or "test:" goes before their ids. With `valid`, a clip of `folder` that
        nothing else gives a split is of "train".
    parts: False for files that were cut already, whose times are of what they were cut from.
    What is asked for here goes before what metadata says.

    Raises ValueError at once for arguments that are wrong or contradict each other; at the first
    clip ValueError, FileNotFoundError or NotADirectoryError for folders that are not there, hold no
    audio files, hold no folder of a split, or both kinds of metadata in one place; after the last
    ValueError where `split_from` is a column that no clip has.
    """
    if label_from not in (None, "folder"):
        raise ValueError(
            f"label_from is {label_from!r}; pass 'folder' for the name of a file's folder, or null"
        )
    names = None if pattern is None else NamePattern(pattern)
    fields = names.fields if names else ()
    if label_from and "label" in fields:
        raise ValueError(f"label_from and the pattern {pattern!r} both give the label; drop one")
    if split_from and "split" in fields:
        raise ValueError(f"split_from and the pattern {pattern!r} both give the split; drop one")
    if split_from == "folder" and (valid is not None or test is not None):
        raise ValueError("split_from=folder and a folder for valid or test both split; drop one")
    return without_repeats(
        _Folders(folder, valid, test, names, label_from, split_from, parts).clips()
    )


class _Described(NamedTuple):
    """A file, and what metadata says of it. where: the metadata's line."""

    path: Path
    values: dict[str, str]
    where: str


class _Folders:
    def __init__(
        self,
        folder: str | Path,
        valid: str | Path | None,
        test: str | Path | None,
        names: NamePattern | None,
        label_from: str | None,
        split_from: str | None,
        parts: bool,
    ) -> None:
        self.folder = user_path(folder).resolve()
        given = {"valid": valid, "test": test}
        self.named = {name: user_path(path).resolve() for name, path in given.items() if path}
        self.names = names
        self.label_from = label_from
        self.split_from = split_from
        self.parts = parts
        self.split_column_seen = False
        self._check_apart()

    def _check_apart(self) -> None:
        for name, path in self.named.items():
            others = {"the folder itself": self.folder, **self.named}
            del others[name]
            for other_name, other in others.items():
                if other.is_relative_to(path):
                    raise ValueError(
                        f"the {name} folder {one_line(path)} holds {other_name}, "
                        f"{one_line(other)}; pass folders that do not share files"
                    )

    def clips(self) -> Iterator[Found]:
        for path in self.named.values():
            find_audio_files(path)  # a folder that was asked for must be there and hold some
        yield from self._below(self.folder, "")
        for name, path in self.named.items():
            if not path.is_relative_to(self.folder):
                yield from self._below(path, f"{name}:")
        if self.split_from not in (None, "folder") and not self.split_column_seen:
            raise ValueError(
                f"split_from={self.split_from}: no clip has a column of this name; name one that "
                "metadata or the pattern has, or 'folder'"
            )

    def _below(self, root: Path, prefix: str) -> Iterator[Found]:
        contents = search_folder(root)
        files = contents.files
        if self.split_from == "folder":
            tops = {path.relative_to(root).parts[0] for path in files if path.parent != root}
            if not any(map(split_name, tops)):
                raise ValueError(
                    f"split_from=folder: {one_line(root)} has no folder train, valid or test; "
                    "make these, or pass split_from=null"
                )
        for found in _describe(root, files):
            yield self._clip(root, prefix, found) if isinstance(found, _Described) else found
        yield from _others(contents)

    def _clip(self, root: Path, prefix: str, found: _Described) -> Clip | SkippedClip:
        path, values, where = found
        below = path.relative_to(root)
        if self.names is not None:
            fields = self.names.match(below)
            if fields is None:
                return SkippedClip(
                    path, f"its name does not match the pattern {self.names.pattern!r}"
                )
            values |= fields
        # In train/a.wav the folder says the split, and nothing of the label.
        if self.label_from and not (self.split_from == "folder" and len(below.parts) == 2):
            values["label"] = path.parent.name
        if self.split_from == "folder":
            if len(below.parts) == 1 or split_name(below.parts[0]) is None:
                return SkippedClip(path, "lies in no folder of a split (train, valid or test)")
            values["split"] = below.parts[0]
        elif self.split_from:
            values.pop("split", None)
            if said := values.get(self.split_from):
                self.split_column_seen = True
                values["split"] = said
        for name, folder in self.named.items():
            if path.is_relative_to(folder):
                values["split"] = name
        if "valid" in self.named:
            values.setdefault("split", "train")
        span = Span(0.0, None, "")
        if self.parts and values.keys() & {"start", "end", "offset"}:
            try:
                span = take_span(values)
            except ValueError as error:
                return SkippedClip(path, f"{where}: {error}")
        id = prefix + below.as_posix() + span.suffix
        return make_clip(id, path, values, start=span.start, end=span.end, where=where)


def _others(contents: FolderContents) -> Iterator[SkippedClip | PassedOver]:
    """What a folder holds beside recordings."""
    for path, reason in contents.unusable.items():
        yield SkippedClip(path, reason)
    for path, what in contents.outputs.items():
        yield PassedOver(path, f"{what}, which this program wrote", int(not path.is_dir()))
    for suffix, every in sorted(contents.others.items()):
        paths = [path for path in every if path.name not in METADATA_NAMES]
        if not paths:
            continue
        named = f"files of the suffix {suffix}" if suffix else "files without a suffix"
        yield PassedOver(paths[0], f"{named} are not listed as audio", len(paths))


def _describe(root: Path, files: list[Path]) -> Iterator[_Described | SkippedClip | RowMatch]:
    """The files with what metadata says of them, and what is wrong with the metadata."""
    others = dict.fromkeys(files)
    for table in _metadata_files(root, files):
        names, rows, unmatched = FileNames(table.parent), 0, list[str]()
        try:
            for row in read_table(table, ("file_name",)):
                if isinstance(row, BadRow):
                    yield SkippedClip(table, str(row))
                    continue
                path = names.find(row.path)
                rows += 1
                if not path.is_relative_to(root) or not os.path.exists(str(path).replace("\0", "")):
                    unmatched.append(f"{row.path} in {row.where}")
                if not path.is_relative_to(root):
                    yield SkippedClip(
                        path, f"{row.where}: is outside of the folder {one_line(root)}"
                    )
                    continue
                others.pop(path, None)
                yield _Described(path, row.values, row.where)
        except NoPathColumn as error:  # a file of this name that is something else
            yield SkippedClip(table, error.reason)
        if unmatched:
            yield RowMatch(table, rows, len(unmatched), one_line(unmatched[0]))
    for path in others:
        yield _Described(path, {}, "")


def _metadata_files(root: Path, files: list[Path]) -> list[Path]:
    """Metadata in the folders that hold the files and in those above, the deepest first."""
    folders = {root}
    for file in files:
        folder = file.parent
        while folder not in folders:
            folders.add(folder)
            folder = folder.parent
    tables = []
    for folder in sorted(folders, key=lambda folder: (-len(folder.parts), folder.as_posix())):
        here = [folder / name for name in METADATA_NAMES if (folder / name).is_file()]
        if len(here) > 1:
            raise ValueError(f"{one_line(folder)} holds {' and '.join(METADATA_NAMES)}; keep one")
        tables += here
    return tables
