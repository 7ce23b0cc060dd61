"""The audio files of a folder."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from audiolm.audio.formats.containers import CONTAINER_SUFFIXES
from audiolm.audio.formats.sndfile import SNDFILE_SUFFIXES
from audiolm.files import one_line, user_path

log = logging.getLogger(__name__)

AUDIO_SUFFIXES: frozenset[str] = SNDFILE_SUFFIXES | CONTAINER_SUFFIXES
"""Suffixes (lower case) of the files that `find_audio_files` lists; contents decide the format.

Those that need FFmpeg are listed also where there is none, so that such files are skipped with
that reason and not passed over in silence.
"""


def find_audio_files(folder: Path | str) -> list[Path]:
    """Audio files below ``folder``, sorted by their path relative to it (with ``/``).

    Files and folders whose name starts with a dot are skipped. Links to folders are followed; each
    real folder is listed once (under its own name rather than a link's), which ends loops and keeps
    one recording from turning up twice. A subfolder that may not be read is skipped with a
    warning.

    Raises:
        FileNotFoundError, NotADirectoryError: no such folder.
        ValueError: no audio file in it.
    """
    folder = user_path(folder)
    if not folder.exists():
        raise FileNotFoundError(f"no such folder: {one_line(folder)}")
    if not folder.is_dir():
        raise NotADirectoryError(f"not a folder: {one_line(folder)}")
    files: list[Path] = []
    seen: set[str] = set()
    folders, links = [folder], list[Path]()
    while folders or links:
        # Links wait until every real folder has been seen.
        current = folders.pop() if folders else links.pop(0)
        real = os.path.realpath(current)
        if real in seen:
            continue
        seen.add(real)
        try:
            for entry in sorted(current.iterdir(), key=lambda entry: entry.name):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    (links if entry.is_symlink() else folders).append(entry)
                elif entry.suffix.lower() not in AUDIO_SUFFIXES:
                    continue
                elif entry.is_file():
                    files.append(entry)
                else:
                    log.warning("skipped %s: a link to nothing, or no file", one_line(entry))
        except OSError as error:
            if current == folder:
                raise
            log.warning("skipped the folder %s: %s", one_line(current), error.strerror)
    if not files:
        raise ValueError(
            f"no audio files in {one_line(folder)}: "
            f"looked for {' '.join(sorted(AUDIO_SUFFIXES))}, hidden files skipped"
        )
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())
