"""Sound that leaves a script while it is made: raw samples to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import BinaryIO


def play_hint(sample_rate: int, channels: int) -> str:
    """What raw sound is, and what to pipe it into."""
    layout = "mono" if channels == 1 else "stereo"
    return (
        f"raw sound, 16 bits little-endian, {sample_rate} Hz, {layout}; to listen to it: "
        f"| aplay -f S16_LE -r {sample_rate} -c {channels}   or   "
        f"| ffplay -nodisp -autoexit -f s16le -ar {sample_rate} -ch_layout {layout} -"
    )


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output as a file of bytes; all else that is printed meanwhile goes to stderr.

    Whoever reads may leave (`head -c`): then the body ends at its next write, and that is not an
    error.

    Raises:
        ValueError: standard output is a terminal, or closed.
    """
    # Python's, for whatever file is opened first takes the place of a closed one.
    if sys.stdout is None:
        raise ValueError(
            "out=- writes raw sound to standard output, which is closed; pipe it into a player or "
            "a file, or pass out=DIR"
        )
    if os.isatty(1):
        raise ValueError(
            "out=- writes raw sound, which a terminal cannot show; pipe it into a player, such as "
            "| aplay -f S16_LE -r RATE, or into a file"
        )
    sys.stdout.flush()
    raw = os.dup(1)
    os.dup2(2, 1)  # for what holds the old sys.stdout, such as a logger, or writes from C
    try:
        with redirect_stdout(sys.stderr), os.fdopen(raw, "wb", closefd=False) as file:
            yield file
    except BrokenPipeError:
        pass
    finally:
        sys.stdout.flush()
        os.dup2(raw, 1)
        os.close(raw)
