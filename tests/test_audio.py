from __future__ import annotations

import logging
import math
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from audiolm.audio import (
    AUDIO_SUFFIXES,
    AudioError,
    AudioInfo,
    convert_channels,
    find_audio_files,
    read_audio,
    read_info,
    replacing,
    resample,
    stream_audio,
    write_wav,
)

AUDIO = Path(__file__).resolve().parents[1].parent / "shared" / "audio"

RATE = 48000


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
    with pytest.raises(AudioError) as caught:
        read_audio(path)
    assert caught.value.path == path
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    return caught.value.reason


def cut(path: Path, fraction: float) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * fraction)])
    return path


# ---- Formats

LOSSLESS = [
    ("a.wav", "WAV", "PCM_16"),
    ("a.wav", "WAV", "PCM_24"),
    ("a.wav", "WAV", "PCM_32"),
    ("a.wav", "WAV", "FLOAT"),
    ("a.wav", "WAV", "DOUBLE"),
    ("a.wave", "WAVEX", "PCM_16"),
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
LOSSY = [  # with the least signal-to-noise ratio, in dB
    ("a.wav", "WAV", "ULAW", 25),
    ("a.wav", "WAV", "ALAW", 25),
    ("a.wav", "WAV", "PCM_U8", 30),
    ("a.wav", "WAV", "IMA_ADPCM", 20),
    ("a.wav", "WAV", "MS_ADPCM", 20),
    ("a.mp3", "MP3", "MPEG_LAYER_III", 20),
    ("a.ogg", "OGG", "VORBIS", 20),
    ("a.oga", "OGG", "VORBIS", 20),
    ("a.opus", "OGG", "OPUS", 20),
]


def test_every_suffix_is_tried() -> None:
    assert {Path(row[0]).suffix for row in LOSSLESS + LOSSY} == AUDIO_SUFFIXES


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


# ---- Resampling

RATES = [(48000, 24000), (44100, 24000), (16000, 24000), (8000, 48000), (22050, 16000)]


@pytest.mark.parametrize(("source", "target"), RATES)
def test_resampled_length_is_rounded_half_up(source: int, target: int) -> None:
    for num_samples in [0, 1, 2, 3, 5, 9, 100, 441, 10007]:
        resampled = resample(noise(2, num_samples), source, target)
        assert resampled.shape == (2, math.floor(num_samples * target / source + 0.5))
        assert resampled.is_contiguous()


@pytest.mark.parametrize(("source", "target"), RATES)
def test_resampling_keeps_time_phase_and_level(source: int, target: int) -> None:
    for frequency in (100.0, 1000.0, 3000.0):
        got = resample(tone(frequency, 1.0, source, phase=0.3), source, target)
        wanted = tone(frequency, 1.0, target, phase=0.3)
        inner = slice(target // 8, -target // 8)  # the cut ends ring
        assert torch.allclose(got[:, inner], wanted[:, inner], atol=1e-5)


def test_resampling_keeps_a_click_where_it_is() -> None:
    waveform = torch.zeros(1, 48000)
    waveform[0, 12000] = 1.0
    assert int(resample(waveform, 48000, 24000).abs().argmax()) == 6000
    assert int(resample(waveform, 48000, 16000).abs().argmax()) == 4000


@pytest.mark.parametrize(("source", "target"), [(48000, 24000), (44100, 16000), (24000, 8000)])
def test_no_alias_of_a_tone_just_above_the_new_band(source: int, target: int) -> None:
    above = tone(target / 2 * 1.01, 1.0, source)
    inner = resample(above, source, target)[:, target // 8 : -target // 8]
    level = 20 * math.log10(float(inner.square().mean().sqrt() / above.square().mean().sqrt()))
    assert level < -100


def test_resampling_to_the_same_rate_changes_nothing() -> None:
    waveform = noise(2, 100)
    assert resample(waveform, 8000, 8000) is waveform


def test_resampling_refuses() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        resample(noise(1, 10), 8000, 0)
    with pytest.raises(ValueError, match=r"torch\.float64 of shape \(1, 10\)"):
        resample(noise(1, 10).double(), 8000, 16000)
    with pytest.raises(ValueError, match="shape"):
        resample(noise(1, 10)[0], 8000, 16000)


# ---- Channels


def test_convert_channels() -> None:
    one, two, six = noise(1, 50), noise(2, 50), noise(6, 50)
    assert torch.equal(convert_channels(one, 1), one)
    assert torch.equal(convert_channels(two, 2), two)
    assert torch.equal(convert_channels(one, 2), torch.cat([one, one]))
    assert torch.equal(convert_channels(two, 1), (two[:1] + two[1:]) / 2)
    assert torch.equal(convert_channels(six, 2), convert_channels(convert_channels(six, 1), 2))
    for channels in (0, 3, 6):
        with pytest.raises(ValueError, match=f"channels is {channels}"):
            convert_channels(six, channels)


# ---- Streaming


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


# ---- Hostile files


@pytest.mark.parametrize("suffix", sorted(AUDIO_SUFFIXES))
def test_text_is_not_audio(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("this is no sound\n" * 100)
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


def test_truncation_is_told_in_seconds(tmp_path: Path) -> None:
    path = store(tmp_path / "a.wav", noise(1, 3 * RATE))
    path.write_bytes(path.read_bytes()[: 44 + 2 * 57600])
    assert reason(path) == "truncated: 1.200 s of 3.000 s"
    # What is there can still be had by asking for it.
    assert read_audio(path, duration=1.0)[0].shape == (1, RATE)
    with pytest.raises(AudioError, match="truncated"):
        read_audio(path, start=1.0, duration=0.5)


def test_a_single_missing_byte_is_told(tmp_path: Path) -> None:
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


def wav_with_sizes(path: Path, riff: int, data: int) -> Path:
    """Sizes as a writer to a pipe leaves them, which cannot go back and fill them in."""
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[4:8] = struct.pack("<I", riff)
    content[at : at + 4] = struct.pack("<I", data)
    path.write_bytes(content)
    return path


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


# ---- Finding


def names(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in find_audio_files(folder)]


def touch(folder: Path, *relative: str) -> None:
    for name in relative:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_finding_is_recursive_sorted_and_leaves_out_the_rest(tmp_path: Path) -> None:
    touch(
        tmp_path,
        *("b.wav", "a.FLAC", "sub/deep/c.Mp3", "sub.wav/d.ogg", "notes.txt", "e.wav.bak", "wav"),
        *(".hidden.wav", ".cache/f.wav", "sub/._c.wav", "é ü.wav", "new\nline.wav", "z z.opus"),
    )
    assert names(tmp_path) == [
        "a.FLAC",
        "b.wav",
        "new\nline.wav",
        "sub.wav/d.ogg",
        "sub/deep/c.Mp3",
        "z z.opus",
        "é ü.wav",
    ]


def test_odd_names_are_read(tmp_path: Path) -> None:
    waveform = noise(1, 100)
    for name in ("é ü 音.wav", "new\nline.wav", "  .wav", "-x.wav", "a'b\"c.wav"):
        write_wav(tmp_path / name, waveform, 8000)
        assert torch.equal(read_audio(tmp_path / name)[0], waveform)


def test_links_are_followed_and_never_loop(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    touch(data, "a/x.wav", "m/y.wav")
    touch(elsewhere, "z.wav", "in/w.wav")
    (data / "a" / "loop").symlink_to(data)
    (data / "a" / "self").symlink_to(data / "a")
    (data / "a" / "broken.wav").symlink_to(data / "nothing")
    (data / "a" / "circle.wav").symlink_to(data / "a" / "circle.wav")
    (data / "a" / "twin").symlink_to(data / "m")
    (data / "link").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(data)
    (data / "file.wav").symlink_to(elsewhere / "z.wav")
    assert names(data) == ["a/x.wav", "file.wav", "link/in/w.wav", "link/z.wav", "m/y.wav"]


def test_a_folder_that_is_missing_or_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*nothing"):
        find_audio_files(tmp_path / "nothing")
    touch(tmp_path, "notes.txt")
    with pytest.raises(NotADirectoryError, match=r"not a folder: .*notes\.txt"):
        find_audio_files(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match=r"no audio files in .* \.flac .* \.wav "):
        find_audio_files(tmp_path)


# ---- Writing


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_written_16_bit_is_within_one_step(tmp_path: Path, channels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    waveform = torch.rand(channels, 5000, generator=generator) * 2 - 1
    waveform[0, :3] = torch.tensor([1.0, -1.0, 0.0])
    path = tmp_path / "a.wav"
    assert write_wav(path, waveform, 24000) == 1.0
    read, rate = read_audio(path)
    assert rate == 24000
    assert float((read - waveform).abs().max()) <= 1 / 32768
    assert read_info(path) == AudioInfo(24000, channels, 5000, "WAV", "PCM_16")


def test_a_16_bit_recording_passes_through_unchanged(tmp_path: Path) -> None:
    every_value = (torch.arange(-32768, 32768).float() / 32768)[None]
    write_wav(tmp_path / "a.wav", every_value, 8000)
    assert torch.equal(read_audio(tmp_path / "a.wav")[0], every_value)


def test_other_subtypes(tmp_path: Path) -> None:
    waveform = torch.rand(2, 1000, generator=torch.Generator().manual_seed(0)) * 2 - 1
    write_wav(tmp_path / "a.wav", waveform, 8000, subtype="FLOAT")
    assert torch.equal(read_audio(tmp_path / "a.wav")[0], waveform)
    write_wav(tmp_path / "a.wav", waveform, 8000, subtype="PCM_24")
    assert float((read_audio(tmp_path / "a.wav")[0] - waveform).abs().max()) <= 2**-23
    with pytest.raises(ValueError, match="subtype is 'PCM_12'"):
        write_wav(tmp_path / "a.wav", waveform, 8000, subtype="PCM_12")


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
@pytest.mark.parametrize("peak", [1.001, 2.0, 1e6, -7.0])
def test_a_peak_over_full_scale_is_scaled_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, subtype: str, peak: float
) -> None:
    waveform = noise(2, 1000)
    waveform[1, 500] = peak
    with caplog.at_level(logging.WARNING):
        gain = write_wav(tmp_path / "a.wav", waveform, 8000, subtype=subtype)
    assert gain == pytest.approx(1 / abs(peak))
    assert f"{20 * math.log10(abs(peak)):+.2f} dBFS" in caplog.text
    read = read_audio(tmp_path / "a.wav")[0]
    assert float((read - waveform * gain).abs().max()) <= 1 / 32768 + 1e-7
    assert 1 - 1 / 32768 <= float(read.abs().max()) <= 1.0


def test_no_warning_within_full_scale(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert write_wav(tmp_path / "a.wav", torch.ones(1, 10), 8000) == 1.0
    assert not caplog.records


def test_half_precision_is_written(tmp_path: Path) -> None:
    waveform = tone(100, 0.1, 8000).to(torch.bfloat16)
    write_wav(tmp_path / "a.wav", waveform, 8000)
    assert float((read_audio(tmp_path / "a.wav")[0] - waveform.float()).abs().max()) <= 1 / 32768


@pytest.mark.parametrize(
    "waveform",
    [
        torch.tensor([[0.0, math.nan]]),
        torch.tensor([[math.inf, 0.0]]),
        torch.zeros(1, 0),
        torch.zeros(0, 5),
        torch.zeros(5),
        torch.zeros(1, 5, dtype=torch.int16),
    ],
)
def test_what_is_not_written(tmp_path: Path, waveform: Tensor) -> None:
    with pytest.raises(ValueError, match="waveform"):
        write_wav(tmp_path / "new" / "a.wav", waveform, 8000)
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made_and_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "a.wav"
    write_wav(path, noise(1, 100), 8000)
    write_wav(path, noise(2, 50), 16000)
    assert read_info(path) == AudioInfo(16000, 2, 50, "WAV", "PCM_16")
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.wav"
    write_wav(path, noise(1, 100), 8000)
    before = path.read_bytes()

    def half_written(file: Path, *arguments: object, **options: object) -> None:
        file.write_bytes(b"half")
        raise soundfile.LibsndfileError(2)

    monkeypatch.setattr(soundfile, "write", half_written)
    with pytest.raises(OSError, match=r"cannot write .*a\.wav"):
        write_wav(path, noise(1, 50), 8000)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a.wav").mkdir()
    with pytest.raises(OSError):
        write_wav(tmp_path / "a.wav", noise(1, 50), 8000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.wav"]


def test_replacing_removes_its_temporary_file_on_any_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("new")
        raise KeyboardInterrupt
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.txt", "old")]
    with replacing(path) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_text("new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.txt", "new")]


# ---- Real recordings


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


def test_a_full_disk_is_an_error_with_a_path(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("old")
    for error in (OSError(28, "No space left on device"), OSError("9 requested and 3 written")):
        message = r"kept\.json could not be written \(.*free some space"
        with pytest.raises(OSError, match=message), replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise error
    with pytest.raises(FileNotFoundError), replacing(path) as temporary:
        (tmp_path / "nowhere").read_text()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]
