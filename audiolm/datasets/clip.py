"""What every source of recordings gives: clips, and what cannot be one with its reason.

A source is a function that returns `Iterator[Found]`, that is of clips and of:

    SkippedClip    a row or file that cannot be used, and stops no other
    PassedOver     what is no recording, for the report
    RowMatch       how many rows of a table name a file

Sources are:

    folders.py       folder_clips       a folder, with or without metadata beside the files
    manifest.py      manifest_clips     a list of files, or of parts of files
    public_sets.py   librispeech_clips, ...
    huggingface.py   huggingface_clips

What makes the whole source
unusable (no such folder, a table without the needed column) is a ValueError or OSError, at the
latest when the first clip is asked for or, where only the end tells, after the last.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from audiolm.audio import AUDIO_SUFFIXES, AudioError

FoundT = TypeVar("FoundT", bound="Found")

SPLIT_NAMES = ("train", "valid", "test")
"""Splits that a source may name. A clip without one is placed by the hash of its id."""

# The words that Hugging Face's own loaders know.
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev"), "valid"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
# In this order: what Hugging Face's audiofolder, NeMo and Common Voice call what was said.
_TEXT_COLUMNS = ("text", "transcription", "transcript", "sentence")


@dataclass(frozen=True, slots=True)
class SkippedClip:
    """A file that is not in the store, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return str(AudioError(self.path, self.reason))


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Files that were not looked at as recordings, and why.

    path: one of them, or the folder that holds them. files: how many; 0: nobody counted.
    """

    path: Path
    reason: str
    files: int = 0

    def __str__(self) -> str:
        return str(AudioError(self.path, self.reason))


@dataclass(frozen=True, slots=True)
class RowMatch:
    """How many rows of a table that lies in a folder of recordings name none of its files.

    example: the first that does not, with its line.
    """

    table: Path
    rows: int
    unmatched: int
    example: str


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording, or a part of one, to be encoded.

    id: unique in its source and the same on every machine (for a folder: the path below it, with
    `/` between its parts). path: the audio file. start, end: seconds into it; end None is its end.
    split: "train", "valid", "test", or None to leave the choice to the hash. label, text: what the
    source says about the clip, or None. columns: what else it says (speaker, album, ...), by name.
    Raises ValueError for an empty id, for a split of another name and for times outside the file.
    """

    id: str
    path: Path
    start: float = 0.0
    end: float | None = None
    split: str | None = None
    label: str | None = None
    text: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError(f"{self.path}: a clip needs an id that is not empty")
        if self.split is not None and self.split not in SPLIT_NAMES:
            raise ValueError(
                f"{self.id}: split {self.split!r} is not one of {', '.join(SPLIT_NAMES)}; "
                "name one of these, or none to split by the hash of the id"
            )
        if not 0 <= self.start < float("inf"):
            raise ValueError(f"{self.id}: start {self.start} s must be finite and not negative")
        if self.end is not None and not self.start < self.end < float("inf"):
            raise ValueError(
                f"{self.id}: end {self.end} s must be finite and after the start, {self.start} s"
            )

    def value(self, column: str) -> str | None:
        """What the source says under this name: label, text, split or one of `columns`."""
        if column in ("label", "text", "split"):
            found: str | None = getattr(self, column)
            return found
        return self.columns.get(column)


def is_recording(path: Path) -> bool:
    """Whether there is a file at ``path`` of a suffix of audio: a table is none, nor is a row."""
    try:
        return path.suffix.lower() in AUDIO_SUFFIXES and path.is_file()
    except (OSError, ValueError):  # the latter for a path with a zero byte
        return False


def split_name(name: str) -> str | None:
    """The split that a collection means by `name`, or None: "dev-clean" is "valid".

    The first word counts, in any case: train, training; valid, validation, val, dev; test, testing,
    eval, evaluation.
    """
    words = "".join(c if c.isalpha() else " " for c in name.casefold()).split()
    return _SPLIT_WORDS.get(words[0]) if words else None


def make_clip(
    id: str,
    path: Path,
    values: Mapping[str, str],
    *,
    start: float = 0.0,
    end: float | None = None,
    where: str = "",
) -> Clip | SkippedClip:
    """The clip of a file of which a source says `values`, by column; empty ones say nothing.

    The columns label, text (or transcription, transcript, sentence) and split are the clip's own.
    SkippedClip where the file is not there or its split has an unknown name (see `split_name`);
    `where` in the source that is ("line 7 of clips.csv") goes before the reason.
    """
    prefix = f"{where}: " if where else ""
    if reason := _unusable(path):
        return SkippedClip(path, prefix + reason)
    columns = {name: said for name, value in values.items() if (said := value.strip())}
    text = next((columns.pop(name) for name in _TEXT_COLUMNS if name in columns), None)
    label, split = columns.pop("label", None), columns.pop("split", None)
    if split is not None and split_name(split) is None:
        return SkippedClip(path, f"{prefix}split {split!r} is not one of train, valid and test")
    known = split and split_name(split)
    return Clip(id, path, start, end, known, label, text, columns)


Found = Clip | SkippedClip | PassedOver | RowMatch
"""What a source gives."""


def without_repeats(clips: Iterable[FoundT]) -> Iterator[FoundT | SkippedClip]:
    """The clips, with any whose id was there before skipped."""
    seen: set[str] = set()
    for clip in clips:
        if isinstance(clip, Clip):
            if clip.id in seen:
                yield SkippedClip(
                    clip.path, f"given twice: another clip before it has id {clip.id!r}"
                )
                continue
            seen.add(clip.id)
        yield clip


def _unusable(path: Path) -> str | None:
    """Why there is no file to read at `path`, or None."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return "no such file" if isinstance(error, FileNotFoundError) else f"{error.strerror}"
    except ValueError:  # NUL in it
        return "not a path"
    if stat.S_ISDIR(mode):
        return "is a folder"
    return None if stat.S_ISREG(mode) else "not a regular file"
