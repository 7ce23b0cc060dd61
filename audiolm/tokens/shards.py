"""Shards: what encoding leaves on disk as it proceeds. Each is written once and never changed.

A shard is two files in the store's folder:

    shard-20260131T120000-1f2e3d4c.npy      codes (frames, K): one row a frame, clip after clip
    shard-20260131T120000-1f2e3d4c.jsonl    one record a clip, in the order of the rows

Frame-major, so that a window of a clip is one contiguous read from the memory-mapped file. Codes
are found again by the key of the audio they were made from, whatever its file is called. The codes
get their final name first and the records last, so a shard with a records file is whole: a process
killed at any moment leaves whole shards and rubbish that a later run removes. Names are unique
(time and random digits), so shards of several runs or machines can share a folder.

The sections of long recordings lie in files of the same kind, `section-*`, until all of a
recording are there and become a clip of a shard (see `audiolm.tokens.encoding.sections`).

Letters: K codebooks, T codec frames of a clip, V codes in a codebook.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.files import atomic_file, json_line

CLIPS, SECTIONS = "shard", "section"
"""What the names of shards of whole clips, and of sections, begin with."""

MAX_BYTES = 64 * 2**20
"""Of a shard's codes: it is closed when it has so many."""

ENCODED = np.dtype(
    [
        ("key", np.uint64),  # of what the codes were made from
        ("shard", np.uint32),  # number of the shard, in the order of names
        ("offset", np.int64),  # first row in the shard
        ("frames", np.int64),
    ]
)
"""One clip found in a shard, as `scan_shards` gives it."""


def code_dtype(codebook_size: int) -> np.dtype[Any]:
    """The smallest unsigned integer that holds the codes 0 .. V-1."""
    for dtype in (np.uint8, np.uint16, np.uint32):
        if codebook_size - 1 <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise ValueError(f"codebook size {codebook_size} is above the limit of 2**32")


def map_array(path: Path) -> NDArray[Any]:
    """An array on disk, memory-mapped. Raises OSError, and ValueError for what is none."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # what numpy raises for a damaged header depends on its bytes
        reason = str(error).partition("\n")[0][:200]
        raise ValueError(f"{path} is not an array that numpy reads ({reason})") from error
    return array


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left: temporary files, and codes without their records.

    Only while no other process writes to the folder.
    """
    for path in folder.glob(".*.tmp"):
        path.unlink()
    for kind in (CLIPS, SECTIONS):
        for path in folder.glob(f"{kind}-*.npy"):
            if not path.with_suffix(".jsonl").exists():
                path.unlink()


def remove_shards(folder: Path, kind: str) -> None:
    """Remove all shards of a kind. A kill in between leaves whole ones and codes without records.

    Only while no other process writes to the folder.
    """
    for path in folder.glob(f"{kind}-*.jsonl"):
        path.unlink()
        path.with_suffix(".npy").unlink()


def write_shard(
    folder: Path,
    kind: str,
    clips: Sequence[tuple[int, Sequence[NDArray[Any]]]],
) -> None:
    """Write clips as one shard, each a key and its rows of codes (frames, K) in chunks.

    All chunks are of one dtype and K. They are written one by one, so that they may be
    memory-mapped and larger than memory.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    name = f"{kind}-{stamp}-{secrets.token_hex(4)}"
    lengths = [sum(len(chunk) for chunk in chunks) for _, chunks in clips]
    like = clips[0][1][0]
    header = {
        "descr": np.lib.format.dtype_to_descr(like.dtype),
        "fortran_order": False,
        "shape": (sum(lengths), like.shape[1]),
    }
    with atomic_file(folder / f"{name}.npy") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _, chunks in clips:
            for chunk in chunks:
                file.write(np.ascontiguousarray(chunk).data)
    with atomic_file(folder / f"{name}.jsonl") as file:
        offset = 0
        for (key, _), frames in zip(clips, lengths, strict=True):
            file.write(json_line({"key": f"{key:016x}", "frames": frames, "offset": offset}))
            offset += frames


class ShardWriter:
    """Collects encoded clips and writes them as shards.

    max_seconds: `close_if_due` writes the shard once this much time has passed since the one
    before, so a kill loses at most that much work. max_bytes: the same for its codes, which are
    held in memory until then.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        num_codebooks: int,
        codebook_size: int,
        *,
        max_seconds: float,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._num_codebooks = num_codebooks
        self._codebook_size = codebook_size
        self._dtype = code_dtype(codebook_size)
        self._max_seconds = max_seconds
        self._max_bytes = max_bytes
        self._clips: list[tuple[int, list[NDArray[Any]]]] = []
        self._bytes = 0
        self._opened = time.monotonic()

    def add(self, clips: Sequence[tuple[int, NDArray[Any]]]) -> None:
        """Add (key, codes (K, T)) pairs. All of them end in the same shard.

        Raises ValueError where the codes are not those of this store's codec.
        """
        rows = []
        for key, codes in clips:
            if codes.ndim != 2 or codes.shape[0] != self._num_codebooks or codes.shape[1] == 0:
                raise ValueError(
                    f"the codec gave codes of shape {codes.shape}, where "
                    f"({self._num_codebooks}, at least 1) is needed"
                )
            low, high = int(codes.min()), int(codes.max())
            if low < 0 or high >= self._codebook_size:
                raise ValueError(
                    f"the codec gave codes from {low} to {high}, outside its "
                    f"0 .. {self._codebook_size - 1}"
                )
            rows.append((key, [np.ascontiguousarray(codes.T, dtype=self._dtype)]))
        self._clips.extend(rows)
        self._bytes += sum(chunk.nbytes for _, (chunk,) in rows)

    def close_if_due(self) -> None:
        """Write the shard if it is old or large enough."""
        if self._bytes >= self._max_bytes or time.monotonic() - self._opened >= self._max_seconds:
            self.close()

    def close(self) -> None:
        """Write what was added since the last shard, if anything; later clips start another."""
        if self._clips:
            write_shard(self._folder, self._kind, self._clips)
        self._clips = []
        self._bytes = 0
        self._opened = time.monotonic()


