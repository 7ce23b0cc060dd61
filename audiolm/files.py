"""Files that appear whole or not at all, and the small things that name, hash and write them."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it takes ``path``'s place when all went well.

    Makes the folder. On any error the temporary file is removed and ``path`` is as it was; one of
    writing is an OSError that names ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is not None:
            raise
        # From a write, which does not know its file: most often, the disk is full.
        raise OSError(f"{path} could not be written ({error}); free some space there") from error
    finally:
        temporary.unlink(missing_ok=True)


def one_line(path: Path | str) -> str:
    """The path with line breaks and undecodable bytes escaped, so that a message stays a line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


def nearest(name: str, names: Sequence[str]) -> str:
    """ ", did you mean ...?" with the name most like it, or nothing."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f", did you mean {near[0]}?" if near else ""


def hash64(text: str) -> int:
    """A 64-bit hash of a string, the same on every platform, in every process (BLAKE2b).

    Among 4 million strings, the chance that any two collide is below one in a million.
    """
    data = text.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that appears under its name whole and on disk, or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def json_line(record: dict[str, Any]) -> bytes:
    """A record as one line of JSON. ASCII: names of files need not be valid Unicode."""
    return json.dumps(record).encode("ascii") + b"\n"
