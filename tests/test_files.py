"""Files are whole or not there, and what cannot be written is told with a remedy."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from audiolm.audio import GrowingWav, write_wav
from audiolm.codec import EncodecCodec
from audiolm.files import check_writable, replacing
from audiolm.spectrogram import plot_spectrogram
from audiolm.synthesis.sample import write_json
from audiolm.training import AtomicCheckpointIO


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


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond 100 bytes meanwhile, which for a program is a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


WRITERS: dict[str, Callable[[Path, EncodecCodec], object]] = {
    "sample.wav": lambda path, _: write_wav(path, torch.zeros(1, 1000), 8000),
    "growing.wav": lambda path, _: write_growing_wav(path),
    "sample.json": lambda path, _: write_json(path.with_suffix(""), {"settings": "x" * 1000}),
    "sample.png": lambda path, _: plot_spectrogram(path, torch.zeros(1, 8000), 8000, ""),
    "codec.safetensors": lambda path, codec: codec.save(path.parent),
    "last.ckpt": lambda path, _: AtomicCheckpointIO().save_checkpoint(
        {"x": torch.ones(1000)}, path
    ),
}


def write_growing_wav(path: Path) -> None:
    with GrowingWav(path, 8000, 1) as file:
        file.write(torch.zeros(1, 1000))


@pytest.fixture(scope="module")
def codec(make_tiny_codec: Callable[..., EncodecCodec]) -> EncodecCodec:
    return make_tiny_codec()


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_told_in_a_line_by_whatever_writes(
    tmp_path: Path, name: str, codec: EncodecCodec
) -> None:
    path = tmp_path / "run" / name
    with full_disk(), pytest.raises(OSError, match=name.replace(".", r"\.")) as raised:
        WRITERS[name](path, codec)
    message = str(raised.value)
    assert "could not be written" in message and "; " in message and "\n" not in message
    assert not path.exists() and not list(path.parent.glob(".*"))
    WRITERS[name](path, codec)  # with space it is written
    assert path.stat().st_size > 100


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_in_the_way_of_a_folder_is_named(
    tmp_path: Path, name: str, codec: EncodecCodec
) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(OSError) as raised:
        WRITERS[name](tmp_path / "run" / name, codec)
    assert "run" in str(raised.value)
    if name != "last.ckpt":  # whose folder is made by the run
        assert "could not be written (" in str(raised.value)
        assert "a file stands where a folder is needed" in str(raised.value)


def test_what_could_not_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("new", "new/below", "."):
        check_writable(tmp_path / name, "out", folder=True)
    check_writable(tmp_path / "file", "out", folder=False)
    check_writable(tmp_path / "new" / "file", "out", folder=False)
    for name, folder, kind, message in (
        ("file", True, NotADirectoryError, "is a file; name another folder"),
        ("file/below", True, NotADirectoryError, "is a file; name another folder"),
        ("file/below", False, NotADirectoryError, "is a file; name another folder"),
        (".", False, IsADirectoryError, "is a folder; give the name of a file"),
    ):
        with pytest.raises(kind, match=f"^out=.*{message}"):
            check_writable(tmp_path / name, "out", folder=folder)
    for folder, remedy in ((True, "pass out=DIR"), (False, "pass out=FILE")):
        file = re.escape(str(tmp_path / "file"))
        with pytest.raises(NotADirectoryError, match=f"^{file}/below: {file} is a .*; {remedy}$"):
            check_writable(tmp_path / "file" / "below", "out", folder=folder, given=False)
