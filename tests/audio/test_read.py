from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from audiolm.audio import (
    AudioError,
    convert_channels,
    find_audio_files,
    read_audio,
    read_info,
    resample,
    stream_audio,
)

from ..signals import RATE, noise, store

AUDIO = Path(__file__).resolve().parents[2].parent / "shared" / "audio"


@pytest.mark.parametrize(
    ("name", "container", "subtype"),
    [
        ("a.wav", "WAV", "PCM_16"),
        ("a.wav", "WAV", "IMA_ADPCM"),
        ("a.flac", "FLAC", "PCM_16"),
        ("a.mp3", "MP3", "MPEG_LAYER_III"),
        ("a.ogg", "OGG", "VORBIS"),
        ("a.opus", "OGG", "OPUS"),
        ("a.caf", "CAF", "ALAC_16"),
    ],
)
def test_a_part_is_a_slice_of_the_whole(
    tmp_path: Path, name: str, container: str, subtype: str
) -> None:
    path = store(tmp_path / name, noise(2, 100000), format=container, subtype=subtype)
    whole = read_audio(path)[0]
    part = read_audio(path, start=0.5, duration=0.75)[0]
    assert torch.equal(part, whole[:, 24000:60000])
    assert torch.equal(read_audio(path, start=1.5)[0], whole[:, 72000:])
    assert torch.equal(read_audio(path, start=2.0, duration=9.0)[0], whole[:, 96000:])
    with pytest.raises(AudioError, match=r"empty from 3 s on: the file holds 2\.\d+ s"):
        read_audio(path, start=3.0)


def test_a_part_of_a_format_that_cannot_seek(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 16000), 8000, subtype="GSM610")
    assert torch.equal(read_audio(path, start=1.0)[0], read_audio(path)[0][:, 8000:])


@pytest.mark.parametrize(
    "arguments",
    [
        {"sample_rate": 0},
        {"channels": 3},
        {"start": -1.0},
        {"start": math.nan},
        {"duration": 0.0},
        {"duration": math.inf},
    ],
)
def test_arguments_out_of_range(tmp_path: Path, arguments: dict[str, float]) -> None:
    path = store(tmp_path / "a.wav", noise(1, 100))
    with pytest.raises(ValueError, match="must be"):
        read_audio(path, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be"):
        stream_audio(path, **arguments)  # type: ignore[arg-type]


def test_block_duration_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="block_duration"):
        stream_audio(tmp_path / "a.wav", 8000, 1, block_duration=0.0)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3", "a.ogg"])
@pytest.mark.parametrize(("rate", "channels"), [(None, None), (24000, 1), (44100, 2), (8000, 2)])
def test_joined_blocks_are_the_file(
    tmp_path: Path, name: str, rate: int | None, channels: int | None
) -> None:
    path = store(tmp_path / name, noise(2, 70001))
    whole, real_rate = read_audio(path, rate, channels)
    step_by_step = read_audio(path)[0]
    if channels is not None:
        step_by_step = convert_channels(step_by_step, channels)
    assert torch.equal(whole, resample(step_by_step, RATE, real_rate))
    for block_duration in (0.01, 0.25, 0.3333, 1.0, 30.0):
        *full, last = stream_audio(path, rate, channels, block_duration)
        size = round(block_duration * real_rate)
        assert {block.shape[1] for block in full} <= {size}
        assert 0 < last.shape[1] <= size
        assert torch.equal(torch.cat([*full, last], dim=1), whole)


def test_a_block_boundary_at_the_end_gives_no_empty_block(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 48000))
    assert [block.shape[1] for block in stream_audio(path, None, None, 0.5)] == [24000, 24000]


def test_stream_gives_the_good_blocks_and_then_the_fault(tmp_path: Path) -> None:
    waveform = noise(1, 200000)
    waveform[0, 150000] = math.nan
    blocks = stream_audio(store(tmp_path / "a.wav", waveform, subtype="FLOAT"), None, None, 1.0)
    assert torch.equal(next(blocks), waveform[:, :48000])
    assert torch.equal(next(blocks), waveform[:, 48000:96000])
    with pytest.raises(AudioError, match=r"not finite: 1 NaN or Inf samples from 3\.125 s on"):
        list(blocks)


def test_stream_opens_nothing_before_it_is_read(tmp_path: Path) -> None:
    blocks = stream_audio(tmp_path / "missing.wav", 8000, 1)
    with pytest.raises(AudioError, match="not readable: No such file"):
        next(blocks)


@pytest.mark.skipif(not AUDIO.is_dir(), reason="no recordings here")
def test_real_recordings() -> None:
    for folder in ("digits", "music", "speech"):
        files = find_audio_files(AUDIO / folder)
        for file in files[:: max(1, len(files) // 20)]:
            waveform, rate = read_audio(file, 24000, 1)
            info = read_info(file)
            assert rate == 24000
            wanted = math.floor(info.num_samples * 24000 / info.sample_rate + 0.5)
            assert waveform.shape == (1, wanted)
            assert 0 < float(waveform.abs().max()) < 1.5
