"""Every line of code in docs/python.md runs, in its order, on a run that has learnt nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.audio import read_audio, write_wav
from audiolm.codec import EncodecCodec
from audiolm.model.condition_vocabulary import ConditionVocabulary

from .tools.untrained import save_untrained

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"
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
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    assert len(blocks) > 8
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert Path("seven.wav").is_file() and Path("seven.json").is_file()
    assert len(list(Path("digits").glob("*.png"))) == 10
    assert read_audio("live.wav")[0].shape == (1, 60 * 800)
    assert names["score"].bits_per_second > 0 and names["likeliest"] in "0123456789"
