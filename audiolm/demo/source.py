"""The demo set as a source of clips, like a folder of recordings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from audiolm.datasets.clip import Found
from audiolm.datasets.folder import folder_clips
from audiolm.demo.melodies import make_melodies


def demo_clips(
    folder: str | Path,
    num_melodies: int = 700,
    *,
    pattern: str | None = None,
    label_from: str | None = None,
    split_from: str | None = None,
    valid: str | Path | None = None,
    test: str | Path | None = None,
) -> Iterator[Found]:
    """The melodies in `folder`, once all that are missing are written.

    Args:
        folder: of the melodies; made where it is not there.
        num_melodies: how many.
        pattern, label_from, split_from, valid, test: see `folder_clips`.

    Raises:
        ValueError, OSError: as `make_melodies` and `folder_clips`.
    """
    make_melodies(folder, num_melodies)
    return folder_clips(
        folder,
        pattern=pattern,
        label_from=label_from,
        split_from=split_from,
        valid=valid,
        test=test,
    )
