"""~ is the home folder wherever a path is taken: no folder of that name is ever made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audiolm.audio import find_audio_files, read_audio, write_wav
from audiolm.cli.overrides import PATHS, expand_home
from audiolm.codec import EncodecCodec, load_local
from audiolm.datasets.folder import folder_clips
from audiolm.datasets.manifest import manifest_clips
from audiolm.files import user_path
from audiolm.model.checkpoint import read_checkpoint
from audiolm.run_folder import RunFolder, find_checkpoint
from audiolm.tokens import TokenStore, default_store_dir, open_mix

from .stores import FakeCodec, prepare_folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with recordings and a manifest; the working folder is another one."""
    home = tmp_path / "home"
    (home / "recs").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(home))
    rng = np.random.default_rng(0)
    for i in range(3):
        soundfile.write(home / "recs" / f"{i}.wav", rng.normal(0, 0.1, 1600), 8000)
    (home / "list.csv").write_text("path\nrecs/0.wav\n")
    return home


def test_from_python(home: Path, make_tiny_codec: Callable[..., EncodecCodec]) -> None:
    assert user_path("~/x") == home / "x" and user_path("a/~") == Path("a/~")
    assert len(find_audio_files("~/recs")) == 3
    waveform, rate = read_audio("~/recs/0.wav")
    write_wav("~/copy.wav", waveform, rate)
    assert (home / "copy.wav").is_file()
    assert len(list(folder_clips("~/recs"))) == 3
    assert len(list(manifest_clips("~/list.csv"))) == 1
    codec = make_tiny_codec()
    codec.save("~/codec")
    assert load_local("~/codec").fingerprint == codec.fingerprint
    prepare_folder(home / "recs", FakeCodec(), Path("~/store"))
    assert len(TokenStore("~/store")) == len(open_mix({"~/store": 1.0}).stores[0]) == 3
    fake: Any = FakeCodec()
    assert default_store_dir("t", "~/recs", fake) == default_store_dir("t", home / "recs", fake)
    last = RunFolder(home / "run").last_checkpoint
    last.parent.mkdir(parents=True)
    torch.save({"state_dict": {}}, last)
    assert find_checkpoint("~/run") == last
    assert read_checkpoint("~/run/checkpoints/last.ckpt") == {"state_dict": {}}
    assert RunFolder.as_typed("~/run").path == home / "run"
    assert not list(Path().iterdir())


@pytest.mark.parametrize("key", sorted({*PATHS} - {"data.pattern"}))
def test_on_the_command_line(home: Path, key: str) -> None:
    assert expand_home(f"{key}=~/x y") == f"{key}={home}/x y"
    assert expand_home(f"{key}=x/~") == f"{key}=x/~"
    assert expand_home("data.pattern=~{label}") == "data.pattern=~{label}"
    assert expand_home("name=~/x") == "name=~/x"
