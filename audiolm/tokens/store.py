"""The token store: codes of a collection of recordings, in a folder.

    store.json              what the store holds: codec, K, V, frame rate, totals, its files
    index-<hash>.npy        one `INDEX` row a clip, sorted by the clip's id
    clips-<hash>.jsonl      one record a clip, in the same order
    shard-*.npy, *.jsonl    the codes and what they are of (shards.py)
    section-*.npy, *.jsonl  while it is encoded: parts of long recordings (sections.py)
    part-*.json             while it is encoded in parts: which are done (parts.py)
    left_out.json           files that are not in the store, each with its reason

store.json is the only file that is ever replaced, and replacing it is the moment at which a new
index counts. Until the first index is written it says `"complete": false`, and the store does not
open: a store that opens has every clip that its index promises.

Opening reads store.json and maps the index; records are mapped when first asked for. Codes are
read from their files rather than mapped: mapped pages would count as the memory of the process,
which would grow to that of the whole store over a pass.

Letters: K codebooks, T codec frames, V codes in a codebook.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audiolm.files import atomic_file, json_line, short, user_path
from audiolm.tokens.parts import unfinished_parts
from audiolm.tokens.shards import CLIPS, SECTIONS, code_dtype, map_array

FORMAT = "audiolm tokens"
VERSION = 2

INDEX = np.dtype(
    [
        ("id_hash", np.uint64),  # hash64 of the clip's id
        ("split_hash", np.uint64),  # hash64 of what is split off together: its group, else its id
        ("shard", np.uint32),  # number in store.json's list of shards
        ("split", np.uint8),  # the split its source names: 0 none, or 1 + its index in SPLIT_NAMES
        ("offset", np.int64),  # first row in the shard
        ("frames", np.int64),
        ("record", np.int64),  # first byte of its line in the records file
    ]
)
"""What training needs to know of a clip, as fixed-size numbers."""

# Of the 1,024 files that a process may have open (Linux' default).
_MAX_OPEN_SHARDS = 256


class _Shard(NamedTuple):
    """Codes of a shard on disk: (frames, K) rows of `dtype` from byte `offset` of the file on."""

    file: int  # descriptor
    offset: int
    dtype: np.dtype[Any]
    rows: int


class TokenStore:
    """A finished store, read-only.

    Picklable: a copy in another process maps the files itself. It reads the index that was current
    when it was opened, also where `prepare` has put a newer one in place meanwhile.

    codec: the identity of the codec that made the codes. num_codebooks K, codebook_size V,
    frame_rate in frames a second, total_frames, hours. shards: names of the files of codes.
    source: where the recordings lay when they were encoded; None in stores of before.
    way_to_source: the same, seen from the store.
    Raises FileNotFoundError where there is no store, ValueError where it is unfinished, damaged or
    of another version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = user_path(path)
        header = read_header(self.path)
        if header is None:
            raise FileNotFoundError(f"{self.path}: no token store here; run prepare to make one")
        if not header["complete"]:
            raise ValueError(
                f"{self.path}: the store is unfinished, "
                + (
                    unfinished_parts(self.path)
                    or "its encoding was stopped; run prepare again, it resumes where it stopped"
                )
            )
        self.codec: dict[str, Any] = header["codec"]
        self.num_codebooks: int = header["num_codebooks"]
        self.codebook_size: int = header["codebook_size"]
        self.frame_rate: float = header["frame_rate"]
        self.total_frames: int = header["total_frames"]
        self.hours: float = header["hours"]
        self.source: str | None = header.get("source")
        self.way_to_source: str | None = header.get("way_to_source")
        self._num_clips: int = header["num_clips"]
        self._index_name: str = header["index"]["name"]
        self._records_name: str = header["records"]["name"]
        self.shards: list[str] = [shard["name"] for shard in header["shards"]]
        self._open: OrderedDict[int, _Shard] = OrderedDict()
        self._check_files([header["index"], header["records"], *header["shards"]])

    def __len__(self) -> int:
        """Number of clips."""
        return self._num_clips

    @cached_property
    def index(self) -> NDArray[Any]:
        """The `INDEX` rows, sorted by the clips' ids, memory-mapped."""
        try:
            index = map_array(self.path / self._index_name)
        except ValueError as error:
            raise self._damaged(str(error)) from error
        if index.dtype != INDEX or index.shape != (len(self),):
            raise self._damaged(f"{self._index_name} is not an index of {len(self)} clips")
        return index

    @cached_property
    def frames(self) -> NDArray[np.int64]:
        """Frames of each clip, shape (len(self),)."""
        return np.ascontiguousarray(self.index["frames"])

    def codes(self, clip: int) -> NDArray[Any]:
        """All codes of a clip, shape (K, T)."""
        return self.read(clip, 0, int(self.frames[clip]))

    def read(self, clip: int, start: int, length: int) -> NDArray[Any]:
        """`length` frames of a clip from frame `start`, shape (K, length).

        Read-only, in the store's own unsigned integers.
        Raises ValueError for a range outside the clip.
        """
        row = self.index[clip]
        frames, offset = int(row["frames"]), int(row["offset"])
        shard = self._shard(int(row["shard"]))
        if not (0 <= frames <= shard.rows and 0 <= offset <= shard.rows - frames):
            raise self._damaged(f"clip {clip} is not within its shard")
        if not 0 <= start <= start + length <= frames:
            raise ValueError(
                f"frames {start} to {start + length} of clip {clip} of {self.path}, "
                f"which has {frames}"
            )
        frame_bytes = self.num_codebooks * shard.dtype.itemsize
        first = shard.offset + (offset + start) * frame_bytes
        # By position: processes forked from this one share the descriptors.
        codes = np.frombuffer(os.pread(shard.file, length * frame_bytes, first), shard.dtype)
        return codes.reshape(length, self.num_codebooks).T

    def record(self, clip: int) -> dict[str, Any]:
        """What is known of a clip: id, path, start and end in seconds (end None: the file's),
        duration in seconds, frames, split, label, text, and columns (what else its source says)."""
        if not 0 <= clip < len(self):
            raise IndexError(f"clip {clip} of {self.path}, which has {len(self)}")
        starts = self.index["record"]
        end = int(starts[clip + 1]) if clip + 1 < len(self) else len(self._records)
        try:
            record = json.loads(bytes(self._records[int(starts[clip]) : end]))
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"the record of clip {clip} is not JSON") from error
        if not isinstance(record, dict):
            raise self._damaged(f"the record of clip {clip} is not an object")
        return record

    @cached_property
    def _records(self) -> NDArray[np.uint8]:
        # Mapped, not opened: processes forked from this one share no position in a file.
        return np.memmap(self.path / self._records_name, np.uint8, "r")

    def _shard(self, number: int) -> _Shard:
        """A shard, opened on first use; the oldest one is closed."""
        shard = self._open.get(number)
        if shard is None:
            if number >= len(self.shards):
                raise self._damaged(f"its index names shard {number} of {len(self.shards)}")
            path = self.path / self.shards[number]
            try:
                codes: Any = map_array(path)  # checks the header
            except ValueError as error:
                raise self._damaged(str(error)) from error
            of_store = codes.ndim == 2 and codes.shape[1] == self.num_codebooks
            if not of_store or codes.dtype != code_dtype(self.codebook_size):
                raise self._damaged(f"{path.name} holds {codes.dtype} {codes.shape}")
            shard = _Shard(os.open(path, os.O_RDONLY), codes.offset, codes.dtype, len(codes))
            self._open[number] = shard
            if len(self._open) > _MAX_OPEN_SHARDS:
                os.close(self._open.popitem(last=False)[1].file)
        return shard

    def __del__(self) -> None:
        for shard in self.__dict__.get("_open", {}).values():
            os.close(shard.file)

    def _check_files(self, files: list[dict[str, Any]]) -> None:
        with os.scandir(self.path) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
        for file in files:
            if sizes.get(file["name"]) != file["bytes"]:
                raise self._damaged(
                    f"{short(str(file['name']))} should have {file['bytes']} bytes and has "
                    f"{sizes.get(file['name'], 'none, it is missing')}"
                )

    def _damaged(self, why: str) -> ValueError:
        return ValueError(f"{self.path}: {why}; the store is damaged, run prepare again")

    def __getstate__(self) -> dict[str, Any]:
        lazy = ("index", "frames", "_records")
        state = {name: value for name, value in self.__dict__.items() if name not in lazy}
        return state | {"_open": OrderedDict()}


