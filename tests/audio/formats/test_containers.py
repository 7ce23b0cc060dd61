from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from audiolm.audio import (
    AUDIO_SUFFIXES,
    AudioError,
    find_audio_files,
    read_audio,
    read_info,
    stream_audio,
)
from audiolm.audio.formats.containers import CONTAINER_SUFFIXES, find_container
from audiolm.audio.formats.ffmpeg import has_ffmpeg
from audiolm.audio.formats.pyav import has_pyav

from ...hostile import encode, noise, tone

AUDIO = Path(__file__).resolve().parents[3].parent / "shared" / "audio"

OPEN = import_module("audiolm.audio.formats.open")
FFMPEG = import_module("audiolm.audio.formats.ffmpeg")

needs_pyav = pytest.mark.skipif(not has_pyav(), reason="needs PyAV")
needs_both = pytest.mark.skipif(not (has_pyav() and has_ffmpeg()), reason="needs PyAV and ffmpeg")

FILES = [  # name, codec, options of `encode`, container and encoding as reported
    ("a.m4a", "aac", {}, "MP4", "AAC"),
    ("a.m4b", "alac", {"form": "ipod"}, "MP4", "ALAC"),
    ("a.mp4", "aac", {"video": True}, "MP4", "AAC"),
    ("a.m4v", "aac", {"video": True, "form": "mp4"}, "MP4", "AAC"),
    ("a.mov", "pcm_s16le", {"video": True}, "MP4", "PCM_S16LE"),
    ("a.3gp", "aac", {}, "MP4", "AAC"),
    ("a.aac", "aac", {"form": "adts"}, "ADTS", "AAC"),
    ("a.mka", "flac", {"form": "matroska"}, "MATROSKA", "FLAC"),
    ("a.mkv", "libopus", {"video": True}, "MATROSKA", "OPUS"),
    ("a.webm", "libopus", {"video": True}, "MATROSKA", "OPUS"),
    ("a.weba", "libopus", {"form": "webm"}, "MATROSKA", "OPUS"),
    ("a.wma", "wmav2", {"form": "asf"}, "ASF", "WMAV2"),
    ("a.wmv", "wmav2", {"form": "asf", "video": True}, "ASF", "WMAV2"),
    ("a.avi", "pcm_s16le", {"video": True}, "AVI", "PCM_S16LE"),
    ("a.wv", "wavpack", {"form": "wv"}, "WAVPACK", "WAVPACK"),
    ("a.amr", "libopencore_amrnb", {"form": "amr", "rate": 8000}, "AMR", "AMR_NB"),
    ("a.3g2", "aac", {}, "MP4", "AAC"),
    ("a.m4r", "aac", {"form": "ipod"}, "MP4", "AAC"),
    ("a.qt", "pcm_s16le", {"form": "mov"}, "MP4", "PCM_S16LE"),
    ("a.f4v", "aac", {}, "MP4", "AAC"),
    ("a.asf", "wmav2", {"form": "asf"}, "ASF", "WMAV2"),
    ("a.flv", "libmp3lame", {"rate": 44100}, "FLV", "MP3"),
    ("a.ogv", "flac", {"form": "ogg"}, "OGG", "FLAC"),
    ("a.ogx", "flac", {"form": "ogg"}, "OGG", "FLAC"),
    ("a.mpg", "mp2", {"form": "mpeg"}, "MPEG-PS", "MP2"),
    ("a.mpeg", "mp2", {"form": "mpeg", "video": True}, "MPEG-PS", "MP2"),
    ("a.vob", "ac3", {"form": "vob"}, "MPEG-PS", "AC3"),
    ("a.ts", "aac", {"form": "mpegts"}, "MPEG-TS", "AAC"),
    ("a.mts", "mp2", {"form": "mpegts", "video": True}, "MPEG-TS", "MP2"),
    ("a.m2ts", "ac3", {"form": "mpegts", "options": {"mpegts_m2ts_mode": "1"}}, "MPEG-TS", "AC3"),
    ("a.ac3", "ac3", {}, "AC3", "AC3"),
    ("a.eac3", "eac3", {}, "EAC3", "EAC3"),
    ("a.tta", "tta", {}, "TTA", "TTA"),
    ("a.rm", "ac3", {"form": "rm"}, "REALMEDIA", "AC3"),
    ("ac3.wav", "ac3", {"form": "wav"}, "WAV", "AC3"),
]
NOT_ENCODED = {".spx", ".dts", ".ape", ".mpc", ".ra", ".rmvb", ".dsf"}  # PyAV writes none of these
PACKETS = {"MPEG-PS", "MPEG-TS", "AC3", "EAC3", "REALMEDIA"}  # which no header counts
SHARED = {"OGG", "WAV"}  # with libsndfile
HEADS = {  # the first bytes of each container
    "MP4": b"\0\0\0\x18ftypM4A \0\0\0\0M4A mp42",
    "MATROSKA": b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x01" + b"\xff" * 7 + bytes(30),
    "ASF": bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c") + b"\x18" + bytes(7),
    "AVI": b"RIFF\x10\0\0\0AVI LIST\x04\0\0\0movi",
    "WAVPACK": b"wvpk\x18\0\0\0" + bytes(24),
    "AMR": b"#!AMR\n\x3c" + bytes(31),
    "ADTS": b"\xff\xf1\x50\x80\x04\x1f\xfc" + bytes(25),
}


