"""What a person sees while they wait: that something moves, and how fast in words.

Imports nothing that takes time: it is among the first things that a script imports.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

FRAMES_PER_SECOND = 8
"""Of the spinner."""

_ERASE = b"\r\x1b[K"


class Spinner:
    """A line that moves on a terminal while something takes its time, and is gone afterwards.

    It goes to stderr, so that what is piped from stdout stays clean; where stderr is not a
    terminal, there is none. Nothing else may be printed meanwhile.

    Args:
        what: what takes its time, asked for again whenever the line is written; it may import
            nothing, as the main thread may hold the lock of an import.
    """

    def __init__(self, what: Callable[[], str]) -> None:
        self._what = what
        self._over = threading.Event()
        self._shown = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Write the line, and have it move from now on."""
        if not _is_terminal():
            return
        self._shown = True
        self._over.clear()
        write = self._frames()
        next(write)  # at once, whatever the thread has to wait for
        thread = threading.Thread(target=self._spin, args=(write,), daemon=True)
        thread.start()
        self._thread = thread  # Ctrl-C may call `stop` at any moment

    def stop(self) -> None:
        """Erase the line; where there is none, do nothing."""
        if not self._shown:
            return
        self._shown = False
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        _write(_ERASE)

    def _spin(self, write: Iterator[None]) -> None:
        while not self._over.wait(1 / FRAMES_PER_SECOND):
            next(write)

    def _frames(self) -> Iterator[None]:
        began = time.monotonic()
        for sign in itertools.cycle("|/-\\"):  # in every encoding
            seconds = time.monotonic() - began
            text = f"{sign} {self._what()}, {seconds:.0f} s"
            _write(_ERASE + text.encode("ascii", "backslashreplace"))
            yield


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Have a spinner say what takes its time, while the body does it, which prints nothing."""
    spinner = Spinner(lambda: what)
    spinner.start()
    try:
        yield
    finally:
        spinner.stop()


def audio_rate(audio_seconds: float, seconds: float) -> str:
    """How much audio is worked through in a minute, in the unit in which it is no small fraction.

    Args:
        audio_seconds: of audio.
        seconds: that they took.
    """
    rate = audio_seconds / max(seconds, 1e-9)  # minutes of audio a minute
    amount, unit = (rate / 60, "hours") if rate >= 60 else (rate, "minutes")
    if rate < 1:
        amount, unit = rate * 60, "seconds"
    shown = f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}"
    return f"{shown} {unit} of audio a minute"


def bar_interval() -> float:
    """Seconds between two states of a bar: often on a terminal, now and then in a log."""
    return 0.1 if _is_terminal() else 30.0


def _is_terminal() -> bool:
    try:
        return os.isatty(2)
    except OSError:
        return False


def _write(line: bytes) -> None:
    with suppress(OSError):  # a terminal that is gone stops nothing
        os.write(2, line)
