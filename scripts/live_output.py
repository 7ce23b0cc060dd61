"""Sound that leaves a script while it is made: raw samples to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import BinaryIO

from torch import Tensor

from audiolm.audio import pcm_16


class RawSound:
    """Writes blocks of sound as bare 16-bit little-endian samples to a binary file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.num_samples = 0
        """Of each channel, so far."""
        self.clipped = 0
        """Samples of any channel that were beyond full scale."""

    def write(self, block: Tensor) -> None:
        """Add ``block`` (C, n), clipped to full scale."""
        pcm = pcm_16(block)
        self.file.write(pcm.data)
        self.file.flush()
        self.num_samples += block.shape[1]
        self.clipped += pcm.clipped


def play_hint(sample_rate: int, channels: int) -> str:
    """What raw sound is, and what to pipe it into."""
    layout = "mono" if channels == 1 else "stereo"
    return (
        f"raw sound, 16 bits little-endian, {sample_rate} Hz, {layout}; to hear it: "
        f"| aplay -f S16_LE -r {sample_rate} -c {channels}   or   "
        f"| ffplay -nodisp -autoexit -f s16le -ar {sample_rate} -ch_layout {layout} -"
    )


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output as a file of bytes; all else that is printed meanwhile goes to stderr.

    Whoever reads may leave (`head -c`): then the body ends at its next write, and that is no error.

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
