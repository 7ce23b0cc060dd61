from __future__ import annotations

import math
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audiolm.audio import AUDIO_SUFFIXES, AudioError, read_audio, read_info, stream_audio

from ..signals import LOSSLESS, RATE, cut, noise, reason, store


def wav_with_sizes(path: Path, riff: int, data: int) -> Path:
    """Sizes as a writer to a pipe leaves them, which cannot go back and fill them in."""
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[4:8] = struct.pack("<I", riff)
    content[at : at + 4] = struct.pack("<I", data)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", sorted(AUDIO_SUFFIXES))
def test_text_is_not_audio(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("this is not sound\n" * 100)
    assert reason(path).startswith("not audio")
    with pytest.raises(AudioError, match="not audio"):
        read_info(path)


@pytest.mark.parametrize("suffix", sorted(AUDIO_SUFFIXES))
def test_a_file_of_zero_bytes_is_empty(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.touch()
    assert reason(path) == "empty: the file has 0 bytes"


@pytest.mark.parametrize("name", ["a.wav", "a.aiff", "a.caf", "a.au"])
def test_a_header_without_samples_is_empty(tmp_path: Path, name: str) -> None:
    path = store(tmp_path / name, torch.zeros(1, 0))
    assert reason(path) == "empty: 0 samples"
    with pytest.raises(AudioError, match="empty: 0 samples"):
        read_info(path)


def test_a_header_cut_from_its_samples_is_truncated(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 1000))
    path.write_bytes(path.read_bytes()[:44])
    assert reason(path).startswith("truncated: 0.000 s")


def test_too_short_for_the_rate_is_empty(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 2))
    with pytest.raises(AudioError, match="less than one sample at 8000 Hz"):
        read_audio(path, 8000)


def test_a_damaged_sample_rate_is_refused(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 100), rate=1)
    assert reason(path) == "not audio: its sample rate is 1 Hz"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_values_that_are_not_finite(tmp_path: Path, value: float) -> None:
    samples = np.zeros((48000, 2))
    samples[24000, 1] = value  # 1e300 is Inf as float32
    path = tmp_path / "a.wav"
    soundfile.write(path, samples, RATE, subtype="DOUBLE")
    assert reason(path) == "not finite: 1 NaN or Inf samples from 0.500 s on"
    # The part before it is good.
    assert read_audio(path, duration=0.25)[0].shape == (2, 12000)


@pytest.mark.parametrize("fraction", [0.99, 0.6, 0.2])
@pytest.mark.parametrize(
    ("name", "container", "subtype"),
    [
        *LOSSLESS,
        ("a.wav", "WAV", "IMA_ADPCM"),
        ("a.mp3", "MP3", "MPEG_LAYER_III"),
        ("a.ogg", "OGG", "VORBIS"),
        ("a.opus", "OGG", "OPUS"),
    ],
)
def test_truncated_files(
    tmp_path: Path, name: str, container: str, subtype: str, fraction: float
) -> None:
    path = store(tmp_path / name, noise(2, 144000), format=container, subtype=subtype)
    cut(path, fraction)
    # A CAF that ends before its index, and an Ogg without a whole page, do not open.
    assert reason(path).startswith(("truncated", "damaged"))
    for rate in (None, 24000):
        with pytest.raises(AudioError):
            list(stream_audio(path, rate, 1, 0.5))


def test_truncation_is_reported_in_seconds(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 3 * RATE))
    path.write_bytes(path.read_bytes()[: 44 + 2 * 57600])
    assert reason(path) == "truncated: 1.200 s of 3.000 s"
    # What is there can still be had by asking for it.
    assert read_audio(path, duration=1.0)[0].shape == (1, RATE)
    with pytest.raises(AudioError, match="truncated"):
        read_audio(path, start=1.0, duration=0.5)


def test_a_single_missing_byte_is_reported(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 1000))
    path.write_bytes(path.read_bytes()[:-1])
    assert reason(path).startswith("truncated")


def test_a_flac_damaged_in_the_middle(tmp_path: Path) -> None:
    path = store(tmp_path / "a.flac", noise(1, 144000))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    path.write_bytes(data)
    assert "damaged" in reason(path)


@pytest.mark.parametrize(
    ("riff", "data"),
    [
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0, 0),
        (36, 0),
        (80036, 0),
        (0x7FFFF024, 0x7FFFF000),
        (0x80000024, 0x80000000),
    ],
)
@pytest.mark.parametrize("silent", [False, True])
def test_streaming_wavs_are_whole(tmp_path: Path, riff: int, data: int, silent: bool) -> None:
    waveform = noise(2, 20000) * (0 if silent else 1)
    path = wav_with_sizes(store(tmp_path / "a.wav", waveform), riff, data)
    assert torch.equal(read_audio(path)[0], waveform)
    assert torch.equal(read_audio(path, start=0.25)[0], waveform[:, 12000:])
    assert read_info(path).num_samples == 20000