@pytest.fixture(params=["pyav", "ffmpeg"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The test with PyAV, and with the program alone."""
    if not has_pyav() or (request.param == "ffmpeg" and not has_ffmpeg()):
        pytest.skip("needs PyAV (which encodes) and the decoder to be tested")
    if request.param == "ffmpeg":
        monkeypatch.setattr(OPEN, "has_pyav", lambda: False)
    yield request.param


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither PyAV nor the program."""
    monkeypatch.setattr(OPEN, "has_pyav", lambda: False)
    monkeypatch.setattr(OPEN, "has_ffmpeg", lambda: False)


def sample(path: Path, codec: str, length: int = 30000, channels: int = 1, **more: Any) -> Path:
    rate = more.get("rate", 48000)
    encode(path, tone(path.name, channels, length, rate), codec, **more)
    return path


# ---- Formats


def test_every_suffix_is_tried() -> None:
    tried = {Path(row[0]).suffix for row in FILES} - {".wav"}
    assert tried | NOT_ENCODED == CONTAINER_SUFFIXES and not tried & NOT_ENCODED
    assert CONTAINER_SUFFIXES < AUDIO_SUFFIXES


@pytest.mark.parametrize(("name", "codec", "more", "container", "encoding"), FILES)
@needs_both
def test_pyav_and_ffmpeg_give_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    codec: str,
    more: dict[str, Any],
    container: str,
    encoding: str,
) -> None:
    path = sample(tmp_path / name, codec, **more)
    samples, info = read_audio(path)[0], read_info(path)
    assert (info.format, info.subtype) == (container, encoding)
    monkeypatch.setattr(OPEN, "has_pyav", lambda: False)
    assert read_info(path) == info
    again = read_audio(path)[0]
    assert again.shape == samples.shape == (1, info.num_samples)
    # The two bring versions of FFmpeg whose arithmetic differs in the last bits.
    assert torch.allclose(again, samples, rtol=0, atol=1e-6)


def test_a_part_is_a_slice_of_the_whole(tmp_path: Path, either: str) -> None:
    for name, codec in (("a.m4a", "aac"), ("a.webm", "libopus")):
        path = sample(tmp_path / name, codec, 96000)
        whole = read_audio(path)[0]
        assert torch.equal(read_audio(path, start=0.5, duration=0.75)[0], whole[:, 24000:60000])
        assert torch.equal(read_audio(path, start=1.5)[0], whole[:, 72000:])
        with pytest.raises(AudioError, match=r"empty from 3 s on: the file holds 2\.0\d\d s"):
            read_audio(path, start=3.0)


def test_joined_blocks_are_the_file(tmp_path: Path, either: str) -> None:
    path = sample(tmp_path / "a.m4a", "aac", 70001, 2)
    for rate, channels in ((None, None), (24000, 1)):
        whole, real_rate = read_audio(path, rate, channels)
        for block_duration in (0.01, 0.3333):
            *full, last = stream_audio(path, rate, channels, block_duration)
            assert {block.shape[1] for block in full} == {round(block_duration * real_rate)}
            assert torch.equal(torch.cat([*full, last], dim=1), whole)


def test_lossless_encodings_are_read_exactly(tmp_path: Path, either: str) -> None:
    for name, codec, more in (
        ("a.m4a", "alac", {}),
        ("a.mka", "flac", {"form": "matroska"}),
        ("a.avi", "pcm_s16le", {}),
        ("a.wv", "wavpack", {"form": "wv"}),
    ):
        samples = noise(name, 2, 30001)
        encode(tmp_path / name, samples, codec, **more)
        assert np.array_equal(read_audio(tmp_path / name)[0].numpy(), samples.astype(np.float32))


def test_values_over_full_scale_are_kept(tmp_path: Path, either: str) -> None:
    samples = 3 * noise("over", 1, 1000)
    encode(tmp_path / "a.mov", samples, "pcm_f32le")
    assert np.array_equal(read_audio(tmp_path / "a.mov")[0].numpy(), samples.astype(np.float32))


def test_the_first_audio_track_is_taken(tmp_path: Path, either: str) -> None:
    av: Any = import_module("av")
    tracks = [tone(f"track {index}", 1, 24000, 48000) for index in range(2)]
    with av.open(str(tmp_path / "a.mka"), "w", format="matroska") as file:
        streams = [file.add_stream("pcm_s16le", rate=48000, layout="mono") for _ in tracks]
        for stream, track in zip(streams, tracks, strict=True):
            steps = np.rint(track * 32767).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(steps, "s16", "mono")
            frame.sample_rate, frame.pts = 48000, 0
            file.mux(stream.encode(frame))
    read = read_audio(tmp_path / "a.mka")[0].numpy()
    assert np.abs(read - tracks[0]).max() < 1e-4


def test_content_decides_and_not_the_name(tmp_path: Path, either: str) -> None:
    path = sample(tmp_path / "a.m4a", "alac")
    whole = read_audio(path)[0]
    for name in ("a.wav", "a.mp3"):
        (tmp_path / name).write_bytes(path.read_bytes())
        assert torch.equal(read_audio(tmp_path / name)[0], whole)


def test_a_tag_before_bare_aac(tmp_path: Path, either: str) -> None:
    path = sample(tmp_path / "a.aac", "aac", form="adts")
    whole = read_audio(path)[0]
    path.write_bytes(b"ID3\x03\0\0\0\0\x01\x00" + bytes(128) + path.read_bytes())
    assert torch.equal(read_audio(path)[0], whole)


# ---- Where there is no FFmpeg


@pytest.mark.parametrize("name", sorted(HEADS))
def test_without_ffmpeg_the_remedy_is_reported(tmp_path: Path, nothing: None, name: str) -> None:
    path = tmp_path / "a.m4a"
    path.write_bytes(HEADS[name])
    assert find_audio_files(tmp_path) == [path]
    for read in (read_audio, read_info):
        with pytest.raises(AudioError) as caught:
            read(path)
        assert str(caught.value) == (
            f"{path}: not readable: {name} needs FFmpeg; "
            "put ffmpeg on the path, or pip install 'audiolm[formats]'"
        )


def test_what_needs_no_ffmpeg_does_not_ask_for_it(tmp_path: Path, nothing: None) -> None:
    (tmp_path / "a.m4a").write_text("no sound\n" * 100)
    with pytest.raises(AudioError, match="not audio: no format"):
        read_audio(tmp_path / "a.m4a")


# ---- Faults


def test_the_program_is_gone_when_the_reader_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (has_pyav() and has_ffmpeg()):
        pytest.skip("needs PyAV and ffmpeg")
    path = sample(tmp_path / "a.m4a", "aac", 480000)
    monkeypatch.setattr(OPEN, "has_pyav", lambda: False)
    started: list[subprocess.Popen[bytes]] = []

    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(FFMPEG.subprocess, "Popen", Watched)
    blocks = stream_audio(path, block_duration=0.1)
    next(blocks)
    assert started[-1].returncode is None
    blocks.close()
    read_audio(path, duration=0.1)
    with pytest.raises(AudioError):
        read_audio(path, start=100.0)
    assert len(started) >= 6
    assert all(process.returncode is not None for process in started)
    assert all(process.stdout is None or process.stdout.closed for process in started)


def test_a_file_that_is_cut_gives_its_good_blocks_first(tmp_path: Path, either: str) -> None:
    path = sample(tmp_path / "a.m4a", "aac", 96000, options={"movflags": "faststart"})
    whole = read_audio(path)[0]
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    blocks = stream_audio(path, block_duration=0.5)
    assert torch.equal(next(blocks), whole[:, :24000])
    with pytest.raises(AudioError, match=r"^[^:]*: truncated"):
        list(blocks)
    assert torch.equal(read_audio(path, duration=0.5)[0], whole[:, :24000])


@needs_pyav
@pytest.mark.parametrize(("name", "codec", "more", "container", "encoding"), FILES)
def test_a_single_missing_byte_is_reported(
    tmp_path: Path, name: str, codec: str, more: dict[str, Any], container: str, encoding: str
) -> None:
    path = sample(tmp_path / name, codec, **more)
    data = path.read_bytes()
    found = find_container(io.BytesIO(data))
    assert (found and found.name, found and found.cut) == (
        (None, None) if container in SHARED else (container, False)
    )
    path.write_bytes(data[:-1])
    # The last thing in an ASF may be an index, and in a TTA a checksum, which no sound depends on.
    if container not in {"ASF", "TTA", *PACKETS}:
        with pytest.raises(AudioError, match="truncated"):
            read_audio(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x18ftypM4A \0\0\0\0M4A mp42\0\0\0\0mdat" + bytes(100),  # to the file's end
        b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\x01" + b"\xff" * 7 + bytes(100),
        b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67\xff" + bytes(100),
        b"RIFF\xff\xff\xff\xffAVI LIST" + bytes(100),
        b"RIFF\0\0\0\0AVI LIST" + bytes(100),
        bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c") + b"\x18" + bytes(7)
        + bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c") + b"\x32" + bytes(100),
        b"wvpk\x18\0\0\0" + bytes(24) + b"APETAGEX" + bytes(100),
        b"\xff\xf1\x50\x80\x04\x1f\xfc" + bytes(25) + b"TAG" + bytes(125),
    ],
)  # fmt: skip
def test_lengths_that_are_not_given_promise_nothing(data: bytes) -> None:
    found = find_container(io.BytesIO(data))
    assert found is not None
    assert not found.cut


