from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.model.checkpoint import read_checkpoint
from audiolm.training.callbacks.checkpoints import AtomicCheckpointIO


def checkpoint(value: float) -> dict[str, Any]:
    return {"state_dict": {"weight": torch.full((1000,), value)}, "global_step": 3}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(checkpoint(1.0), path)
    return path


def test_what_is_saved_is_read_back_and_nothing_else_is_left(saved: Path) -> None:
    loaded = AtomicCheckpointIO().load_checkpoint(saved)
    assert loaded["global_step"] == 3
    torch.testing.assert_close(loaded["state_dict"]["weight"], torch.ones(1000))
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("moment", ["torch.save", "os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_save_that_ends_half_way_keeps_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: Any
) -> None:
    def stop(*args: Any) -> None:
        raise error

    monkeypatch.setattr(moment, stop)
    with pytest.raises((KeyboardInterrupt, OSError)):
        AtomicCheckpointIO().save_checkpoint(checkpoint(2.0), saved)
    assert read_checkpoint(saved)["state_dict"]["weight"][0] == 1.0
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_full_disk_is_an_os_error_that_names_the_file(saved: Path, size: int) -> None:
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old_limit[1]))
    try:
        with pytest.raises(
            OSError, match=r"last.ckpt: the checkpoint could not be written .*ckpt_path=last"
        ):
            AtomicCheckpointIO().save_checkpoint({"state_dict": torch.zeros(size)}, saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert read_checkpoint(saved)["state_dict"]["weight"][0] == 1.0


def test_what_an_earlier_kill_left_is_removed(saved: Path) -> None:
    (saved.parent / ".step=5.ckpt.partial").write_bytes(b"PK half a file")
    AtomicCheckpointIO().save_checkpoint(checkpoint(2.0), saved)
    assert [p.name for p in saved.parent.iterdir()] == ["last.ckpt"]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        read_checkpoint(tmp_path / "none.ckpt")


class Payload:
    """An object that would write a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("empty", r"cut short \(0 bytes\)"),
        ("half", "cut short"),
        ("text", "is not a checkpoint"),
        ("flipped", "is damaged"),
        ("zip", "is not a training checkpoint"),
        ("object", "could run code"),
        ("tensor", "no 'state_dict'"),
        ("weights", "no 'state_dict'"),
    ],
)
def test_a_bad_file_is_one_line_with_path_and_remedy(
    saved: Path, content: str, message: str
) -> None:
    whole = saved.read_bytes()
    ran = saved.with_name("ran")
    if content == "empty":
        saved.write_bytes(b"")
    elif content == "half":
        saved.write_bytes(whole[: len(whole) // 2])
    elif content == "text":
        saved.write_text("not a checkpoint\n")
    elif content == "flipped":
        middle = len(whole) // 2
        saved.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    elif content == "zip":
        with zipfile.ZipFile(saved, "w") as archive:
            archive.writestr("readme.txt", "not a checkpoint")
    elif content == "object":
        torch.save({"state_dict": {}, "hyper_parameters": Payload(ran)}, saved)
    else:
        torch.save(torch.zeros(3) if content == "tensor" else {"weight": torch.zeros(3)}, saved)
    with pytest.raises(ValueError, match=message) as caught:
        AtomicCheckpointIO().load_checkpoint(saved, weights_only=False)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not ran.exists()
