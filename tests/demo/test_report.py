"""What is said of a demo run: real pieces score high, noise low, and the table shows both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audiolm.codec import load_bundled
from audiolm.demo import make_melodies
from audiolm.demo.report import (
    DURATION,
    comparison,
    score_recordings,
    score_samples,
    score_waveforms,
)
from audiolm.generation import Sampling
from audiolm.model.checkpoint import TrainedModel, build_model


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("demo")
    make_melodies(folder, 6, seed=7)
    return sorted(folder.glob("*.wav"))


def test_real_melodies_are_the_ceiling(pieces: list[Path]) -> None:
    found = score_recordings(pieces, load_bundled(8))
    assert found.scores.notes.total == len(pieces) * 25
    assert found.scores.legal_notes > 0.95
    assert found.scores.legal_transitions > 0.9
    assert found.silence < 0.2


def test_an_untrained_model_scores_low_and_its_samples_are_written(tmp_path: Path) -> None:
    codec = load_bundled(2)
    torch.manual_seed(0)
    settings = {"embed_dim": 16, "num_layers": 1, "num_heads": 2, "kernel": "fused"}
    model, pattern = build_model(settings, "delay", codec.identity(), 50)
    trained = TrainedModel(model.eval(), pattern, 50, codec.identity(), step=0)
    found = score_samples(trained, codec, [0, 1], Sampling(), tmp_path)
    assert found.scores.legal_transitions < 0.5
    for i in (0, 1):
        assert (tmp_path / f"piece_{i:03d}.wav").stat().st_size > DURATION * codec.sample_rate
        assert (tmp_path / f"piece_{i:03d}.png").exists()


def test_silence_and_loops_are_reported_as_the_longest_of_all_clips() -> None:
    codec = load_bundled(2)
    waveforms = torch.randn(3, 1, 32000, generator=torch.Generator().manual_seed(0)) * 0.1
    waveforms[1, 0, 8000:16000] = 0
    codes = torch.randint(256, (3, 2, 100), generator=torch.Generator().manual_seed(0))
    codes[2, 0, 10:40] = 5
    found = score_waveforms(waveforms, codes, codec)
    assert found.silence == pytest.approx(0.5, abs=0.02)
    assert found.run == pytest.approx(30 / 50, abs=0.05)
    assert found.loop >= found.run


def test_the_table_has_every_metric_of_both(pieces: list[Path]) -> None:
    found = score_recordings(pieces[:2], load_bundled(4))
    table = comparison(found, found, 20)
    for name, value in found.metrics().items():
        (line,) = (x for x in table.splitlines() if x.strip().startswith(name.replace("_", " ")))
        assert line.count(f"{value:.2f}") >= 2
