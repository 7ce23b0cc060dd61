"""Sound that this program has written: no recordings, so nothing to train on.

It is recognised by what lies beside it, since a folder may have been moved or renamed:

    store.json                       a token store, whose listen/ holds decoded clips
    .hydra/ and checkpoints/         a run, with the samples that it generated
    melodies.json                    the melodies of the demo
    NAME.json beside NAME.wav        a sample, with its checkpoint and seed
"""

from __future__ import annotations

import json
from pathlib import Path

_LARGEST = 2**20  # bytes of a JSON file that is looked at


def output_folder(folder: Path) -> str:
    """What of this program a folder is; nothing for another one."""
    if str(_read(folder / "store.json").get("format")) == "audiolm tokens":
        return "a token store"
    if (folder / ".hydra").is_dir() and (folder / "checkpoints").is_dir():
        return "a run"
    if "num_melodies" in _read(folder / "melodies.json"):
        return "melodies of the demo"
    return ""


def is_sample(path: Path) -> bool:
    """Whether a file is a generated sample, with its settings beside it."""
    return (
        path.suffix == ".wav"
        and {"checkpoint", "sampling", "seed"} <= _read(path.with_suffix(".json")).keys()
    )


def _read(path: Path) -> dict[str, object]:
    """A small JSON object, or an empty one where there is none."""
    try:
        if path.stat().st_size > _LARGEST:
            return {}
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
