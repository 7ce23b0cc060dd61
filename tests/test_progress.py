"""What moves while one waits, and rates in words."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from audiolm import progress
from audiolm.datasets.checks import check
from audiolm.progress import audio_rate, waiting
from audiolm.tokens.encoding import encode


@pytest.mark.parametrize(
    ("audio", "seconds", "words"),
    [
        (3600 * 31, 600, "3.1 hours of audio a minute"),
        (3600, 60, "1.0 hours of audio a minute"),
        (3599, 60, "60 minutes of audio a minute"),
        (300, 60, "5.0 minutes of audio a minute"),
        (60, 60, "1.0 minutes of audio a minute"),
        (30, 60, "30 seconds of audio a minute"),
        (3600 * 2000, 60, "2,000 hours of audio a minute"),
        (0, 60, "0.0 seconds of audio a minute"),
    ],
)
def test_rates_are_in_words(audio: float, seconds: float, words: str) -> None:
    assert audio_rate(audio, seconds) == words


def test_no_time_is_no_error() -> None:
    assert audio_rate(0.0, 0.0).endswith("of audio a minute")


def test_the_line_moves_and_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    moved = threading.Event()

    def write(line: bytes) -> None:
        written.append(line)
        if len(written) == 4:
            moved.set()

    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    monkeypatch.setattr(progress, "_write", write)
    with pytest.raises(ValueError, match="from inside"), waiting("söme work"):
        assert len(written) >= 1  # at once
        assert moved.wait(60)
        raise ValueError("from inside")
    assert [line[:4] for line in written[:4]] == [b"\r\x1b[K"] * 4
    assert [chr(line[4]) for line in written[:4]] == ["|", "/", "-", "\\"]
    assert all(b" s\\xf6me work, " in line for line in written[:-1])  # in every encoding
    assert written[-1] == b"\r\x1b[K"


def test_without_a_terminal_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(progress, "_is_terminal", lambda: False)
    monkeypatch.setattr(progress, "_write", written.append)
    with waiting("work"):
        pass
    assert written == []


def test_no_write_fails_on_a_terminal_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(file: int, line: bytes) -> int:
        raise OSError("gone")

    monkeypatch.setattr(progress.os, "write", gone)
    progress._write(b"x")


@pytest.mark.parametrize(("terminal", "seconds"), [(True, 0.1), (False, 30.0)])
def test_a_bar_moves_often_on_a_terminal_and_rarely_in_a_log(
    terminal: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_is_terminal", lambda: terminal)
    assert progress.bar_interval() == seconds


@pytest.mark.parametrize("of", ["check", "encoding"])
def test_a_log_holds_few_states_of_a_bar(of: str, capfd: pytest.CaptureFixture[str]) -> None:
    rows = np.zeros(1, [("sample_rate", int), ("size", int), ("num_samples", int)])
    bar: Any = check._Progress(500, 500, True) if of == "check" else encode._Progress(500.0, True)
    for _ in range(50):
        bar.advance(rows if of == "check" else 1.0)
        time.sleep(0.005)
    bar.close()
    assert capfd.readouterr().err.count("%") <= 2
