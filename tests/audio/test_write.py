from __future__ import annotations

import errno
import io
import logging
import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from torch import Tensor

import audiolm.audio.write as module
from audiolm.audio import AudioInfo, GrowingWav, pcm_16, read_audio, read_info, write_wav

from ..signals import noise, tone


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
def test_a_peak_over_full_scale_is_scaled_and_reported(
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

    def half_written(file: bytes, *arguments: object, **options: object) -> None:
        Path(os.fsdecode(file)).write_bytes(b"half")
        raise soundfile.LibsndfileError(2)

    monkeypatch.setattr(soundfile, "write", half_written)
    with pytest.raises(OSError, match=r"^[^(]*a\.wav could not be written [^/]*$"):
        write_wav(path, noise(1, 50), 8000)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a.wav").mkdir()
    with pytest.raises(OSError):
        write_wav(tmp_path / "a.wav", noise(1, 50), 8000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.wav"]


def test_a_growing_file_is_whole_at_every_moment(tmp_path: Path) -> None:
    path, part = tmp_path / "new" / "a.wav", tmp_path / "new" / "a.part.wav"
    blocks = [noise(2, n, seed=n) for n in (1, 700, 3, 50_000, 1)]
    with GrowingWav(path, 24000, 2) as file:
        assert file.part == part and soundfile.info(part).frames == 0
        for i, block in enumerate(blocks, start=1):
            file.write(block)
            so_far = torch.cat(blocks[:i], dim=1)
            assert torch.equal(read_audio(part)[0], so_far)
            assert file.num_samples == so_far.shape[1] and file.clipped == 0
            assert struct.unpack("<I", part.read_bytes()[4:8])[0] == part.stat().st_size - 8
        assert not path.exists()
    assert list(path.parent.iterdir()) == [path]
    assert read_info(path) == AudioInfo(24000, 2, 50_705, "WAV", "PCM_16")
    write_wav(tmp_path / "b.wav", torch.cat(blocks, dim=1), 24000)
    assert torch.equal(read_audio(path)[0], read_audio(tmp_path / "b.wav")[0])


def test_a_growing_file_clips_and_counts(tmp_path: Path) -> None:
    with GrowingWav(tmp_path / "a.wav", 8000, 1) as file:
        file.write(torch.tensor([[0.5, 1.0, -1.0, 1.5]]))
        file.write(torch.tensor([[-7.0, 0.0]]))
    assert file.clipped == 2
    steps = (read_audio(tmp_path / "a.wav")[0] * 32768).tolist()
    assert steps == [[16384, 32767, -32768, 32767, -32768, 0]]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
def test_an_interrupted_file_keeps_what_there_is(
    tmp_path: Path, error: type[BaseException]
) -> None:
    before = noise(1, 500)
    with pytest.raises(error), GrowingWav(tmp_path / "a.wav", 8000, 1) as file:
        file.write(before)
        raise error
    assert torch.equal(read_audio(tmp_path / "a.wav")[0], before)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.wav"]


def test_a_growing_file_without_sound_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"of before")
    for block in (torch.zeros(1, 0), torch.tensor([[math.nan]])):
        with pytest.raises(ValueError), GrowingWav(tmp_path / "a.wav", 8000, 1) as file:
            file.write(block)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.wav"]
    assert (tmp_path / "a.wav").read_bytes() == b"of before"


def test_a_full_file_is_reported_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAV_LIMIT", 2000)
    with (
        pytest.raises(OSError, match=r"a\.wav is full: a WAV file holds 4 GiB"),
        GrowingWav(tmp_path / "a.wav", 8000, 1) as file,
    ):
        for _ in range(9):
            file.write(noise(1, 300))
    assert read_info(tmp_path / "a.wav").num_samples == 900


class FullDisk(io.FileIO):
    """A file on a disk that has room for so many bytes, and says so once more when it is closed."""

    room = 0

    def write(self, data: Any) -> int:
        left = self.room - self.tell()
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(bytes(data)[:left])


@pytest.mark.parametrize("room", [0, 20, 44, 45, 643, 644, 645, 1000, 1300])
def test_a_full_disk_is_reported_once_and_keeps_the_whole_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    original = Path.open

    def full(self: Path, mode: str = "r", *more: Any) -> Any:
        return io.BufferedWriter(FullDisk(self, mode)) if mode == "wb" else original(self, mode)

    monkeypatch.setattr(FullDisk, "room", room)
    monkeypatch.setattr(Path, "open", full)
    blocks = [noise(1, 300) for _ in range(5)]
    with (
        pytest.raises(
            OSError, match=r"a\.wav could not be written .* free some space there"
        ) as error,
        GrowingWav(tmp_path / "a.wav", 8000, 1) as file,
    ):
        for block in blocks:
            file.write(block)
    assert "\n" not in str(error.value)
    whole = max(0, room - 44) // 600
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.wav"][:whole]
    if whole:
        assert read_info(tmp_path / "a.wav").num_samples == 300 * whole == file.num_samples
        assert (tmp_path / "a.wav").stat().st_size == 44 + 600 * whole
        kept = (tmp_path / "a.wav").read_bytes()[44:]
        assert kept == b"".join(pcm_16(block).data for block in blocks[:whole])
        with pytest.raises(ValueError, match=r"a\.wav is closed"):
            file.write(blocks[0])


def test_a_block_that_is_not_the_files_is_refused(tmp_path: Path) -> None:
    with GrowingWav(tmp_path / "a.wav", 8000, 2) as file:
        file.write(noise(2, 10))
        with pytest.raises(ValueError, match=r"shape \(1, 11\) .*a\.wav: give it \(2, samples\)"):
            file.write(noise(1, 11))
    assert read_info(tmp_path / "a.wav").num_samples == 10
    for _ in range(2):
        file.close()
        with pytest.raises(ValueError, match=r"a\.wav is closed"):
            file.write(noise(2, 10))


def test_raw_samples_are_those_of_the_file(tmp_path: Path) -> None:
    waveform = torch.cat([noise(2, 100), torch.tensor([[3.0, 0.1], [-0.1, -3.0]])], dim=1)
    with GrowingWav(tmp_path / "a.wav", 8000, 2) as file:
        file.write(waveform)
    data, clipped = pcm_16(waveform)
    assert clipped == 2
    assert (tmp_path / "a.wav").read_bytes()[44:] == data
    assert pcm_16(torch.tensor([[0.5], [-0.5]])).data == struct.pack("<hh", 16384, -16384)
