from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from audiolm.audio import read_audio, read_info
from audiolm.audio.formats.pyav import has_pyav
from audiolm.audio.formats.sndfile import SNDFILE_SUFFIXES

from .. import hostile
from ..signals import LOSSLESS, RATE, noise, store, tone

LOSSY = [  # with the least signal-to-noise ratio, in dB
    ("a.wav", "WAV", "ULAW", 25),
    ("a.wav", "WAV", "ALAW", 25),
    ("a.wav", "WAV", "PCM_U8", 30),
    ("a.wav", "WAV", "IMA_ADPCM", 20),
    ("a.wav", "WAV", "MS_ADPCM", 20),
    ("a.mp3", "MP3", "MPEG_LAYER_III", 20),
    ("a.mpga", "MP3", "MPEG_LAYER_III", 20),
    ("a.ogg", "OGG", "VORBIS", 20),
    ("a.oga", "OGG", "VORBIS", 20),
    ("a.opus", "OGG", "OPUS", 20),
]


def test_every_suffix_is_tried() -> None:
    tried = {Path(row[0]).suffix for row in LOSSLESS + LOSSY}
    assert tried | {".mp2"} == SNDFILE_SUFFIXES  # which libsndfile reads, and does not write


@pytest.mark.skipif(not has_pyav(), reason="needs PyAV, which encodes")
def test_mpeg_audio_of_layer_2(tmp_path: Path) -> None:
    chord = hostile.tone("a.mp2", 2, 48000, 48000)
    hostile.encode(tmp_path / "a.mp2", chord, "mp2")
    read, rate = read_audio(tmp_path / "a.mp2")
    info = read_info(tmp_path / "a.mp2")
    assert (rate, info.subtype, info.num_samples) == (48000, "MPEG_LAYER_II", read.shape[1])
    # Whole frames of 1,152 samples, 481 of them the encoder's delay.
    assert read.shape[1] == 42 * 1152
    late = read[:, 481:].numpy()
    assert abs(late - chord[:, : late.shape[1]]).max() < 0.05


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("name", "container", "subtype"), LOSSLESS)
def test_lossless_formats_are_read_exactly(
    tmp_path: Path, name: str, container: str, subtype: str, channels: int
) -> None:
    waveform = noise(channels, 40001)
    path = store(tmp_path / name, waveform, 44100, format=container, subtype=subtype)
    read, rate = read_audio(path)
    assert rate == 44100
    assert torch.equal(read, waveform)
    info = read_info(path)
    assert (info.sample_rate, info.channels, info.num_samples) == (44100, channels, 40001)
    assert (info.format, info.subtype) == (container, subtype)
    assert info.duration == 40001 / 44100


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("name", "container", "subtype", "least"), LOSSY)
def test_lossy_formats_keep_rate_channels_length_and_sound(
    tmp_path: Path, name: str, container: str, subtype: str, least: float, channels: int
) -> None:
    waveform = torch.cat([tone(440.0 * (c + 1), 1.0, RATE) for c in range(channels)])
    path = store(tmp_path / name, waveform, format=container, subtype=subtype)
    read, rate = read_audio(path)
    assert rate == RATE
    assert read.shape[0] == channels
    # ADPCM comes in whole blocks: the rest of the last one is silence.
    block = 2048 if "ADPCM" in subtype else 0
    assert RATE <= read.shape[1] <= RATE + block
    assert read_info(path).num_samples == read.shape[1]
    error = read[:, 2000 : RATE - 2000] - waveform[:, 2000 : RATE - 2000]
    ratio = 10 * math.log10(float(waveform.square().mean() / error.square().mean()))
    assert ratio > least


def test_many_channels(tmp_path: Path) -> None:
    waveform = noise(16, 1000)
    path = store(tmp_path / "a.wav", waveform)
    assert torch.equal(read_audio(path)[0], waveform)
    mono, stereo = read_audio(path, channels=1)[0], read_audio(path, channels=2)[0]
    assert torch.allclose(mono, waveform.mean(0, keepdim=True), atol=1e-6)
    assert torch.equal(stereo, mono.expand(2, -1))


def test_float_files_keep_values_over_full_scale(tmp_path: Path) -> None:
    waveform = 3 * noise(1, 100)
    path = store(tmp_path / "a.wav", waveform, subtype="FLOAT")
    assert torch.equal(read_audio(path)[0], waveform)
