"""Work that is divided over processes or machines: which part of how many, and which are done.

A part that is done leaves a marker in the store's folder:

    part-0-of-2-1a2b3c4d5e.json      {"left_out": {"KEY OF THE AUDIO": "reason", ...}}

The digits are a hash of the plan, which says what each part has to do. The last part finds the
codes or the reason of everything, and finishes the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from audiolm.files import atomic_file
from audiolm.parallel import Part

_MARKER = re.compile(r"part-(\d+)-of-(\d+)-([0-9a-f]+)\.json")


def write_marker(folder: Path, part: Part, plan: str, skipped: Mapping[int, str]) -> Path:
    """Say that a part of a plan is done but for the audio of these keys, in place of its marker
    before; the marker's path."""
    name = f"part-{part.number}-of-{part.count}-{plan}.json"
    for path in folder.glob(f"part-{part.number}-of-{part.count}-*.json"):
        if path.name != name:
            path.unlink(missing_ok=True)
    entries = {f"{key:016x}": reason for key, reason in skipped.items()}
    with atomic_file(folder / name) as file:
        file.write(json.dumps({"left_out": entries}, indent=1).encode("ascii") + b"\n")
    return folder / name


def read_skipped(folder: Path, count: int, plan: str) -> dict[int, str]:
    """What the parts of a plan that are done skipped, by the key of its audio, with the reasons.

    Raises ValueError for a marker that cannot be read.
    """
    skipped: dict[int, str] = {}
    for path in sorted(folder.glob(f"part-*-of-{count}-{plan}.json")):
        try:
            marker = json.loads(path.read_text("ascii"))
            skipped |= {int(key, 16): str(why) for key, why in marker["left_out"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is damaged ({error}); delete it and run that part again"
            ) from error
    return skipped


def remove_markers(folder: Path) -> None:
    """Forget which parts are done: the store is."""
    for path in folder.glob("part-*.json"):
        if _MARKER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def unfinished_parts(folder: Path) -> str | None:
    """What a store whose parts are not all done lacks, and the remedy; None for one without parts.

    Where there are markers of several plans, the one of which the newest is counts.
    """
    markers = [
        (path.stat().st_mtime_ns, match)
        for path in folder.glob("part-*.json")
        if (match := _MARKER.fullmatch(path.name))
    ]
    if not markers:
        return None
    _, (_, count, plan) = max((time, match.groups()) for time, match in markers)
    done = {int(m[1]) for _, m in markers if (m[2], m[3]) == (count, plan)}
    missing = sorted(set(range(int(count))) - done)
    if not missing:
        return (
            f"all {count} parts are done, but the store is not finished; run prepare once more, "
            "it encodes nothing again"
        )
    return how_to_finish(int(count), missing)


def how_to_finish(count: int, missing: Iterable[int]) -> str:
    """Which parts are missing and what to do about it, in one line without the folder."""
    numbers = [str(number) for number in missing]
    shown = ", ".join(numbers[:8]) + (", ..." if len(numbers) > 8 else "")
    several = len(numbers) > 1
    return (
        f"part{'s' if several else ''} {shown} of {count} {'are' if several else 'is'} missing; "
        f"run prepare with {'--multirun ' if several else ''}num_parts={count} "
        f"part={','.join(numbers[:8])}"
        f"{',...' if len(numbers) > 8 else ''}, or put the files that "
        f"{'these wrote' if several else 'it wrote'} elsewhere into this folder and run any part "
        "again; without part, prepare encodes what is missing itself"
    )