# ---- Real recordings


@pytest.mark.skipif(not AUDIO.is_dir(), reason="no recordings here")
@pytest.mark.parametrize(
    ("name", "codec", "rate", "least"),
    [("a.m4a", "aac", 48000, 20), ("a.webm", "libopus", 48000, 15)],
)
def test_recordings_keep_their_length_and_time(
    tmp_path: Path, either: str, name: str, codec: str, rate: int, least: float
) -> None:
    """An encoder's delay is taken off in front, its padding behind but for 2 ms."""
    original, _ = read_audio(AUDIO / "music" / "clip_48k_stereo.wav", duration=3.123)
    encode(tmp_path / name, original.numpy(), codec, rate)
    read, read_rate = read_audio(tmp_path / name)
    assert read_rate == rate
    length = original.shape[1]
    assert length <= read.shape[1] <= length + 96
    error = read[:, :length] - original
    ratio = 10 * torch.log10(original.square().mean() / error.square().mean())
    assert float(ratio) > least
    # A sample of delay would show: the ratio is worse at every other place.
    for shift in (-1, 1):
        moved = torch.roll(read[:, :length], shift, dims=1)
        assert (moved - original).square().mean() > error.square().mean()


# ---- Packets that are not there


def drain(path: Path) -> float:
    """Seconds that lack in the middle, by the file's times."""
    blocks = stream_audio(path)
    assert all(block.shape[1] for block in blocks)
    return blocks.missing


