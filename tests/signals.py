"""Small waveforms made by code, and files of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import soundfile
import torch
from torch import Tensor

from audiolm.audio import AudioError, read_audio

RATE = 48000

LOSSLESS = [
    ("a.wav", "WAV", "PCM_16"),
    ("a.wav", "WAV", "PCM_24"),
    ("a.wav", "WAV", "PCM_32"),
    ("a.wav", "WAV", "FLOAT"),
    ("a.wav", "WAV", "DOUBLE"),
    ("a.wave", "WAVEX", "PCM_16"),
    ("a.bwf", "WAV", "PCM_24"),
    ("a.rf64", "RF64", "PCM_16"),
    ("a.w64", "W64", "PCM_24"),
    ("a.flac", "FLAC", "PCM_16"),
    ("a.flac", "FLAC", "PCM_24"),
    ("a.aiff", "AIFF", "PCM_16"),
    ("a.aif", "AIFF", "PCM_24"),
    ("a.aifc", "AIFF", "FLOAT"),
    ("a.caf", "CAF", "PCM_16"),
    ("a.caf", "CAF", "ALAC_16"),
    ("a.au", "AU", "PCM_16"),
    ("a.snd", "AU", "FLOAT"),
]
"""Name, libsndfile's container and encoding of every kind of file that keeps 16 bits exactly."""


def tone(frequency: float, duration: float, rate: int, phase: float = 0.0) -> Tensor:
    """(1, N) float32 sine of amplitude 0.5."""
    time = torch.arange(round(duration * rate), dtype=torch.float64) / rate
    return 0.5 * torch.sin(2 * math.pi * frequency * time + phase).float()[None]


def noise(channels: int, num_samples: int, seed: int = 0) -> Tensor:
    """(C, N) float32 on the 16-bit grid, so that PCM files hold it exactly."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(-20000, 20000, (channels, num_samples), generator=generator)
    return steps.float() / 32768


def store(path: Path, waveform: Tensor, rate: int = RATE, **options: str) -> Path:
    soundfile.write(path, waveform.T.contiguous().numpy(), rate, **options)
    return path


def reason(path: Path) -> str:
    """The reason for which the file is refused."""
    with pytest.raises(AudioError) as caught:
        read_audio(path)
    assert caught.value.path == path
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    return caught.value.reason


def cut(path: Path, fraction: float) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    return path
