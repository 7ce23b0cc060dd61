"""Run a script in this process, as from a shell in an empty folder."""

from __future__ import annotations

import logging
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hydra.core.global_hydra import GlobalHydra

from audiolm.codec import EncodecCodec

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Result:
    """What a script left: its exit code and what it printed."""

    code: int
    out: str
    err: str


RunScript = Callable[..., Result]


@pytest.fixture
def run_script(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[RunScript]:
    """`run_script("train", "experiment=smoke", ...)`; an unforeseen error is raised."""
    monkeypatch.setenv("WANDB_MODE", "offline")

    def run(name: str, *arguments: str) -> Result:
        GlobalHydra.instance().clear()
        monkeypatch.setattr(sys, "argv", [str(ROOT / "scripts" / f"{name}.py"), *arguments])
        capfd.readouterr()
        code = 0
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    handlers = list(logging.getLogger().handlers)
    # A shell that runs the tests in the background has them ignore Ctrl-C.
    on_interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield run
    signal.signal(signal.SIGINT, on_interrupt)
    GlobalHydra.instance().clear()
    # Hydra's own write to this test's output, which is closed by then.
    logging.getLogger().handlers[:] = handlers


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, so that runs and stores go there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def codec_folder(
    tmp_path_factory: pytest.TempPathFactory, make_tiny_codec: Callable[..., EncodecCodec]
) -> Path:
    """A tiny local codec, 800 Hz."""
    folder = tmp_path_factory.mktemp("codec")
    make_tiny_codec().save(folder)
    return folder


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty seconds of sound in twenty files, at rates and channels that are not the codec's."""
    folder = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(0)
    for i in range(20):
        rate = int(rng.choice([800, 1600, 4000]))
        shape = (rate * 3 // 2, int(rng.choice([1, 2])))
        (folder / f"part {i % 3}").mkdir(exist_ok=True)
        soundfile.write(folder / f"part {i % 3}" / f"{i:02d}.wav", rng.normal(0, 0.1, shape), rate)
    return folder


@pytest.fixture
def local(codec_folder: Path, recordings: Path) -> list[str]:
    """Overrides for those recordings and that codec, at the size of the smoke test."""
    return [
        "experiment=smoke",
        "data=folder",
        f"data.path={recordings}",
        "codec=local",
        f"codec.path={codec_folder}",
    ]
