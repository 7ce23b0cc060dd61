"""SIGTERM ends a script as Ctrl-C does: what is half written goes, what is kept is said."""

from __future__ import annotations

import signal
import threading
from types import FrameType


def interrupt_on_sigterm() -> None:
    """Have the first SIGTERM raise KeyboardInterrupt; a second one kills at once.

    By default it ends the process between two instructions, and temporary files stay behind. A
    training has a handler of its own while it runs (`GracefulInterrupt`). Elsewhere than in the
    main thread, where Python takes no handlers, nothing changes.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt
