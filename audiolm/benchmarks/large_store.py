"""A token store of random codes of any size, which takes the memory of one shard and of the index.

As if of the bundled codec: two codebooks of 256 codes at 50 frames a second, 0.36 MB an hour.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from audiolm.files import atomic_file, hash64
from audiolm.tokens.store import INDEX, begin_store, commit_index

CODEBOOKS, SIZE, FRAME_RATE = 2, 256, 50.0
SHARD_FRAMES = 2**25  # 64 MiB


def make_large_store(
    folder: Path, hours: float, shortest: float, longest: float, identity: dict[str, Any]
) -> None:
    """Clips of `shortest` to `longest` seconds, all lengths as often, `hours` in all."""
    folder.mkdir(parents=True)
    begin_store(folder, identity, CODEBOOKS, SIZE, FRAME_RATE)
    rng = np.random.default_rng(0)
    low, high = (max(1, round(seconds * FRAME_RATE)) for seconds in (shortest, longest))
    count = max(1, round(hours * 3600 * FRAME_RATE / ((low + high) / 2)))
    index = np.zeros(count, INDEX)
    index["frames"] = rng.integers(low, high + 1, count)
    # Clip after clip into shards of the same size, which hold whole clips.
    end = np.cumsum(index["frames"])
    shard = (end - 1) // SHARD_FRAMES
    first = np.searchsorted(shard, np.arange(int(shard[-1]) + 1))
    begin = end - index["frames"]
    index["shard"] = shard
    index["offset"] = begin - begin[first][shard]
    for clip in range(count):
        index["id_hash"][clip] = hash64(clip_id(clip))
    index["split_hash"] = index["id_hash"]
    names = [f"shard-{number:06d}" for number in range(len(first))]
    for number, name in enumerate(names):
        last = first[number + 1] if number + 1 < len(first) else count
        frames = int(index["frames"][first[number] : last].sum())
        with atomic_file(folder / f"{name}.npy") as file:
            np.save(file, rng.integers(0, SIZE, (frames, CODEBOOKS), np.uint8))
        print(f"\r{number + 1} of {len(names)} shards", end="", file=sys.stderr)
    commit_index(folder, names, index, records(index["frames"]))
    print(f"\n{folder}: {count:,} clips", file=sys.stderr)


def clip_id(clip: int) -> str:
    return f"{clip:09d}.wav"


def records(frames: Any) -> Iterator[dict[str, Any]]:
    for clip, length in enumerate(frames.tolist()):
        duration = length / FRAME_RATE
        yield {"id": clip_id(clip), "frames": length, "duration": duration, "split": None}
