"""Where clips come from: every source of recordings gives `Clip` records, and nothing else.

`prepare_store` takes any iterable of them, so another kind of source is one more function here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from audiolm.audio import find_audio_files

SPLIT_NAMES = ("train", "valid", "test")
"""Splits that a source may name. A clip without one is placed by the hash of its id."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording to be encoded.

    id: unique in its source and the same on every machine (for a folder: the path below it, with
    `/` between its parts). path: the audio file. split: "train", "valid", "test", or None to leave
    the choice to the hash of the id. label, text: what the source says about the clip, or None.
    Raises ValueError for an empty id and for a split of another name.
    """

    id: str
    path: Path
    split: str | None = None
    label: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError(f"{self.path}: a clip needs an id that is not empty")
        if self.split is not None and self.split not in SPLIT_NAMES:
            raise ValueError(
                f"{self.id}: split {self.split!r} is not one of {', '.join(SPLIT_NAMES)}; "
                "name one of these, or none to split by the hash of the id"
            )


def folder_clips(folder: str | Path) -> Iterator[Clip]:
    """Every audio file below `folder`, in sorted order; the id is the path below the folder.

    Raises FileNotFoundError or ValueError, at the first clip, for a folder that does not exist or
    holds no audio files.
    """
    root = Path(folder).resolve()
    for path in find_audio_files(root):
        yield Clip(id=path.relative_to(root).as_posix(), path=path)
