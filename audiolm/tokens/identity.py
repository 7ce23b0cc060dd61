"""Which clips a store holds, whatever its folder is called and wherever the recordings lie.

The audio of a clip is known by its key: the hash of the decoded samples, which the shards keep.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.tokens.store import TokenStore

_SAMPLE = 256
_COLUMNS = ("id_hash", "split_hash", "split", "frames")


@dataclass(frozen=True)
class ClipSet:
    """The clips of a store, as little plain data.

    Attributes:
        count: how many.
        frames: of all.
        fingerprint: of ids, splits, groups, lengths and audio: where it is the same, so is what
            any step is trained on.
        sample: the 256 smallest keys of their audio, by which other sets are compared.
    """

    count: int
    frames: int
    fingerprint: str
    sample: tuple[int, ...]

    @classmethod
    def of(cls, store: TokenStore) -> ClipSet:
        """That of a store.

        Raises:
            ValueError: as `audio_keys`.
        """
        columns = [np.asarray(store.index[name]) for name in _COLUMNS]
        return cls.of_keys(audio_keys(store), store.frames, columns)

    @classmethod
    def of_keys(
        cls, keys: NDArray[np.uint64], frames: NDArray[np.int64], columns: Sequence[NDArray[Any]]
    ) -> ClipSet:
        """That of clips by the keys of their audio, their lengths, and what else tells them."""
        digest = hashlib.sha256()
        for column in (*columns, keys):
            digest.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).data)
        smallest = np.unique(keys)[:_SAMPLE].tolist()
        return cls(len(keys), int(frames.sum()), digest.hexdigest()[:16], tuple(smallest))

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> ClipSet:
        """The one that `settings` gave."""
        sample = tuple(int(key, 16) for key in settings["sample"])
        return cls(settings["count"], settings["frames"], settings["fingerprint"], sample)

    def settings(self) -> dict[str, Any]:
        """As data that any file can hold."""
        sample = [f"{key:016x}" for key in self.sample]
        return {**vars(self), "sample": sample}

    def share_in(self, keys: NDArray[np.uint64]) -> float:
        """About which share of these clips is among those of the keys, from 0 to 1."""
        found = np.isin(np.array(self.sample, np.uint64), keys)
        return float(found.mean()) if len(found) else 0.0


def audio_keys(store: TokenStore) -> NDArray[np.uint64]:
    """The key of each clip's audio, in the order of the index.

    Raises:
        ValueError: the records of a shard are missing or damaged.
    """
    keys = np.zeros(len(store), np.uint64)
    shard_of = np.asarray(store.index["shard"])
    offsets = np.asarray(store.index["offset"])
    for number, name in enumerate(store.shards):
        rows = np.flatnonzero(shard_of == number)
        known = _keys_by_offset((store.path / name).with_suffix(".jsonl"))
        try:
            keys[rows] = [known[offset] for offset in offsets[rows].tolist()]
        except KeyError as error:
            raise _damaged(store.path, name, f"nothing at row {error}") from error
    return keys


def _keys_by_offset(file: Path) -> dict[int, int]:
    try:
        with file.open(encoding="ascii") as lines:
            records = map(json.loads, lines)
            return {record["offset"]: int(record["key"], 16) for record in records}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(file.parent, file.name, str(error)) from error


def _damaged(store: Path, name: str, why: str) -> ValueError:
    return ValueError(
        f"{store}: the records of {name} are missing or damaged ({why}); copy the whole store "
        f"again, or run prepare again"
    )
