"""The demo set's codec: true to the sound."""

from pathlib import Path

import torch

from audiolm.codec import build_model, load_local
from audiolm.demo.codec import HOP, SETTINGS, fit_codec, set_transform
from audiolm.demo.melodies import SAMPLE_RATE, draw_melody, synthesise


def snr(original: torch.Tensor, copy: torch.Tensor) -> float:
    return float(10 * torch.log10(original.square().sum() / (original - copy).square().sum()))


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
    clips = [synthesise(draw_melody(0, i)) for i in range(13)]
    codec = fit_codec(clips[:12])
    codes = codec.encode(clips[12][None])
    assert codes.shape == (1, 8, clips[12].shape[1] // HOP)
    decoded = codec.decode(codes, clips[12].shape[1])[0]
    assert snr(clips[12], decoded) > 6
    codec.save(tmp_path)
    assert torch.equal(load_local(tmp_path).encode(clips[12][None]), codes)
