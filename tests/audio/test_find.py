from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audiolm.audio import find_audio_files, read_audio, write_wav

from ..signals import noise


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


def test_names_that_are_no_files_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "gone.wav").symlink_to(tmp_path / "nowhere.wav")
    assert find_audio_files(tmp_path) == [tmp_path / "a.wav"]
    assert [record.getMessage() for record in caplog.records] == [
        f"skipped {tmp_path / 'gone.wav'}: a link to nothing, or no file"
    ]
