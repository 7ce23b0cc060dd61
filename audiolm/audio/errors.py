"""The one error of a file that cannot serve as audio."""

from __future__ import annotations

from pathlib import Path

from audiolm.files import one_line


class AudioError(ValueError):
    """A file that cannot serve as audio. `str` is one line, ``PATH: REASON``; it can be pickled."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{one_line(self.path)}: {self.reason}"


def reason_of(error: Exception) -> str:
    """Why a file is skipped, in one line and without its path, which stands beside it."""
    if isinstance(error, AudioError):
        text = error.reason
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror
    else:
        text = str(error)
    return " ".join(text.split())
