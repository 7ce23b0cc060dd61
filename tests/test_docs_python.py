"""The code of docs/python.md and of the README runs, in its order, on an untrained model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from audiolm.audio import read_audio, write_wav
from audiolm.codec import EncodecCodec
from audiolm.model.condition_vocabulary import ConditionVocabulary

from .pages import examples, run_page
from .untrained import save_untrained

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "python.md"
RUN = Path("runs/digits/2026-12-01_10-00-00")


@pytest.fixture
def run(
    tmp_path: Path, make_tiny_codec: Callable[..., EncodecCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's run, in the current folder, and its two recordings."""
    monkeypatch.chdir(tmp_path)
    codec = make_tiny_codec()
    codec.save(RUN / "codec")
    vocabulary = ConditionVocabulary({"label": list("0123456789"), "speaker": ["theo"]})
    save_untrained(RUN / "checkpoints" / "last.ckpt", codec.identity(), vocabulary, 40)
    torch.manual_seed(0)
    for name in ("start", "clip"):
        write_wav(f"{name}.wav", 0.1 * torch.randn(1, 700), 1600)


def test_the_page_runs(run: None) -> None:
    assert len(list(examples(PAGE))) > 8
    names = run_page(PAGE)
    assert Path("seven.wav").is_file() and Path("seven.json").is_file()
    assert len(list(Path("digits").glob("*.png"))) == 10
    assert read_audio("live.wav")[0].shape == (1, 60 * 800)
    assert names["score"].bits_per_second > 0 and names["likeliest"] in "0123456789"


def test_the_readme_s_python_runs(run: None) -> None:
    assert list(examples(ROOT / "README.md"))
    run_page(ROOT / "README.md")
