"""A lock between processes and machines, that says who holds it and is not held by the dead.

    .lock          locked by the system (flock), which lets go of it when its process ends; in it,
                   for those who wait: who holds it
    .lock.held     where the file system has no flock (some of Lustre, NFS, FUSE): there while it is
                   held; its holder renews its time of change every few seconds

A file that is merely there is not a lock: a folder that was copied with its locks is free.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
import time
import uuid
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: the file alone
    fcntl = None  # type: ignore[assignment]

_RENEWED = 5.0  # seconds between two signs of life of one who holds a lock without flock
_DEAD = 60.0  # seconds without one after which nobody holds it
_NO_FLOCK = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_TAKEN = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}

_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """A lock for one process at a time; not for threads of one, nor to be taken twice.

    Args:
        path: of the lock's file, in a folder that is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None  # its descriptor, while the system locks it
        self._mark: _Mark | None = None  # while a file alone does

    def acquire(self, timeout: float | None = None, poll: float = 0.25) -> bool:
        """Take it; False where others held it for all of `timeout` seconds.

        Args:
            timeout: None waits for ever.
            poll: seconds between two looks.

        Raises:
            OSError: the folder cannot be written.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._try():
            if end is not None and time.monotonic() >= end:
                return False
            time.sleep(poll)
        _held.add(self)
        return True

    def release(self) -> None:
        """Let go of it; nothing happens where it is not held."""
        if self._mark is not None:
            self._mark.remove()
        if self._file is not None:
            # Closing alone leaves it to a fork that has not closed its own copy yet.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
        self._file = self._mark = None

    def holder(self) -> str:
        """Who holds it, in words: "process 1234 on HOST, since 10:03:20"."""
        for file in (_marked(self.path), self.path):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return _in_words(json.loads(file.read_text(encoding="utf-8")))
        return "one that does not say its name"

    def _try(self) -> bool:
        by_system = None if fcntl is None else self._flock()
        if by_system is None:
            self._mark = _Mark.make(_marked(self.path))
            return self._mark is not None
        return by_system

    def _flock(self) -> bool | None:
        """Whether the system gave the lock; None where the file system has no such locks."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:
            if not self.path.exists():
                raise
            # Another user's, which can be locked all the same.
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno in _TAKEN:
                return False
            if error.errno in _NO_FLOCK:
                return None
            raise
        self._file = file
        with contextlib.suppress(OSError):  # it is for reading only, or the disk is full
            os.ftruncate(file, 0)
            os.pwrite(file, _owner().encode(), 0)
        return True

    def _forget(self) -> None:
        """In a process that was forked from the one that holds it: it is the parent's."""
        if self._file is not None:
            os.close(self._file)
        self._file = self._mark = None


class _Mark:
    """The file of a lock without flock, while it is held: renewed by a thread of the holder's."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self._over = threading.Event()
        threading.Thread(target=self._renew, daemon=True).start()

    @classmethod
    def make(cls, path: Path) -> _Mark | None:
        """The mark, or None where somebody else's is there."""
        text = _owner()
        if _is_left(path):
            _take_away(path)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            return None
        return cls(path, text)

    def remove(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            if self._path.read_text(encoding="utf-8") == self._text:
                self._path.unlink()

    def _renew(self) -> None:
        while not self._over.wait(_RENEWED):
            with contextlib.suppress(OSError):
                os.utime(self._path)


def _is_left(path: Path) -> bool:
    """Whether a mark is of a process that is gone: of this machine, or without a sign of life."""
    probe = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        if owner["host"] == socket.gethostname() and not _runs(owner):
            return True
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        pass  # being written, or damaged: its age says which
    try:
        # Both times are the file system's own, whatever the clocks of the machines say.
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime > _DEAD
    except FileNotFoundError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def _take_away(path: Path) -> None:
    """Remove a mark that was left; if another process was faster, its new mark stays."""
    aside = path.with_name(f".{uuid.uuid4().hex}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        if not _is_left(aside):
            with contextlib.suppress(OSError):
                os.link(aside, path)
        else:
            left = "a process"
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                left = _in_words(json.loads(aside.read_text(encoding="utf-8")))
            print(f"{path} was left by {left}, which is gone: not waited for", file=sys.stderr)
        aside.unlink()


def _marked(path: Path) -> Path:
    return path.with_name(f"{path.name}.held")


def _owner() -> str:
    """Who this process is."""
    return json.dumps(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "began": _began(os.getpid()),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "token": uuid.uuid4().hex,
        }
    )


def _runs(owner: dict[str, object]) -> bool:
    """Whether an owner on this machine runs still."""
    pid = int(str(owner["pid"]))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return owner["began"] in (None, _began(pid))  # the number may be another process's by now


def _began(pid: int) -> str | None:
    """When a process began, in the system's own count; None where that is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _in_words(owner: dict[str, object]) -> str:
    return f"process {owner['pid']} on {owner['host']}, since {owner['since']}"


def _forget_all() -> None:
    for lock in _held:
        lock._forget()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
