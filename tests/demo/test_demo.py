"""The demo set and its codec: the same every time, and true to the sound."""

from pathlib import Path

import numpy as np
import pytest
import torch

from audiolm.audio import read_audio
from audiolm.codec import build_model, load_local
from audiolm.demo import make_melodies
from audiolm.demo.codec import HOP, SETTINGS, fit_codec, set_transform
from audiolm.demo.melodies import NOTE_DURATION, NOTES, SAMPLE_RATE, frequency, melody, pluck


def snr(original: torch.Tensor, copy: torch.Tensor) -> float:
    return float(10 * torch.log10(original.square().sum() / (original - copy).square().sum()))


def test_the_set_is_the_same_every_time_and_grows_without_change(tmp_path: Path) -> None:
    make_melodies(tmp_path / "a", 3)
    make_melodies(tmp_path / "b", 2)
    files = sorted((tmp_path / "a").iterdir())
    assert [file.name for file in files] == [f"melody_{i:04d}.wav" for i in range(3)]
    for file in files[:2]:
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    waveform, rate = read_audio(files[0])
    assert rate == SAMPLE_RATE
    assert waveform.shape == (1, round(NOTES * NOTE_DURATION * SAMPLE_RATE))
    assert 0.1 < float(waveform.abs().max()) < 1


def test_notes_have_their_frequency() -> None:
    for degree in (0, 4, 9):
        spectrum = np.abs(np.fft.rfft(pluck(frequency(degree), damping=4.0), 16 * SAMPLE_RATE))
        assert np.argmax(spectrum) / 16 == pytest.approx(frequency(degree), rel=0.01)
    assert frequency(5) == 2 * frequency(0)


def test_without_quantization_the_codec_gives_the_sound_back() -> None:
    model = build_model(SETTINGS)
    set_transform(model)
    time = torch.arange(40 * HOP) / SAMPLE_RATE
    waveform = 0.3 * torch.sin(2 * torch.pi * 440 * time) + 0.1 * torch.sin(5000 * time)
    with torch.inference_mode():
        copy = model.decoder(model.encoder(waveform[None, None]))[0, 0]
    assert copy.shape == waveform.shape
    # The first and last frame have no neighbour to overlap with.
    assert snr(waveform[HOP:-HOP], copy[HOP:-HOP]) > 70


def test_fitted_codec_is_true_to_melodies_it_was_not_fitted_to(tmp_path: Path) -> None:
    clips = [torch.from_numpy(melody(np.random.default_rng([0, i])))[None] for i in range(13)]
    codec = fit_codec(clips[:12])
    codes = codec.encode(clips[12][None])
    assert codes.shape == (1, 8, NOTES * 10)
    decoded = codec.decode(codes, clips[12].shape[1])[0]
    assert snr(clips[12], decoded) > 6
    codec.save(tmp_path)
    assert torch.equal(load_local(tmp_path).encode(clips[12][None]), codes)