def read_header(folder: Path) -> dict[str, Any] | None:
    """store.json of a store, or None where there is none.

    Raises ValueError where it is not one, or is of another version.
    """
    file = folder / "store.json"
    try:
        header = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(
            f"{file} is not valid JSON ({error}); delete {folder} and run prepare again"
        ) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{file} does not describe a token store; choose another folder")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{file} is of version {json.dumps(header.get('version'))[:20]}, this program reads "
            f"{VERSION}; run prepare into another folder"
        )
    if wrong := _wrong_key(header):
        raise ValueError(
            f"{file} is damaged: it has no {wrong} that could be one; delete {folder} and run "
            "prepare again"
        )
    return header


def _wrong_key(header: dict[str, Any]) -> str:
    """The first entry of store.json that is missing or of another kind, or nothing."""
    checks = _BEGUN | (_COMPLETE if header.get("complete") else {})
    return next((key for key, holds in checks.items() if not holds(header.get(key))), "")


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value) and value < 2**63


def _is_file(value: Any) -> bool:
    """Whether it names a file of the store's own folder, and its size."""
    if not isinstance(value, dict) or not isinstance(value.get("bytes"), int):
        return False
    name = value.get("name")
    return isinstance(name, str) and name == os.path.basename(name) != ""


def _is_codec(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("fingerprint"), str)