@needs_pyav
@pytest.mark.parametrize(("name", "codec", "more", "container", "encoding"), FILES)
def test_nothing_lacks_in_a_whole_file(
    tmp_path: Path, name: str, codec: str, more: dict[str, Any], container: str, encoding: str
) -> None:
    assert drain(sample(tmp_path / name, codec, **more)) == 0


@needs_pyav
@pytest.mark.parametrize(
    ("name", "codec", "more"),
    [
        ("a.ts", "aac", {"form": "mpegts"}),
        ("a.flv", "libmp3lame", {"rate": 44100}),
        ("a.mkv", "aac", {"form": "matroska"}),  # its header tells a length, too
    ],
)
def test_packets_that_were_cut_out_of_the_middle_are_told_by_their_times(
    tmp_path: Path, name: str, codec: str, more: dict[str, Any]
) -> None:
    """As of a stream that was recorded with gaps: every packet that is there is whole."""
    av: Any = import_module("av")
    path, cut = tmp_path / name, tmp_path / f"cut-{name}"
    sample(path, codec, 3 * 48000, **more)
    options = {"format": more["form"]} if "form" in more else {}
    with av.open(str(path)) as file, av.open(str(cut), "w", **options) as written:
        stream = written.add_stream_from_template(file.streams.audio[0])
        gone = 0.0
        for packet in file.demux(file.streams.audio[0]):
            if packet.dts is None:
                continue
            if 1 < float(packet.pts * packet.time_base) < 2:
                gone += float(packet.duration * packet.time_base)
                continue
            packet.stream = stream
            written.mux(packet)
    assert gone > 0.9
    blocks = stream_audio(cut)
    try:
        assert all(block.shape[1] for block in blocks)
    except AudioError as error:
        assert name == "a.mkv" and error.reason.startswith("truncated")
    assert blocks.missing == pytest.approx(gone, abs=0.05)
