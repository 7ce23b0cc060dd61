"""SIGTERM in the middle of writing leaves nothing half there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

WRITER = """
import os, signal, sys
from pathlib import Path
from audiolm.cli.termination import interrupt_on_sigterm
from audiolm.files import atomic_file, replacing

interrupt_on_sigterm()
if sys.argv[1] == "replacing":
    with replacing(Path("a")) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)
elif sys.argv[1] == "atomic_file":
    with atomic_file(Path("a")) as file:
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGTERM)
else:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        print("still here")
"""


@pytest.mark.parametrize("how", ["replacing", "atomic_file"])
def test_no_part_of_a_file_is_left(tmp_path: Path, how: str) -> None:
    (tmp_path / "a").write_text("before")
    done = subprocess.run(
        [sys.executable, "-c", WRITER, how], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0 and "KeyboardInterrupt" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "before"


def test_a_second_one_kills(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITER, "twice"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == -signal.SIGTERM and not done.stdout
