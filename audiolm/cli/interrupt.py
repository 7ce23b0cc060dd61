"""Ctrl-C in the seconds that a script's imports take.

Imports nothing that takes time: it is among the first things that a script imports.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

STOPPED = 130
"""The exit code of a program that Ctrl-C has stopped, as shells give it."""

_before: list[Any] = []  # the handler there was


def stop_quietly(clean_up: Callable[[], None]) -> None:
    """Have Ctrl-C end the process in a line from now on, until `stop_as_usual`.

    clean_up: called before the line is written.

    As an exception it would come out of whatever module is half imported by then: as a traceback,
    or as an error that blames the installation.
    """
    if threading.current_thread() is not threading.main_thread() or _before:
        return  # Python allows no other thread
    handler = signal.getsignal(signal.SIGINT)
    if handler == signal.default_int_handler:  # not in the background, where it is to be ignored
        _before.append(handler)

        def stop(number: int, frame: FrameType | None) -> NoReturn:
            clean_up()
            _stop()

        signal.signal(signal.SIGINT, stop)


def stop_as_usual() -> None:
    """Have Ctrl-C be an exception again: from now on there is something to finish, or to save."""
    if _before:
        signal.signal(signal.SIGINT, _before.pop())


def _stop() -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, b"stopped\n")
    os._exit(STOPPED)  # nothing is open yet that an exit in good order would close
