"""In processes of their own: what is set holds for good."""

from __future__ import annotations

import platform
import subprocess
import sys

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


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(allocator.ctypes, "CDLL", None)
    assert not allocator.keep_freed_memory()


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
