"""While a script's imports take seconds, something moves on a terminal, and only there."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from .test_interrupt import INTERRUPTED, ROOT, SCRIPTS

ALL = sorted((ROOT / "scripts").rglob("*.py"))
ERASE = "\r\x1b[K"

# Runs a script until it looks for a module that is neither Python's nor the package's: those are
# what takes seconds. Then it fails to import, or ends.
WATCHED = """
import os, runpy, sys
script, fails = sys.argv[1:]
class Finder:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in sys.stdlib_module_names or package == "audiolm":
            return None
        if fails == "fails":
            raise ImportError("damaged")
        os.write(1, f"[imports {package}]".encode())
        os._exit(0)
sys.meta_path.insert(0, Finder())
sys.argv = [script]
sys.path.insert(0, os.path.dirname(script))
runpy.run_path(script, run_name="__main__")
"""


def on_a_terminal(command: list[str], stdout: int | None = None) -> tuple[int, str, str]:
    """Exit code, what a terminal was sent, and what a pipe was, where stdout=PIPE."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=stdout or theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        sent = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux's way of saying that the other end is closed
                break
            if not part:
                break
            sent += part
        os.close(ours)
        piped = process.stdout.read() if process.stdout else b""
    return process.wait(), sent.decode(), piped.decode()


@pytest.mark.parametrize("script", ALL, ids=lambda path: path.stem)
def test_something_is_shown_before_anything_heavy_is_imported(script: Path) -> None:
    code, sent, _ = on_a_terminal([sys.executable, "-c", WATCHED, str(script), "ends"])
    assert code == 0 and sent.startswith(f"{ERASE}| loading"), sent
    assert "[imports " in sent


@pytest.mark.parametrize("script", ALL, ids=lambda path: path.stem)
def test_nothing_is_where_there_is_no_terminal(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(script), "ends"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[imports ")


def test_a_traceback_begins_in_a_line_of_its_own() -> None:
    code, sent, _ = on_a_terminal([sys.executable, "-c", WATCHED, str(ALL[0]), "fails"])
    assert code == 1 and f"{ERASE}Traceback" in sent, sent
    assert sent.endswith("ImportError: damaged\r\n")


@pytest.mark.parametrize("script", SCRIPTS)
def test_ctrl_c_leaves_one_word(script: str) -> None:
    code, sent, _ = on_a_terminal(
        [sys.executable, "-c", INTERRUPTED, "omegaconf", str(ROOT / "scripts"), f"{script}.py"]
    )
    assert code == 130 and sent.endswith(f"{ERASE}stopped\r\n"), sent


def test_it_is_gone_when_the_script_speaks_and_a_pipe_has_none_of_it() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "report.py"), "--help"]
    code, sent, piped = on_a_terminal(command, subprocess.PIPE)
    assert code == 0 and sent.startswith(f"{ERASE}| loading") and sent.endswith(ERASE)
    assert piped.startswith("One page about a run") and "\x1b" not in piped
