from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from audiolm.audio import find_audio_files, read_audio, search_folder, write_wav
from audiolm.tokens.store import FORMAT

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


def test_what_is_passed_over_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "a.wav", "notes.txt", "sub/b.TXT", "sub/c.jpg", "README", ".hidden.txt")
    (tmp_path / "broken.wav").symlink_to("nothing")
    (tmp_path / "circle.mp3").symlink_to("circle.mp3")
    os.mkfifo(tmp_path / "pipe.ogg")
    found = search_folder(tmp_path)
    assert [path.name for path in found.files] == ["a.wav"]
    counts = {suffix: len(paths) for suffix, paths in found.others.items()}
    assert counts == {".txt": 2, ".jpg": 1, "": 1}
    assert {path.name: reason for path, reason in found.unusable.items()} == {
        "broken.wav": "a link to nothing",
        "circle.mp3": "a link to nothing",
        "pipe.ogg": "not a regular file",
    }


def test_what_this_program_wrote_is_no_recording(tmp_path: Path) -> None:
    touch(
        tmp_path,
        *("a.wav", "b.wav", "runs/one/samples/x.wav", "runs/one/generated/y.wav"),
        *("data/tokens/a-1/listen/z_decoded.wav", "data/demo/melody_0000.wav"),
        *("other/.hydra/config.yaml", "other/c.wav", "shop/d.wav", "out/sample_000.wav"),
    )
    for name, content in {
        "data/tokens/a-1/store.json": {"format": FORMAT},
        "data/demo/melodies.json": {"version": 1, "seed": 0, "num_melodies": 1},
        "out/sample_000.json": {"seed": 0, "checkpoint": "last.ckpt", "sampling": {}},
        "b.json": {"seed": 0, "speaker": "ann"},  # of a recording
        "shop/store.json": {"name": "corner"},
    }.items():
        (tmp_path / name).write_text(json.dumps(content))
    for name in (".hydra", "checkpoints"):
        (tmp_path / "runs/one" / name).mkdir()
    found = search_folder(tmp_path)
    listed = [path.relative_to(tmp_path).as_posix() for path in found.files]
    assert listed == ["a.wav", "b.wav", "other/c.wav", "shop/d.wav"]
    outputs = {path.relative_to(tmp_path).as_posix(): what for path, what in found.outputs.items()}
    assert outputs == {
        "runs/one": "a run",
        "data/tokens/a-1": "a token store",
        "data/demo": "melodies of the demo",
        "out/sample_000.wav": "a sample",
    }
    # A folder that is asked for by name is read, and tools find all.
    assert [path.name for path in search_folder(tmp_path / "data/demo").files] == [
        "melody_0000.wav"
    ]
    with pytest.raises(ValueError, match=r"sample_000\.wav: a sample, which this program wrote"):
        search_folder(tmp_path / "out")
    assert len(find_audio_files(tmp_path)) == 9
