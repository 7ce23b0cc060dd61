"""Ctrl-C during a script's imports: a line, no traceback, the exit code of an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from audiolm.cli.interrupt import stop_as_usual, stop_quietly

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(file.stem for file in (ROOT / "configs").glob("*.yaml"))

# Ctrl-C while the module of that name is looked for, wherever it is imported first.
INTERRUPTED = """
import os, runpy, signal, sys
wanted, folder, script = sys.argv[1:]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.argv = [script]
sys.path.insert(0, folder)
runpy.run_path(folder + "/" + script, run_name="__main__")
"""


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("module", ["omegaconf", "numpy"])
def test_ctrl_c_during_the_imports(script: str, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, str(ROOT / "scripts"), f"{script}.py"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (130, "stopped\n"), done.stderr


def test_afterwards_it_is_an_exception_again() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stop_quietly(lambda: None)
        stop_quietly(lambda: None)
        assert signal.getsignal(signal.SIGINT) != signal.default_int_handler
        stop_as_usual()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
        stop_quietly(lambda: None)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
