"""A lock is held by one process that lives, with flock and without, and says by whom."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from audiolm import locks
from audiolm.locks import FileLock

FORK = multiprocessing.get_context("fork")


@pytest.fixture(params=["flock", "no flock"])
def path(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a lock, on a file system that has flock or not; its file is there, as in a copy."""
    if request.param == "no flock":

        def missing(*_: Any) -> None:
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(locks.fcntl, "flock", missing)
        monkeypatch.setattr(locks, "_RENEWED", 0.05)
    (tmp_path / ".lock").touch()
    return tmp_path / ".lock"


def holder_in_another_process(path: Path) -> Any:
    """A process that holds the lock until it is killed."""

    def hold(ready: Any) -> None:
        assert FileLock(path).acquire(timeout=0)
        ready.set()
        time.sleep(100)

    ready = FORK.Event()
    process = FORK.Process(target=hold, args=(ready,))
    process.start()
    assert ready.wait(20)
    return process


def test_one_at_a_time_and_who_it_is(path: Path) -> None:
    other = holder_in_another_process(path)
    try:
        lock = FileLock(path)
        assert not lock.acquire(timeout=0.2, poll=0.05)
        assert lock.holder().startswith(f"process {other.pid} on ")
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.join()
    # Nobody is there any more, however it ended.
    assert lock.acquire(timeout=0)
    again = FileLock(path)
    assert not again.acquire(timeout=0)
    lock.release()
    lock.release()
    assert again.acquire(timeout=0)
    again.release()


def test_a_fork_does_not_hold_it_longer_than_its_parent(path: Path) -> None:
    lock = FileLock(path)
    assert lock.acquire(timeout=0)
    worker = FORK.Process(target=time.sleep, args=(100,))
    worker.start()
    lock.release()
    try:
        assert FileLock(path).acquire(timeout=0)
    finally:
        worker.kill()
        worker.join()


def marked(path: Path, seconds_ago: float, **changes: Any) -> None:
    """What a process without flock has left beside the lock."""
    owner = {"host": "elsewhere", "pid": 1, "began": "5", "since": "yesterday", "token": "a"}
    mark = path.with_name(".lock.held")
    mark.write_text(json.dumps(owner | changes))
    os.utime(mark, (time.time() - seconds_ago,) * 2)


@pytest.mark.parametrize("path", ["no flock"], indirect=True)
@pytest.mark.parametrize(
    ("seconds_ago", "changes", "free"),
    [
        (30, {}, False),  # of another machine, and alive a moment ago
        (90, {}, True),
        (0, {"host": locks.socket.gethostname(), "pid": 2**22 + 1}, True),
        (0, {"host": locks.socket.gethostname(), "pid": os.getppid()}, True),  # another by now
        (0, {"host": locks.socket.gethostname(), "pid": os.getppid(), "began": None}, False),
    ],
)
def test_what_was_left_is_not_waited_for(
    path: Path,
    seconds_ago: float,
    changes: dict[str, Any],
    free: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    marked(path, seconds_ago, **changes)
    lock = FileLock(path)
    assert lock.acquire(timeout=0) == free
    if free:
        assert "which is gone" in capsys.readouterr().err
        lock.release()
        assert not path.with_name(".lock.held").exists()
    else:
        assert lock.holder().endswith(", since yesterday")
    assert not list(path.parent.glob("*.tmp"))


@pytest.mark.parametrize("path", ["no flock"], indirect=True)
def test_a_damaged_mark_counts_until_it_is_old(path: Path) -> None:
    mark = path.with_name(".lock.held")
    mark.write_text("{")
    assert not FileLock(path).acquire(timeout=0)
    assert "does not say its name" in FileLock(path).holder()
    os.utime(mark, (time.time() - 90,) * 2)
    lock = FileLock(path)
    assert lock.acquire(timeout=0)
    lock.release()


@pytest.mark.parametrize("path", ["no flock"], indirect=True)
def test_a_holder_gives_signs_of_life(path: Path) -> None:
    lock = FileLock(path)
    assert lock.acquire(timeout=0)
    mark = path.with_name(".lock.held")
    os.utime(mark, (0, 0))
    end = time.monotonic() + 20
    while mark.stat().st_mtime == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert mark.stat().st_mtime > 0
    lock.release()


def test_a_real_process_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from audiolm.locks import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); assert lock.acquire(timeout=0)\n"
        "print('held', flush=True); time.sleep(100)"
    )
    path = tmp_path / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert not FileLock(path).acquire(timeout=0)
        other.kill()
        other.wait()
        lock = FileLock(path)
        assert lock.acquire(timeout=5, poll=0.01)
        lock.release()