@dataclass(frozen=True)
class EncodedClips:
    """Every clip in the shards of a kind in a folder.

    names: of the shards. rows: an `ENCODED` array, sorted by key.
    """

    folder: Path
    names: list[str]
    rows: NDArray[Any]

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For each key, the row that holds its codes, or -1."""
        if not len(self.rows):
            return np.full(len(keys), -1, np.int64)
        found = np.minimum(np.searchsorted(self.rows["key"], keys), len(self.rows) - 1)
        return np.where(self.rows["key"][found] == keys, found, -1)

    def codes(self, row: int) -> NDArray[Any]:
        """The codes (frames, K) of a row, memory-mapped."""
        of = self.rows[row]
        file = self.folder / f"{self.names[int(of['shard'])]}.npy"
        shard = map_array(file)
        first = int(of["offset"])
        return shard[first : first + int(of["frames"])]


def scan_shards(
    folder: Path, num_codebooks: int, codebook_size: int, kind: str = CLIPS
) -> EncodedClips:
    """Read the records of every shard of a kind in `folder`.

    Raises ValueError for a shard whose two files do not fit together or hold codes of another
    kind: whole shards are never left so by this code, killed or not.
    """
    names = sorted(path.stem for path in folder.glob(f"{kind}-*.jsonl"))
    parts = [np.empty(0, ENCODED)]
    for number, name in enumerate(names):
        shard = folder / f"{name}.jsonl"
        clips = []
        end = 0
        try:
            with open(shard, encoding="ascii") as file:
                for line in file:
                    record = json.loads(line)
                    frames, offset = record["frames"], record["offset"]
                    clips.append((int(record["key"], 16), number, offset, frames))
                    end = max(end, offset + frames)
            codes = map_array(shard.with_suffix(".npy"))
            whole = codes.shape == (end, num_codebooks) and codes.dtype == code_dtype(codebook_size)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(shard, str(error)) from error
        if not whole:
            raise _damaged(shard, f"codes {codes.dtype} {codes.shape} for {end} frames of records")
        parts.append(np.array(clips, ENCODED))
    rows = np.concatenate(parts)
    # Stable: of two shards that hold the same clip, the first by name counts.
    return EncodedClips(folder, names, rows[np.argsort(rows["key"], kind="stable")])


def _damaged(shard: Path, why: str) -> ValueError:
    return ValueError(
        f"{shard.parent}: shard {shard.stem} is damaged ({why}); "
        f"delete {shard.stem}.npy and {shard.name} and run prepare again"
    )


class StoreShards:
    """The shards of a store, of both kinds.

    Args:
        store: its folder.
        num_codebooks: K.
        codebook_size: V.
    """

    def __init__(self, store: Path, num_codebooks: int, codebook_size: int) -> None:
        self.store = store
        self._codes = num_codebooks, codebook_size

    def scan(self, kind: str) -> EncodedClips:
        """What the shards of a kind hold now."""
        return scan_shards(self.store, *self._codes, kind)

    def writer(self, kind: str, max_seconds: float) -> ShardWriter:
        """Of new shards of a kind."""
        return ShardWriter(self.store, kind, *self._codes, max_seconds=max_seconds)
