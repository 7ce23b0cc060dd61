"""Files that appear whole or not at all, and the small things that name, hash and write them."""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_REMEDIES = {
    errno.EACCES: "choose a folder that you may write to, or have its rights changed",
    errno.EPERM: "choose a folder that you may write to, or have its rights changed",
    errno.EROFS: "it is read-only; choose another folder",
    errno.EFBIG: "no file there may be so large; choose another folder",
    errno.ENOTDIR: "a file stands where a folder is needed; move it, or choose another folder",
    errno.EEXIST: "a file stands where a folder is needed; move it, or choose another folder",
    errno.EISDIR: "a folder stands there; choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "allow more open files, by ulimit -n",
    errno.EIO: "check the disk",
}


def not_written(path: Path | str, error: OSError) -> OSError:
    """An error of writing as one that names the file, and what to do; of the same kind."""
    kind = type(error) if type(error).__module__ == "builtins" else OSError
    # What is short of space may not say so: a library may have seen fewer bytes written.
    remedy = _REMEDIES.get(error.errno or 0, "free some space there")
    return kind(f"{one_line(path)} could not be written ({error.strerror or error}); {remedy}")


def check_writable(path: Path, setting: str, *, folder: bool, given: bool = True) -> None:
    """Refuse a file or a folder that could not be made, before hours of work for it.

    Args:
        path: what is to be written.
        setting: that names it, for the message.
        folder: whether it is a folder that files are to be written to.
        given: whether the user gave it, rather than that it is where things go by default.

    Raises:
        OSError: with what is in the way.
    """
    named = f"{setting}={one_line(path)}" if given else one_line(path)
    remedy = "name another folder" if given else f"pass {setting}={'DIR' if folder else 'FILE'}"
    if not folder and path.is_dir():
        raise IsADirectoryError(f"{named} is a folder; give the name of a file")
    made = next(
        p for p in ((path,) if folder else ()) + tuple(path.absolute().parents) if p.exists()
    )
    if not made.is_dir():
        raise NotADirectoryError(f"{named}: {one_line(made)} is a file; {remedy}")
    if not os.access(made, os.W_OK | os.X_OK):
        raise PermissionError(f"{named}: {one_line(made)} may not be written to; {remedy}")


def user_path(path: str | Path) -> Path:
    """A path that a user gave: ~ and ~NAME are home folders, as in a shell.

    A shell itself replaces them at the beginning of a word only, and not in data.path=~/x. A name
    that begins so and is no user's stays what it is.

    Raises:
        ValueError: it is not a path.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"{short(repr(path))} is not a path; give it as text, or as a Path")
    return Path(os.path.expanduser(path))


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it takes ``path``'s place when all went well.

    Makes the folder. On any error the temporary file is removed and ``path`` is as it was; one of
    writing is an OSError that names ``path`` and what to do.
    """
    path = user_path(path)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        folders = (str(folder) for folder in path.parents)
        # None where a write failed, which does not know its file.
        if error.filename not in (None, str(temporary), str(path), *folders):
            raise
        raise not_written(path, error) from error
    finally:
        with suppress(OSError):  # there is no such folder, or it may not be written to
            temporary.unlink(missing_ok=True)


def one_line(path: Path | str) -> str:
    """The path with line breaks and undecodable bytes escaped, so that a message stays a line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


def short(text: str, most: int = 60) -> str:
    """The text on one line, cut after `most` characters: a damaged file can hold any length."""
    return one_line(text[:most]) + ("..." if len(text) > most else "")


def nearest(name: str, names: Sequence[str]) -> str:
    """ ", did you mean ...?" with the name most like it, or nothing."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f", did you mean {near[0]}?" if near else ""


def counted(count: int, noun: str) -> str:
    """ "1 clip", "2,000 clips": a number of things whose plural ends in s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` to fill; it takes its name when all went well.

    On any error it is removed, and nothing is at ``path``.

    Raises:
        FileExistsError: something is there already.
        OSError: it cannot be written.
    """
    path = user_path(path)
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        pass  # an empty one, whose place it takes
    elif path.exists() or path.is_symlink():
        raise FileExistsError(f"{one_line(path)} is there already; name a new folder, or delete it")
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        temporary.mkdir(parents=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None or error.filename2 is not None:
            raise not_written(path, error) from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, as hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def json_line(record: dict[str, Any]) -> bytes:
    """A record as one line of JSON. ASCII: names of files need not be valid Unicode."""
    return json.dumps(record).encode("ascii") + b"\n"
