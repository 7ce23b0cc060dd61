"""A recording at each number of codebooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from audiolm.app.codebooks import MOST_SECONDS, bits_per_second, by_codebooks, counts_of
from audiolm.audio import AudioError, read_audio, write_wav
from audiolm.codec import EncodecCodec


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    noise = 0.1 * torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
    write_wav(tmp_path / "noise.wav", noise, 800)
    return tmp_path / "noise.wav"


def test_each_number_of_codebooks_decodes_the_first_codes(
    make_tiny_codec: Callable[..., EncodecCodec], recording: Path
) -> None:
    codec = make_tiny_codec()
    sounds = dict(by_codebooks(codec, recording))
    assert list(sounds) == [0, 1, 2, 3, 4]
    waveform, _ = read_audio(recording)
    assert torch.equal(sounds[0], waveform)
    codes = codec.encode(waveform[None])
    for count in range(1, 5):
        some = make_tiny_codec(count)
        assert torch.equal(sounds[count], some.decode(codes[:, :count], waveform.shape[1])[0])
    assert bits_per_second(codec, 2) == pytest.approx(2 * 5 * 800 / 12)


def test_of_many_codebooks_by_doubling(make_tiny_codec: Callable[..., EncodecCodec]) -> None:
    assert counts_of(make_tiny_codec(n_q=8)) == list(range(1, 9))
    assert counts_of(make_tiny_codec(n_q=12)) == [1, 2, 4, 8, 12]
    assert counts_of(make_tiny_codec(2, n_q=12)) == [1, 2]


def test_a_long_recording_is_cut_and_a_bad_one_refused(
    make_tiny_codec: Callable[..., EncodecCodec], tmp_path: Path
) -> None:
    write_wav(tmp_path / "long.wav", torch.zeros(1, 800 * 30), 800)
    _, waveform = next(iter(by_codebooks(make_tiny_codec(), tmp_path / "long.wav")))
    assert waveform.shape[1] == MOST_SECONDS * 800
    (tmp_path / "bad.wav").write_bytes(b"no sound" * 99)
    with pytest.raises(AudioError, match=r"bad\.wav"):
        next(iter(by_codebooks(make_tiny_codec(), tmp_path / "bad.wav")))
