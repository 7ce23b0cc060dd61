"""scripts/app.py from the shell: what it needs, what it refuses, that it serves and ends."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audiolm.codec import EncodecCodec

from ..app.conftest import make_run_folder
from .conftest import ROOT, RunScript
from .test_configs import compose
from .test_readme import commands


def test_without_gradio_it_says_what_to_install(
    workplace: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "gradio" else find(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    ran = run_script("app")
    assert ran.code == 2 and ran.out == ""
    assert ran.err == "error: the app needs the package gradio; run pip install -e '.[app]'\n"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("port=0", "port=0 must be a whole number from 1 to 65,535; null for a free one"),
        ("max_seconds=0", "max_seconds=0 must be a number above 0"),
        ("prot=8000", "prot is not a setting"),
    ],
)
def test_a_wrong_setting_is_a_line(
    workplace: Path, run_script: RunScript, override: str, message: str
) -> None:
    ran = run_script("app", override)
    assert ran.code == 2 and message in ran.err and ran.err.count("\n") == 1


def test_the_commands_of_its_page_compose() -> None:
    found = commands("docs/app.md")
    assert len(found) == 3
    for script, *overrides in found:
        assert script == "scripts/app.py"
        compose("app", *overrides)


def test_it_serves_this_machine_until_ctrl_c(
    workplace: Path, make_tiny_codec: Callable[..., EncodecCodec]
) -> None:
    pytest.importorskip("gradio")
    make_run_folder(workplace / "runs" / "demo" / "one", make_tiny_codec())
    make_run_folder(workplace / "runs" / "demo" / "two", make_tiny_codec())
    command = [sys.executable, str(ROOT / "scripts" / "app.py"), "ckpt_path=runs/demo/one"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("app "):
                break
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", lines[-1])
            assert address is not None, lines
            with urllib.request.urlopen(address[0]) as response:
                page = response.read().decode()
            assert "runs/demo/two" in page  # to compare with
        finally:
            process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert process.wait() == 130, errors
    assert errors.splitlines()[-1] == "stopped" and "Traceback" not in errors
