"""The audio files of a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from audiolm.audio.formats.containers import CONTAINER_SUFFIXES
from audiolm.audio.formats.sndfile import SNDFILE_SUFFIXES
from audiolm.audio.outputs import is_sample, output_folder
from audiolm.files import one_line, user_path

AUDIO_SUFFIXES: frozenset[str] = SNDFILE_SUFFIXES | CONTAINER_SUFFIXES
"""Suffixes (lower case) of the files that `find_audio_files` lists; contents decide the format.

Those that need FFmpeg are listed also where there is none, so that such files are skipped with
that reason and not passed over in silence.
"""


@dataclass
class FolderContents:
    """What a search of a folder found.

    files: of the suffixes of audio. unusable: what has such a suffix and is no file, and folders
        that may not be read, each with the reason. outputs: folders and files that this program
        wrote, and what they are. others: the rest, by their suffix in lower case.
    """

    files: list[Path] = field(default_factory=list)
    unusable: dict[Path, str] = field(default_factory=dict)
    outputs: dict[Path, str] = field(default_factory=dict)
    others: dict[str, list[Path]] = field(default_factory=dict)


def search_folder(folder: Path | str, *, outputs: bool = False) -> FolderContents:
    """What lies below ``folder``; `files` are sorted by their path relative to it (with ``/``).

    Files and folders whose name starts with a dot are skipped. Links to folders are followed; each
    real folder is listed once (under its own name rather than a link's), which ends loops and keeps
    one recording from turning up twice. A folder below that this program wrote is not entered, nor
    are samples listed that it generated, unless ``outputs``; ``folder`` itself may be one.

    Raises:
        FileNotFoundError, NotADirectoryError: no such folder.
        ValueError: no audio file in it.
    """
    folder = user_path(folder)
    if not folder.exists():
        raise FileNotFoundError(f"no such folder: {one_line(folder)}")
    if not folder.is_dir():
        raise NotADirectoryError(f"not a folder: {one_line(folder)}")
    found = FolderContents()
    seen: set[str] = set()
    folders, links = [folder], list[Path]()
    while folders or links:
        # Links wait until every real folder has been seen.
        current = folders.pop() if folders else links.pop(0)
        real = os.path.realpath(current)
        if real in seen:
            continue
        seen.add(real)
        if not outputs and current != folder and (what := output_folder(current)):
            found.outputs[current] = what
            continue
        try:
            for entry in sorted(current.iterdir(), key=lambda entry: entry.name):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    (links if entry.is_symlink() else folders).append(entry)
                else:
                    _sort_in(entry, found, outputs)
        except OSError as error:
            if current == folder:
                raise
            found.unusable[current] = f"not readable: {error.strerror}"
    if not found.files:
        remedy = ""
        if found.outputs:
            path, what = next(iter(found.outputs.items()))
            remedy = f"; passed over {one_line(path)}: {what}, which this program wrote"
        raise ValueError(
            f"no audio files in {one_line(folder)}: "
            f"looked for {' '.join(sorted(AUDIO_SUFFIXES))}, hidden files skipped{remedy}"
        )
    found.files.sort(key=lambda file: file.relative_to(folder).as_posix())
    return found


def _sort_in(entry: Path, found: FolderContents, outputs: bool) -> None:
    suffix = entry.suffix.lower()
    if suffix not in AUDIO_SUFFIXES:
        found.others.setdefault(suffix, []).append(entry)
    elif not entry.is_file():
        dangling = entry.is_symlink() and not entry.exists()
        found.unusable[entry] = "a link to nothing" if dangling else "not a regular file"
    elif not outputs and is_sample(entry):
        found.outputs[entry] = "a sample"
    else:
        found.files.append(entry)


def find_audio_files(folder: Path | str) -> list[Path]:
    """The `files` of `search_folder`, with those that this program wrote."""
    return search_folder(folder, outputs=True).files
