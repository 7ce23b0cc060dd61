"""What is left once everything is encoded: sections are joined, and the index is written.

Letters: K codebooks, T codec frames.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.datasets.checks.report import CheckReport
from audiolm.datasets.clip import SPLIT_NAMES, SkippedClip
from audiolm.files import atomic_file, hash64
from audiolm.tokens.encoding.plan import Plan
from audiolm.tokens.parts import remove_markers
from audiolm.tokens.shards import (
    CLIPS,
    MAX_BYTES,
    SECTIONS,
    EncodedClips,
    StoreShards,
    write_shard,
)
from audiolm.tokens.store import INDEX, commit_index


def join_sections(
    shards: StoreShards, plan: Plan, reasons: Mapping[int, str]
) -> tuple[EncodedClips, tuple[int, ...]]:
    """Make clips of the long recordings, once the sections of all are there.

    Args:
        shards: of the store.
        plan: of all parts.
        reasons: why there are no codes, by the key of the audio.

    Returns:
        the clips in shards, and the numbers of the parts that have work to do before.
    """
    sections = shards.scan(SECTIONS)
    held = shards.scan(CLIPS)
    wanted = held.find(plan.keys) < 0
    wanted &= ~np.isin(plan.keys, np.array([*reasons], np.uint64))
    missing = tuple(sorted({owner for owner, _ in plan.missing(wanted, sections)}))
    if wanted.any() and not missing:
        _join(shards.store, plan, wanted, sections)
        held = shards.scan(CLIPS)
    return held, missing


def _join(store: Path, plan: Plan, wanted: NDArray[np.bool_], sections: EncodedClips) -> None:
    """Make clips in shards of the recordings that are wanted, all of whose sections are there."""
    clips: list[tuple[int, list[NDArray[Any]]]] = []
    size = 0
    for recording in np.flatnonzero(wanted).tolist():
        chunks = [sections.codes(row) for row in plan.find_sections(recording, sections).tolist()]
        clips.append((int(plan.keys[recording]), chunks))
        size += sum(chunk.nbytes for chunk in chunks)
        if size >= MAX_BYTES:
            write_shard(store, CLIPS, clips)
            clips, size = [], 0
    if clips:
        write_shard(store, CLIPS, clips)


def finish_store(
    store: Path,
    report: CheckReport,
    split_hashes: NDArray[np.uint64],
    held: EncodedClips,
    reasons: Mapping[int, str],
    source: str,
) -> None:
    """Put the new index in place.

    Args:
        store: the folder.
        report: of the check of all clips.
        split_hashes: of each clip that the check kept.
        held: the clips in shards.
        reasons: why there are no codes, by the key of the audio.
        source: where the recordings lie.

    Raises:
        ValueError: there are no codes at all.
    """
    rows = held.find(report.audio["key"])
    skipped = all_skipped(report, reasons, rows)
    _write_skipped(store, skipped)
    kept = np.flatnonzero(rows >= 0)
    if not len(kept):
        raise ValueError(
            f"none of the {len(rows)} files can be encoded; the first, "
            f"{skipped[len(report.skipped)]}"
        )
    index, shards = _index(report, split_hashes, kept, held, rows[kept])
    commit_index(store, shards, index, _records(report, kept, index["frames"]), source)
    remove_markers(store)


def _split(report: CheckReport, i: int) -> str | None:
    """The split that the source names for clip i, or for the one that it shares its split with."""
    return report.kept[int(report.split_as[i])].split


def _index(
    report: CheckReport,
    split_hashes: NDArray[np.uint64],
    kept: NDArray[np.int64],
    held: EncodedClips,
    rows: NDArray[np.int64],
) -> tuple[NDArray[Any], list[str]]:
    """The `INDEX` rows of the clips that are kept, and the names of the shards that hold them."""
    found = held.rows[rows]
    used, shard = np.unique(found["shard"], return_inverse=True)
    index = np.zeros(len(kept), INDEX)
    index["shard"] = shard
    index["offset"] = found["offset"]
    index["frames"] = found["frames"]
    index["split_hash"] = split_hashes[kept]
    for row, i in enumerate(kept.tolist()):
        index["id_hash"][row] = hash64(report.kept[i].id)
        split = _split(report, i)
        index["split"][row] = 0 if split is None else 1 + SPLIT_NAMES.index(split)
    return index, [held.names[number] for number in used]


def _records(
    report: CheckReport, kept: NDArray[np.int64], frames: NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    durations = report.durations
    for i, count in zip(kept.tolist(), frames.tolist(), strict=True):
        clip = report.kept[i]
        yield {
            "id": clip.id,
            "path": str(clip.path),
            "start": clip.start,
            "end": clip.end,
            "duration": float(durations[i]),
            "frames": count,
            "split": _split(report, i),
            "label": clip.label,
            "text": clip.text,
            "columns": dict(clip.columns),
        }


def all_skipped(
    report: CheckReport, reasons: Mapping[int, str], rows: NDArray[np.int64]
) -> tuple[SkippedClip, ...]:
    """What the check skipped, and the clips of which there are reasons why there are no codes."""
    keys = report.audio["key"].tolist()
    now = [
        SkippedClip(report.kept[i].path, reasons[keys[i]])
        for i in np.flatnonzero(rows < 0).tolist()
        if keys[i] in reasons
    ]
    return (*report.skipped, *now)


def _write_skipped(store: Path, skipped: Sequence[SkippedClip]) -> None:
    entries = [{"path": str(bad.path), "reason": bad.reason} for bad in skipped]
    with atomic_file(store / "left_out.json") as file:
        file.write(json.dumps(entries, indent=1).encode("ascii") + b"\n")
