"""What a sample shows, saves and says of itself."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import pytest
import soundfile
import torch

from audiolm.audio import read_audio
from audiolm.synthesis.sample import Sample, speed_of

SETTINGS = {"step": 7, "conditioning": {"text": "<b>oh</b>"}}


@pytest.fixture
def sample() -> Sample:
    torch.manual_seed(0)
    waveform = torch.randn(2, 800)
    codes = torch.randint(9, (3, 20))
    return Sample(waveform, 800, codes, 20.0, 5, True, 2.5, speed_of(1.0, 20.0, 4.0), SETTINGS)


def test_it_is_saved_as_three_files(sample: Sample, tmp_path: Path) -> None:
    for name, stem in (("a.wav", "a"), ("v1.5", "v1.5"), ("deep/b.WAV", "deep/b")):
        written = sample.save(tmp_path / name)
        assert written == tmp_path / f"{stem}.wav"
        assert (tmp_path / f"{stem}.png").stat().st_size > 0
        about = json.loads((tmp_path / f"{stem}.json").read_text())
        assert about["seed"] == 5 and about["ended"] and about["nats_per_code"] == 2.5
        assert about["duration"] == 1.0 and about["step"] == 7
        assert about["realtime_factor"] == 0.25 and about["frames_per_second"] == 5.0
        assert about["longest_silence"]["duration"] == 0 and "repeats" in about["longest_loop"]
        peak = float(sample.waveform.abs().max())
        assert peak > 1 and about["gain"] == pytest.approx(1 / peak)
        sound, rate = read_audio(written)
        assert rate == 800
        torch.testing.assert_close(sound, sample.waveform / peak, rtol=0, atol=1e-4)
    assert not list(tmp_path.rglob("*.tmp*"))


def test_a_notebook_shows_a_player_that_needs_nothing_else(sample: Sample) -> None:
    page = sample._repr_html_()
    found = re.search(r'<audio controls src="data:audio/wav;base64,([^"]+)">', page)
    assert found is not None
    sound, rate = soundfile.read(io.BytesIO(base64.b64decode(found[1])))
    assert rate == 800 and sound.shape == (800, 2)
    assert "&lt;b&gt;oh&lt;/b&gt;" in page and "<b>" not in page
    assert "seed 5" in page and "2.50 nats per code" in page and "http" not in page


def test_in_a_terminal_it_is_a_line(sample: Sample) -> None:
    assert "\n" not in repr(sample) and "seed=5" in repr(sample) and len(repr(sample)) < 300


def test_speeds_of_nothing_are_none() -> None:
    speed = speed_of(6.0, 75.0, 2.0)
    assert speed.frames_per_second == 225.0 and speed.realtime_factor == 3.0
    nothing = speed_of(0.0, 75.0, 2.0)
    assert nothing.frames_per_second is None and nothing.realtime_factor is None