@pytest.mark.parametrize("behind", [b"", b"LIST\x04\0\0\0INFO"])
def test_a_wav_of_more_than_its_header_can_count_is_whole(tmp_path: Path, behind: bytes) -> None:
    """Sizes are counted modulo 2**32. The file is sparse: zeros before the samples at its end."""
    path = tmp_path / "long.wav"
    samples = np.random.default_rng(0).integers(-9000, 9000, 8000).astype("<i2")
    soundfile.write(path, samples, 8000)
    header = bytearray(path.read_bytes()[:44])
    sound = 2**32 + 2**20
    header[4:8] = (sound + 36).to_bytes(8, "little")[:4]
    header[40:44] = sound.to_bytes(8, "little")[:4]
    with path.open("wb") as file:
        file.write(header)
        file.seek(44 + 2**20)  # where the header says that it ends
        file.write(samples.tobytes())
        file.seek(44 + sound - 16000)
        file.write(samples.tobytes() + behind)
    assert read_info(path).num_samples == sound // 2
    last, _ = read_audio(path, start=sound / 16000 - 1)
    assert np.array_equal(last[0].numpy(), (samples / 32768).astype(np.float32))


def test_an_empty_data_chunk_before_another_chunk_is_empty(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", torch.zeros(1, 0))
    path.write_bytes(path.read_bytes() + b"LIST" + struct.pack("<I", 4) + b"INFO")
    assert reason(path) == "empty: 0 samples"


def test_chunks_before_and_after_the_samples_are_no_fault(tmp_path: Path) -> None:
    waveform = noise(1, 1001)
    path = store(tmp_path / "a.wav", waveform, subtype="PCM_16")
    data = path.read_bytes()
    extra = b"LIST" + struct.pack("<I", 5) + b"INFO!\0"
    path.write_bytes(data[:12] + extra + data[12:] + extra)
    assert torch.equal(read_audio(path)[0], waveform)


def test_a_streaming_flac_tells_no_length(tmp_path: Path) -> None:
    waveform = noise(2, 50001)
    path = store(tmp_path / "a.flac", waveform)
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0  # STREAMINFO's 36 bits of total samples
    data[22:26] = bytes(4)
    path.write_bytes(data)
    assert torch.equal(read_audio(path)[0], waveform)
    assert torch.equal(read_audio(path, start=0.5)[0], waveform[:, 24000:])
    assert read_info(path).num_samples == 50001
    assert "of an unknown length" in reason(cut(path, 0.6))


@pytest.mark.parametrize("behind", [b"", bytes(3000), b"TAG" + bytes(125)])
@pytest.mark.parametrize("length", [3000, 50001])  # within one frame, and in many
@pytest.mark.parametrize("tag", [b"", b"ID3\x03\0\0\0\0\0\x20" + bytes(32)])
def test_a_flac_of_more_than_its_header_counts_is_whole(
    tmp_path: Path, tag: bytes, length: int, behind: bytes
) -> None:
    waveform = noise(2, length)
    path = store(tmp_path / "a.flac", waveform)
    data = bytearray(path.read_bytes())
    for counted in (1, length // 2, length - 1):
        data[21:26] = (data[21] & 0xF0, *counted.to_bytes(4, "big"))
        path.write_bytes(tag + data + behind)
        assert torch.equal(read_audio(path)[0], waveform)
        assert torch.equal(read_audio(path, start=0.01)[0], waveform[:, 480:])
        assert read_info(path).num_samples == length
    path.write_bytes(tag + data[: len(data) * 6 // 10])
    assert reason(path).startswith("truncated")


def test_what_looks_like_a_frame_of_a_flac_is_none(tmp_path: Path) -> None:
    """A header behind the samples, with a checksum of its own that holds, and no frame before it
    that ends there: what a decoder would make of it is not known."""
    waveform = noise(1, 20000)
    path = store(tmp_path / "a.flac", waveform)
    data = path.read_bytes()
    begin = data.index(b"\xff\xf8", 42)
    later = bytearray(data[begin : begin + 6])
    later[4] = 0x7F  # its number
    later[5] = _crc8(later[:5])
    path.write_bytes(data + later + bytes(1000))
    assert torch.equal(read_audio(path)[0], waveform)


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value << 1 ^ (0x107 if value & 0x80 else 0)
    return value


def test_an_mp3_whose_tag_counts_fewer_frames_than_follow_is_read_to_its_end(
    tmp_path: Path,
) -> None:
    whole = noise(1, 3 * RATE)
    path = store(tmp_path / "a.mp3", whole)
    data = path.read_bytes()
    tagged = read_audio(path)[0]
    at = next(place for name in (b"Xing", b"Info") if (place := data.find(name)) > 0)
    assert data[at + 7] & 3 == 3  # it counts frames and bytes
    frames = int.from_bytes(data[at + 8 : at + 12], "big")
    for fewer in (1, frames // 2, frames - 5):
        path.write_bytes(data[: at + 8] + fewer.to_bytes(4, "big") + data[at + 12 :])
        served = read_audio(path)[0]
        # Without the tag's word on the encoder's delay and padding: a frame or two more.
        assert 0 <= served.shape[1] - tagged.shape[1] < 3 * 1152
        assert read_info(path).num_samples == served.shape[1]


@pytest.mark.parametrize("encoding", ["VORBIS", "OPUS"])
def test_an_ogg_whose_last_page_is_damaged_says_so(tmp_path: Path, encoding: str) -> None:
    """Decoders pass over the page, and its samples are gone."""
    path = store(tmp_path / "a.ogg", noise(1, 2 * RATE), format="OGG", subtype=encoding)
    data = bytearray(path.read_bytes())
    assert read_audio(path)[0].shape == (1, 2 * RATE)
    data[-20] ^= 1
    path.write_bytes(data)
    assert reason(path).startswith("truncated")


def test_an_mp3_without_a_length_tag_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    # Near silence, then noise: the first frames are small, which misleads a guess from them.
    waveform = torch.cat([1e-3 * noise(1, RATE), noise(1, 3 * RATE)], dim=1)
    with soundfile.SoundFile(path, "w", RATE, 1, format="MP3", bitrate_mode="VARIABLE") as file:
        file.write(waveform.T.numpy())
    tagged = read_audio(path)[0]
    data = path.read_bytes()
    kbit = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)[data[2] >> 4]
    first_frame = 144 * kbit // 48 + (data[2] >> 1 & 1)
    assert b"Xing" in data[:first_frame] or b"Info" in data[:first_frame]
    for prefix in (b"", b"ID3\x03\0\0\0\0\x21\x00" + bytes(0x21 << 7)):
        path.write_bytes(prefix + data[first_frame:])
        untagged = read_audio(path)[0]
        # The tag also tells the encoder's delay and padding: a frame or two more without it.
        assert 0 <= untagged.shape[1] - tagged.shape[1] < 3 * 1152
        assert read_info(path).num_samples == untagged.shape[1]
        assert torch.equal(read_audio(path, start=1.0, duration=0.5)[0], untagged[:, 48000:72000])


def test_an_mp3_whose_tag_libmpg123_passes_over_is_read_to_its_end(tmp_path: Path) -> None:
    """Where it finds no tag, libsndfile guesses the length from the first frame."""
    path = tmp_path / "a.mp3"
    waveform = torch.cat([noise(1, 3 * RATE), 1e-3 * noise(1, RATE)], dim=1)
    with soundfile.SoundFile(path, "w", RATE, 1, format="MP3", bitrate_mode="VARIABLE") as file:
        file.write(waveform.T.numpy())
    tagged = read_audio(path)[0]
    data = path.read_bytes()
    at = next(place for name in (b"Xing", b"Info") if (place := data.find(name)) > 0)
    frames = data[data.find(b"\xff\xfb", at) :]
    start = frames[: frames.find(b"\xff\xfb", 2)]
    damaged = data[: at - 3] + b"\1" + data[at - 2 :]  # in the side information before it
    for changed in (damaged, start + data, b"rubbish" + damaged):  # or in the second frame
        path.write_bytes(changed)
        served = read_audio(path)[0]
        assert 0 <= served.shape[1] - tagged.shape[1] < 4 * 1152
        assert read_info(path).num_samples == served.shape[1]


@pytest.mark.parametrize("kind", ["WAV", "RF64", "AIFF", "W64", "CAF", "AU"])
def test_a_few_bytes_behind_the_samples_are_told_unless_they_are_padding(
    tmp_path: Path, kind: str
) -> None:
    waveform = noise(1, 9000)  # whole words of 64 bits, to which a W64 is filled up
    path = store(tmp_path / f"a.{kind.lower()}", waveform, format=kind, subtype="PCM_16")
    data = path.read_bytes()
    junk = np.random.default_rng(0).bytes(4096)
    tag = b"TAG" + b"title".ljust(125)
    for behind, told in (
        *((b"", 0), (bytes(4000), 0), (b"\xff" * 4000, 0), (tag, 0)),
        *((junk[:5], 5), (junk, 4096), (bytes(100) + junk[:7], 107)),
    ):
        path.write_bytes(data + behind)
        assert torch.equal(read_audio(path)[0], waveform), (kind, len(behind))
        assert read_info(path).trailing == told, (kind, len(behind))


def test_a_chunk_that_follows_an_odd_number_of_bytes_at_once_is_no_rubbish(tmp_path: Path) -> None:
    """A writer should fill the samples up to a whole word, and some do not."""
    path = store(tmp_path / "a.wav", noise(1, 1001), subtype="PCM_U8")
    data = path.read_bytes()[: 44 + 1001]
    for fill in (b"", b"\0"):
        path.write_bytes(data + fill + b"LIST" + struct.pack("<I", 4) + b"INFO")
        assert read_info(path).trailing == 0
        assert read_audio(path)[0].shape == (1, 1001)


def test_not_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "x.wav"
    folder.mkdir()
    assert reason(folder) == "not readable: not a regular file"
    assert reason(tmp_path / "missing.wav") == "not readable: No such file or directory"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    assert reason(tmp_path / "pipe.wav") == "not readable: not a regular file"


def test_the_error_is_one_line_and_survives_pickling() -> None:
    error = AudioError("a\nb\udcff.wav", "empty")
    assert isinstance(error, ValueError)
    assert str(error) == r"a\nb\udcff.wav: empty"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.reason) == (str(error), error.path, "empty")
