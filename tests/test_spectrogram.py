from __future__ import annotations

import logging
import math
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from audiolm.audio import read_audio
from audiolm.spectrogram import FLOOR, HOP, RANGE, log_mel_spectrogram, plot_spectrogram

AUDIO = Path(__file__).resolve().parents[1].parent / "shared" / "audio"


@pytest.fixture(autouse=True)
def warnings_are_errors() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def tone(frequency: float, duration: float, rate: int) -> Tensor:
    """(1, N) full-scale sine."""
    time = torch.arange(round(duration * rate), dtype=torch.float64) / rate
    return torch.sin(2 * math.pi * frequency * time).float()[None]


def noise(channels: int, num_samples: int) -> Tensor:
    return torch.rand(channels, num_samples, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.mark.parametrize("rate", [100, 500, 1000, 4000, 8000, 11025, 16000, 24000, 48000, 192000])
def test_any_rate_has_no_empty_band(rate: int) -> None:
    decibels = log_mel_spectrogram(noise(1, rate), rate)
    assert decibels.isfinite().all()
    hop = max(1, round(HOP * rate))
    assert decibels.shape[1] == 1 + rate // hop
    assert decibels.shape[0] == 96 or rate < 8000
    # White noise is in every band: an empty one would stand at the end of the range.
    assert float(decibels.mean(dim=1).min()) > float(decibels.max()) - RANGE + 10


def test_channels_are_averaged() -> None:
    waveform = noise(3, 4000)
    expected = log_mel_spectrogram(waveform.mean(dim=0), 8000)
    assert torch.equal(log_mel_spectrogram(waveform, 8000), expected)


@pytest.mark.parametrize("rate", [8000, 24000, 48000])
def test_a_full_scale_sine_is_at_about_zero_in_its_band(rate: int) -> None:
    for frequency in (100.0, 440.0, 1000.0, 3000.0):
        column = log_mel_spectrogram(tone(frequency, 1.0, rate), rate)[:, 60]
        assert -6 < float(column.max()) < 1
        mel = math.log10(1 + frequency / 700) / math.log10(1 + rate / 2 / 700)
        assert abs(int(column.argmax()) - (mel * 97 - 1)) <= 1


def test_scaling_moves_all_by_the_same_decibels() -> None:
    waveform = noise(1, 8000)
    loud, quiet = log_mel_spectrogram(waveform, 8000), log_mel_spectrogram(waveform / 10, 8000)
    assert torch.allclose(loud - quiet, torch.tensor(20.0), atol=1e-3)


def test_a_click_is_in_the_frame_of_its_time() -> None:
    waveform = torch.zeros(1, 24000)
    waveform[0, 12000] = 1.0
    level = log_mel_spectrogram(waveform, 24000).amax(dim=0)
    assert int(level.argmax()) == round(0.5 / HOP) == 62 or int(level.argmax()) == 63


def test_values_end_at_the_range_below_the_peak() -> None:
    waveform = torch.cat([tone(1000, 0.5, 8000), torch.zeros(1, 4000)], dim=1)
    decibels = log_mel_spectrogram(waveform, 8000)
    assert float(decibels.min()) == pytest.approx(float(decibels.max()) - RANGE, abs=1e-4)
    assert (log_mel_spectrogram(torch.zeros(4000), 8000) == FLOOR).all()


@pytest.mark.parametrize("num_samples", [1, 2, 3, 50, 255, 256, 257])
def test_clips_shorter_than_a_window(num_samples: int) -> None:
    decibels = log_mel_spectrogram(torch.ones(num_samples), 8000)
    assert decibels.shape == (96, 1 + num_samples // 64)
    assert decibels.isfinite().all()


@pytest.mark.parametrize(
    ("waveform", "rate"),
    [
        (torch.zeros(0), 8000),
        (torch.zeros(1, 1, 5), 8000),
        (torch.zeros(5, dtype=torch.int16), 8000),
        (torch.tensor([0.0, math.nan]), 8000),
        (torch.zeros(5), 0),
    ],
)
def test_what_is_refused(tmp_path: Path, waveform: Tensor, rate: int) -> None:
    with pytest.raises(ValueError, match=r"waveform|sample rate"):
        log_mel_spectrogram(waveform, rate)
    with pytest.raises(ValueError, match=r"waveform|sample rate"):
        plot_spectrogram(tmp_path / "a.png", waveform, rate, "title")
    assert list(tmp_path.iterdir()) == []


def test_hop_is_checked() -> None:
    with pytest.raises(ValueError, match="hop is 0"):
        log_mel_spectrogram(torch.zeros(5), 8000, hop=0.0)


def plot(path: Path, waveform: Tensor, rate: int, title: str = "title") -> np.ndarray:
    plot_spectrogram(path, waveform, rate, title)
    assert path.read_bytes().startswith(b"\x89PNG")
    picture = matplotlib.image.imread(path)
    assert picture.shape[0] > 400
    assert picture.shape[1] > 800
    return picture


@pytest.mark.parametrize("num_samples", [1, 2, 3, 100, 8000])
@pytest.mark.parametrize("silent", [False, True])
def test_short_and_silent_clips_are_plotted_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, num_samples: int, silent: bool
) -> None:
    waveform = noise(1, num_samples) * (0 if silent else 1)
    plot(tmp_path / "a.png", waveform, 24000)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def brightness(picture: np.ndarray) -> np.ndarray:
    """Mean over each column of the spectrogram's middle."""
    height, width = picture.shape[:2]
    middle = picture[int(0.4 * height) : int(0.8 * height), int(0.1 * width) : int(0.88 * width)]
    return middle[..., :3].mean(axis=(0, 2))


def test_silence_is_dark_and_noise_is_bright(tmp_path: Path) -> None:
    assert brightness(plot(tmp_path / "a.png", torch.zeros(1, 24000), 24000)).max() < 0.05
    assert brightness(plot(tmp_path / "b.png", noise(1, 24000), 24000)).min() > 0.3


def test_sound_is_plotted_where_it_is(tmp_path: Path) -> None:
    waveform = torch.zeros(2, 48000)
    waveform[:, 24000:] = noise(2, 24000)
    columns = brightness(plot(tmp_path / "a.png", waveform, 24000))
    quarter = len(columns) // 4
    assert columns[:quarter].max() < 0.05
    assert columns[-quarter:].min() > 0.3


def test_level_does_not_change_the_picture_of_the_spectrogram(tmp_path: Path) -> None:
    loud = plot(tmp_path / "a.png", noise(1, 24000), 24000)
    quiet = plot(tmp_path / "b.png", noise(1, 24000) / 100, 24000)
    assert np.abs(brightness(loud) - brightness(quiet)).max() < 0.02


def test_a_long_recording_is_plotted_in_few_frames(tmp_path: Path) -> None:
    plot(tmp_path / "a.png", noise(1, 8000 * 600), 8000)


@pytest.mark.parametrize("title", ["", "50 % of $x_ and \\frac", "two\nlines", "word " * 60])
def test_titles_are_plain_text(tmp_path: Path, title: str) -> None:
    plot(tmp_path / "a.png", noise(1, 8000), 8000, title)


def test_folders_are_made_and_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "a.png"
    plot(path, noise(1, 800), 8000)
    before = path.read_bytes()

    def half_written(self: Figure, file: Path, **options: object) -> None:
        Path(file).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", half_written)
    with pytest.raises(OSError, match="disk full"):
        plot_spectrogram(path, noise(1, 400), 8000, "title")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_plotting_leaves_matplotlib_alone(tmp_path: Path) -> None:
    code = f"""
import sys, torch
from audiolm.spectrogram import plot_spectrogram
plot_spectrogram({str(tmp_path / "a.png")!r}, torch.zeros(1, 100), 8000, "title")
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not AUDIO.is_dir(), reason="no recordings here")
def test_real_recordings_are_plotted(tmp_path: Path) -> None:
    for file in sorted((AUDIO / "digits").iterdir())[:2]:
        plot(tmp_path / "a.png", *read_audio(file))
