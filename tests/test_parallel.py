"""Worker processes do not touch what their parent left, and do not outlive it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from audiolm.parallel import worker_settings


class Cycle:
    """Garbage that only the collector finds; its end is seen."""

    ended: list[str] = []  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name, self.itself = name, self

    def __del__(self) -> None:
        Cycle.ended.append(self.name)


class Collecting(Dataset[Any]):
    """What was ended in this process when the collector has run."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> list[str]:
        gc.collect()
        return list(Cycle.ended)


def test_a_workers_collector_leaves_the_parents_objects_alone() -> None:
    Cycle.ended.clear()
    Cycle("before")
    settings = worker_settings(2)
    gc.disable()
    try:
        Cycle("late")  # garbage that is there at the fork
        loader = DataLoader(Collecting(), batch_size=None, collate_fn=list, **settings)
        assert [list(ended) for ended in loader] == [["before"], ["before"]]
    finally:
        gc.enable()
    gc.collect()
    assert Cycle.ended == ["before", "late"]


SCRIPT = """
import os, torch
from torch.utils.data import DataLoader, Dataset
from audiolm.parallel import worker_settings

class Large(Dataset):  # more than a pipe holds, so that a worker waits until it is taken
    def __len__(self):
        return 100
    def __getitem__(self, i):
        return os.getpid(), bytes(2**22)

batches = iter(DataLoader(Large(), batch_size=None, collate_fn=tuple, **worker_settings(2)))
print(next(batches)[0], next(batches)[0], flush=True)
input()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_workers_end_when_their_parent_is_killed() -> None:
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(set(workers)) == 2
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 30
    while any(map(lives, workers)):
        assert time.monotonic() < until, "a worker outlived its parent"
        time.sleep(0.1)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        # Ended, but nobody has asked how.
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
