"""Shards: what encoding leaves on disk as it goes on. Each is written once and never changed.

A shard is two files in the store's folder:

    shard-20260131T120000-1f2e3d4c.npy      codes (frames, K): one row a frame, clip after clip
    shard-20260131T120000-1f2e3d4c.jsonl    one record a clip, in the order of the rows

Frame-major, so that a window of a clip is one contiguous read from the memory-mapped file. The
codes get their final name first and the records last, so a shard with a records file is whole: a
process killed at any moment leaves whole shards and rubbish that the next run removes. Names are
unique (time and random digits), so shards of several runs or machines can share a folder.

Letters: K codebooks, T codec frames of a clip, V codes in a codebook.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from audiolm.audio import replacing

ENCODED = np.dtype(
    [
        ("key", np.uint64),  # source_key of the file the codes were made from
        ("shard", np.uint32),  # number of the shard, in the order of names
        ("offset", np.int64),  # first row in the shard
        ("frames", np.int64),
        ("duration", np.float64),  # seconds
    ]
)
"""One clip found in a shard, as `scan_shards` gives it."""


def code_dtype(codebook_size: int) -> np.dtype[Any]:
    """The smallest unsigned integer that holds the codes 0 .. V-1."""
    for dtype in (np.uint8, np.uint16, np.uint32):
        if codebook_size - 1 <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise ValueError(f"codebook size {codebook_size} is above the limit of 2**32")


def hash64(text: str) -> int:
    """A 64-bit hash of a string, the same on every platform, in every process (BLAKE2b)."""
    data = text.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def source_key(clip_id: str, size: int, mtime_ns: int) -> int:
    """What says that codes belong to a file as it is now: its id, bytes and time of last change.

    64 bits: among 4 million clips, the chance that any two collide is below one in a million.
    """
    return hash64(f"{clip_id}\0{size}\0{mtime_ns}")


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that appears under its name whole and on disk, or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process left: temporary files, and codes without their records.

    Only for the process that holds the store's lock.
    """
    for path in folder.glob(".*.tmp"):
        path.unlink()
    for path in folder.glob("shard-*.npy"):
        if not path.with_suffix(".jsonl").exists():
            path.unlink()


class ShardWriter:
    """Collects encoded clips and writes them as shards.

    max_seconds: `close_if_due` writes the shard once this much time has passed since the one
    before, so a kill loses at most that much work. max_bytes: the same for its codes, which are
    held in memory until then.
    """

    def __init__(
        self,
        folder: Path,
        num_codebooks: int,
        codebook_size: int,
        *,
        max_seconds: float,
        max_bytes: int = 64 * 2**20,
    ) -> None:
        self._folder = folder
        self._num_codebooks = num_codebooks
        self._codebook_size = codebook_size
        self._dtype = code_dtype(codebook_size)
        self._max_seconds = max_seconds
        self._max_bytes = max_bytes
        self._clips: list[tuple[dict[str, Any], NDArray[Any]]] = []
        self._bytes = 0
        self._opened = time.monotonic()

    def add(self, clips: Sequence[tuple[dict[str, Any], NDArray[Any]]]) -> None:
        """Add (record, codes (K, T)) pairs. All of them end in the same shard.

        Raises ValueError where the codes are not those of this store's codec.
        """
        rows = []
        for record, codes in clips:
            if codes.ndim != 2 or codes.shape[0] != self._num_codebooks or codes.shape[1] == 0:
                raise ValueError(
                    f"{record['id']}: codes of shape {codes.shape}, where "
                    f"({self._num_codebooks}, at least 1) is needed"
                )
            low, high = int(codes.min()), int(codes.max())
            if low < 0 or high >= self._codebook_size:
                raise ValueError(
                    f"{record['id']}: codes from {low} to {high}, outside the codebook's "
                    f"0 .. {self._codebook_size - 1}"
                )
            rows.append((record, np.ascontiguousarray(codes.T, dtype=self._dtype)))
        self._clips.extend(rows)
        self._bytes += sum(codes.nbytes for _, codes in rows)

    def close_if_due(self) -> None:
        """Write the shard if it is old or large enough."""
        if self._bytes >= self._max_bytes or time.monotonic() - self._opened >= self._max_seconds:
            self.close()

    def close(self) -> None:
        """Write what was added since the last shard, if anything; later clips start another."""
        if self._clips:
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            name = f"shard-{stamp}-{secrets.token_hex(4)}"
            with atomic_file(self._folder / f"{name}.npy") as file:
                np.save(file, np.concatenate([codes for _, codes in self._clips]))
            with atomic_file(self._folder / f"{name}.jsonl") as file:
                offset = 0
                for record, codes in self._clips:
                    line = record | {"frames": len(codes), "offset": offset}
                    file.write(json_line(line))
                    offset += len(codes)
        self._clips = []
        self._bytes = 0
        self._opened = time.monotonic()


def json_line(record: dict[str, Any]) -> bytes:
    """A record as one line of JSON. ASCII: names of files need not be valid Unicode."""
    return json.dumps(record).encode("ascii") + b"\n"


@dataclass(frozen=True)
class EncodedClips:
    """Every clip in the shards of a folder.

    names: of the shards. rows: an `ENCODED` array, sorted by key.
    """

    names: list[str]
    rows: NDArray[Any]

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For each source key, the row that holds its clip, or -1."""
        if not len(self.rows):
            return np.full(len(keys), -1, np.int64)
        found = np.minimum(np.searchsorted(self.rows["key"], keys), len(self.rows) - 1)
        return np.where(self.rows["key"][found] == keys, found, -1)


def scan_shards(folder: Path, num_codebooks: int, codebook_size: int) -> EncodedClips:
    """Read the records of every shard in `folder`.

    Raises ValueError for a shard whose two files do not fit together or hold codes of another
    kind: whole shards are never left so by this code, killed or not.
    """
    names = sorted(path.stem for path in folder.glob("shard-*.jsonl"))
    parts = [np.empty(0, ENCODED)]
    for number, name in enumerate(names):
        shard = folder / f"{name}.jsonl"
        clips = []
        end = 0
        try:
            with open(shard, encoding="ascii") as file:
                for line in file:
                    record = json.loads(line)
                    key = source_key(record["id"], record["size"], record["mtime_ns"])
                    frames, offset = record["frames"], record["offset"]
                    clips.append((key, number, offset, frames, record["duration"]))
                    end = max(end, offset + frames)
            codes = np.load(shard.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
            whole = codes.shape == (end, num_codebooks) and codes.dtype == code_dtype(codebook_size)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(shard, str(error)) from error
        if not whole:
            raise _damaged(shard, f"codes {codes.dtype} {codes.shape} for {end} frames of records")
        parts.append(np.array(clips, ENCODED))
    rows = np.concatenate(parts)
    # Stable: of two shards that hold the same clip, the first by name counts.
    return EncodedClips(names, rows[np.argsort(rows["key"], kind="stable")])


def _damaged(shard: Path, why: str) -> ValueError:
    return ValueError(
        f"{shard.parent}: shard {shard.stem} is damaged ({why}); "
        f"delete {shard.stem}.npy and {shard.name} and run prepare again"
    )
