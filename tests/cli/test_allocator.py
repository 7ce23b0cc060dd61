"""In processes of their own: what is set holds for good."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from audiolm.cli import allocator

FAULTS = """
import resource, sys
import torch
from audiolm.cli.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def work():
    for _ in range(20):
        torch.ones(16, 2**20)
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

# How many heaps eight threads at a time leave.
HEAPS = """
import ctypes, sys, threading
from audiolm.cli.allocator import share_heap
if sys.argv[1] == "shared":
    assert share_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
all_there = threading.Barrier(8)
def work():
    all_there.wait()
    memory = libc.malloc(2**20)
    all_there.wait()
    libc.free(ctypes.c_void_p(memory))
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(allocator.ctypes, "CDLL", None)
    assert not allocator.keep_freed_memory()
    assert not allocator.share_heap()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_used_again() -> None:
    faults = [
        int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, how], capture_output=True, check=True
            ).stdout
        )
        for how in ("given back", "kept")
    ]
    assert faults[1] < 0.5 * faults[0]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
@pytest.mark.parametrize(("how", "most"), [("apart", 9), ("shared", 1)])
def test_threads_share_one_heap(tmp_path: Path, how: str, most: int) -> None:
    told = tmp_path / "heaps.xml"
    subprocess.run([sys.executable, "-c", HEAPS, how, str(told)], check=True)
    heaps = told.read_text().count("<heap nr=")
    assert heaps <= most and (how == "shared" or heaps > 1)
