"""What is printed holds names that its encoding cannot write, and short memory is a line."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
import torch

from audiolm.cli.app import write_any_name
from audiolm.cli.errors import user_line


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("name", ["\u00e9.wav", "\u4e00.wav", os.fsdecode(b"\xff.wav")])
def test_any_name_can_be_printed(encoding: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdout", "stderr"):
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, stream, file)
        write_any_name()
        print(f"skipped {name}", file=file, flush=True)
        assert file.buffer.getvalue().decode(encoding).startswith("skipped ")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you")],
)
def test_short_memory_is_answered_in_one_line(error: Exception) -> None:
    line = user_line(error, "train")
    assert line is not None and "data.batch_size" in line and "\n" not in line


def test_torchs_own_error_of_memory_is_known() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50)
    assert user_line(raised.value, "train") is not None
    assert user_line(RuntimeError("a fault of ours"), "train") is None


def test_an_error_of_the_system_says_which_file() -> None:
    with pytest.raises(FileNotFoundError) as raised:
        Path("nowhere/at all").read_bytes()
    line = user_line(raised.value, "train")
    assert line == "nowhere/at all: No such file or directory; check that path"
