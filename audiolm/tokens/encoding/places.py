"""Where the codes of a collection go, and whether a store that is there is the collection's.

    data/tokens/NAME-HASH      NAME of the recordings' folder; a hash of where it lies, seen from
                               data/tokens, and of the codec

So a project that is moved as a whole finds its codes. Where the recordings alone were moved, the
store is known by its clips.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audiolm.datasets.checks.report import CheckReport
from audiolm.files import counted, one_line, user_path
from audiolm.tokens.identity import audio_keys
from audiolm.tokens.store import TokenStore, read_header

if TYPE_CHECKING:
    from audiolm.codec import Codec

_LOOKED_AT = 32  # clips of a store that is compared with recordings


def named_after(path: str | Path, *more: str | int) -> str:
    """NAME-HASH: of a folder or file, with a hash of its absolute path and of what else counts."""
    absolute = user_path(path).resolve()
    return _named(absolute, absolute.as_posix(), *more)


def default_store_dir(root: str | Path, path: str | Path, codec: Codec) -> Path:
    """Where the codes of the recordings at `path` go by default: `root/NAME-HASH`.

    Another codec, or another folder of the same name, has another store. A folder below the working
    folder is known by its way from `root`, any other one by its absolute path. A store of before,
    whose hash is of the absolute path in any case, is found, and so is one whose recordings have
    been moved since to `path`.
    """
    root, absolute = user_path(root), user_path(path).resolve()
    of_codec = codec.fingerprint, codec.num_codebooks
    by_path = root / named_after(absolute, *of_codec)
    if not absolute.is_relative_to(Path.cwd()):
        usual = by_path
    else:
        way = Path(os.path.relpath(absolute, root.resolve()))
        usual = root / _named(absolute, way.as_posix(), *of_codec)
    there = [folder for folder in (usual, by_path) if (folder / "store.json").is_file()]
    return next(iter(there), None) or _moved_here(root, absolute, codec) or usual


def _named(absolute: Path, *what: str | int) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", absolute.name).strip("-.") or "store"
    return f"{name}-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:10]}"


def _moved_here(root: Path, path: Path, codec: Codec) -> Path | None:
    """The store of the codec whose recordings are gone from where they lay, and are at `path`."""
    for file in sorted(root.glob("*/store.json")):
        try:
            header = read_header(file.parent)
            held = header and (header["codec"]["fingerprint"], header["num_codebooks"])
            if held == (codec.fingerprint, codec.num_codebooks):
                store = TokenStore(file.parent)
                if _lay_elsewhere(store, path):
                    return store.path
        except (OSError, ValueError, KeyError):
            continue  # unfinished, damaged, or of another version: not one to go on with
    return None


def _lay_elsewhere(store: TokenStore, path: Path) -> bool:
    """Whether files that a store's clips are of are gone, and lie under the same names at `path`.

    By some of the clips. What is in the files is compared when they are prepared.
    """
    if store.way_to_source is not None and (store.path / store.way_to_source).exists():
        return False  # they were moved together
    clips = np.unique(np.linspace(0, len(store) - 1, _LOOKED_AT).astype(int)).tolist()
    records = [store.record(clip) for clip in clips]
    return all(
        (path / record["id"]).is_file() and not Path(record["path"]).exists() for record in records
    )


def removed_clips(store_dir: Path, report: CheckReport, source: str) -> int:
    """How many clips of a finished store are not in a collection, and would leave the store.

    Args:
        store_dir: of the store; 0 where there is none, or none that can be read.
        report: of the check of the whole collection.
        source: where the collection lies.

    Raises:
        ValueError: the store is another collection's: from another place, and more than half of
            its clips would leave it.
    """
    try:
        store = TokenStore(store_dir)
        held = audio_keys(store)
    except (OSError, ValueError):  # what is wrong with it is said, or mended, when it is written to
        return 0
    gone = ~np.isin(held, report.audio["key"])
    if store.source != source and gone.mean() > 0.5 and not _lies_in(store, source):
        raise ValueError(
            f"{store_dir} holds {counted(len(store), 'clip')} of "
            f"{one_line(store.source or 'elsewhere')}, and {one_line(source)} has "
            f"{int((~gone).sum()):,} of them; the others would be lost: name another data.store, "
            f"or delete that folder"
        )
    return int(gone.sum())


def _lies_in(store: TokenStore, source: str) -> bool:
    """Whether a store that does not say what it is of is of recordings at `source`."""
    return store.source is None and Path(store.record(0)["path"]).is_relative_to(source)