_BEGUN: dict[str, Callable[[Any], bool]] = {
    "complete": lambda value: isinstance(value, bool),
    "codec": _is_codec,
    "num_codebooks": lambda value: _is_count(value) and value > 0,
    "codebook_size": lambda value: _is_count(value) and 0 < value <= 2**32,
    "frame_rate": lambda value: _is_number(value) and value > 0,
}
_COMPLETE: dict[str, Callable[[Any], bool]] = {
    "num_clips": _is_count,
    "total_frames": _is_count,
    "hours": _is_number,
    "index": _is_file,
    "records": _is_file,
    "shards": lambda value: isinstance(value, list) and all(map(_is_file, value)),
}


def begin_store(
    folder: Path,
    identity: dict[str, Any],
    num_codebooks: int,
    codebook_size: int,
    frame_rate: float,
) -> None:
    """Make `folder` the store of a codec, or check that it is.

    Raises ValueError where it holds codes of another codec, or codes of which nothing says where
    they are from.
    """
    header = read_header(folder)
    if header is not None:
        _same_codec(folder, header["codec"], header["num_codebooks"], identity, num_codebooks)
        return
    if any(next(folder.glob(f"{kind}-*"), None) is not None for kind in (CLIPS, SECTIONS)):
        raise ValueError(
            f"{folder} holds codes but no store.json that names their codec; "
            "delete it or choose another folder, and run prepare again"
        )
    _write_header(
        folder,
        {
            "format": FORMAT,
            "version": VERSION,
            "complete": False,
            "codec": identity,
            "num_codebooks": num_codebooks,
            "codebook_size": codebook_size,
            "frame_rate": frame_rate,
        },
    )


def commit_index(
    folder: Path,
    shards: list[str],
    rows: NDArray[Any],
    records: Iterable[dict[str, Any]],
    source: str | None = None,
) -> None:
    """Write a new index and put it in place of the one before.

    shards: names, without suffix, that the rows' `shard` counts in. rows: an `INDEX` array sorted
    by id, of which this fills in `record`. records: one a row, in the same order. source: where
    the recordings lie.
    The records file depends on nothing but the clips, not on how they lie in shards.
    """
    header = read_header(folder)
    assert header is not None, "begin_store comes first"
    # The names hold a hash of the content, so that they are known only after writing.
    written = hashlib.sha256()
    position = 0
    with atomic_file(folder / "clips.jsonl") as file:
        for row, record in enumerate(records):
            rows["record"][row] = position
            line = json_line(record)
            file.write(line)
            written.update(line)
            position += len(line)
    records_name = f"clips-{written.hexdigest()[:16]}.jsonl"
    os.replace(folder / "clips.jsonl", folder / records_name)

    index_name = f"index-{hashlib.sha256(rows.tobytes()).hexdigest()[:16]}.npy"
    with atomic_file(folder / index_name) as file:
        np.save(file, rows)

    total_frames = int(rows["frames"].sum())
    _write_header(
        folder,
        header
        | {
            "complete": True,
            "source": source,
            "way_to_source": None if source is None else os.path.relpath(source, folder.resolve()),
            "num_clips": len(rows),
            "total_frames": total_frames,
            "hours": total_frames / header["frame_rate"] / 3600,
            "index": _name_and_bytes(folder, index_name),
            "records": _name_and_bytes(folder, records_name),
            "shards": [_name_and_bytes(folder, f"{name}.npy") for name in shards],
        },
    )
    # One index before this one stays, for processes that were started with it.
    keep = {index_name, records_name}
    if header["complete"]:
        keep |= {header["index"]["name"], header["records"]["name"]}
    for path in [*folder.glob("index-*.npy"), *folder.glob("clips*.jsonl")]:
        if path.name not in keep:
            path.unlink()


def check_codec(store: TokenStore, identity: dict[str, Any]) -> None:
    """Raise ValueError unless the codec of this identity made the store's codes."""
    num_codebooks = identity.get("num_codebooks", store.num_codebooks)
    _same_codec(store.path, store.codec, store.num_codebooks, identity, num_codebooks)


def _same_codec(
    folder: Path,
    held: dict[str, Any],
    held_codebooks: int,
    given: dict[str, Any],
    given_codebooks: int,
) -> None:
    if held["fingerprint"] != given["fingerprint"] or held_codebooks != given_codebooks:
        raise ValueError(
            f"{folder} holds codes of codec {held['fingerprint']} with {held_codebooks} codebooks, "
            f"this codec is {given['fingerprint']} with {given_codebooks}; "
            "use the codec that made the store, or run prepare into another folder"
        )


def _name_and_bytes(folder: Path, name: str) -> dict[str, Any]:
    return {"name": name, "bytes": (folder / name).stat().st_size}


def _write_header(folder: Path, header: dict[str, Any]) -> None:
    with atomic_file(folder / "store.json") as file:
        file.write(json.dumps(header, indent=1).encode("ascii") + b"\n")
