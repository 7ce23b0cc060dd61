"""Decoding by libsndfile (through soundfile)."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
from numpy.typing import NDArray

from audiolm.audio.errors import AudioError
from audiolm.audio.formats.layout import Layout
from audiolm.audio.formats.source import DecodingError

SNDFILE_SUFFIXES: frozenset[str] = frozenset(
    {
        *(".wav", ".wave", ".rf64", ".w64"),
        *(".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2", ".mpga", ".bwf"),
        *(".aiff", ".aif", ".aifc", ".caf", ".au", ".snd"),
    }
)
"""Suffixes (lower case) of the formats that libsndfile reads."""

_UNKNOWN = 2**62  # libsndfile gives more samples than this for a length that it does not know


class UnsupportedEncodingError(AudioError):
    """A container that libsndfile knows, with an encoding in it that it does not."""


class _SoundFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no stubs
    """A SoundFile read front to back.

    soundfile seeks after each read of a seekable file and caps reads at the header's length; at the
    end of a FLAC file of unknown length that seek fails and loses the last samples.
    """

    def seekable(self) -> bool:
        return False


@dataclass
class SndfileSource:
    """A `Source` that libsndfile decodes."""

    path: Path
    file: _SoundFile
    num_samples: int | None
    promised: float
    tolerance: float = 0
    trailing: int = 0
    missing: float = 0  # these formats have no times
    _position: int = field(default=0, init=False)

    @property
    def sample_rate(self) -> int:
        return int(self.file.samplerate)

    @property
    def channels(self) -> int:
        return int(self.file.channels)

    @property
    def format(self) -> str:
        return str(self.file.format)

    @property
    def subtype(self) -> str:
        return str(self.file.subtype)

    @property
    def can_seek(self) -> bool:
        # libsndfile lands beside the place in the last page of a Vorbis file and in the last frames
        # of an MP3, and seeks in no GSM 6.10 at all (all seen).
        counted = self.num_samples is not None
        return counted and self.subtype.startswith(("PCM", "FLOAT", "DOUBLE"))

    def seek(self, sample: int) -> None:
        self._position = self.file.seek(sample)

    def read(self, count: int) -> NDArray[np.float32]:
        if self.num_samples is not None:
            # To look behind the last sample is an error where a FLAC has a tag or zeros there.
            count = min(count, self.num_samples - self._position)
        try:
            samples: NDArray[np.float32] = self.file.read(count, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise DecodingError("truncated or damaged: decoding fails") from error
        self._position += len(samples)
        return samples


@contextmanager
def open_sndfile(path: Path, layout: Layout) -> Iterator[SndfileSource]:
    """Raises AudioError for what libsndfile cannot open."""
    with path.open("rb") as raw:
        try:
            file = _SoundFile(_Adapted(raw, layout) if layout.adapted else sndfile_name(path))
        except soundfile.LibsndfileError as error:
            raise _not_opened(path, error) from error
        with file:
            # libsndfile takes what it does not know for bare samples, going by the file's suffix.
            if file.format == "RAW":
                raise AudioError(path, "not audio: no header that libsndfile knows")
            # The length of an MP3 in a WAV is a guess by its bit rate.
            guessed = file.subtype.startswith("MPEG") and file.format != "MP3"
            counted = layout.counted and file.frames < _UNKNOWN and not guessed
            promised: float = file.frames if counted else 0
            if layout.cut:
                promised = math.inf
            elif layout.held < layout.promised:
                # Rounded up, so that a single missing byte counts.
                whole = -(-file.frames * layout.promised // layout.held) if layout.held else 0
                promised = whole or math.inf
            num_samples = file.frames if counted else None
            yield SndfileSource(path, file, num_samples, promised, trailing=layout.trailing)


def sndfile_name(path: Path) -> Any:
    """The path as soundfile must be given it: as a `str` it fails on bytes that are not UTF-8."""
    return os.fsencode(path) if os.name == "posix" else path


def _not_opened(path: Path, error: soundfile.LibsndfileError) -> AudioError:
    text = str(error.error_string).strip().rstrip(".")
    if "unsupported encoding" in text:
        return UnsupportedEncodingError(path, f"not readable: {text}")
    if "alformed" in text:  # which libsndfile also says of AAC and AC-3 in a WAV
        reason = "damaged: a known format, but its header is malformed"
        return UnsupportedEncodingError(path, reason)
    return AudioError(path, "not audio: no format that libsndfile knows")


class _Adapted:
    """A file as libsndfile should see it: with the layout's patch, without junk, without an end."""

    def __init__(self, raw: BinaryIO, layout: Layout) -> None:
        self._raw = raw
        self._patches = layout.patches
        self._end = layout.end
        self._endless = not layout.counted
        self._skipped = layout.skipped
        self._at_end = False
        self.seek(0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at_end = self._endless and whence == io.SEEK_END
        if whence == io.SEEK_END and self._end is not None:
            self._raw.seek(self._end + offset)
        elif not self._at_end:
            self._raw.seek(offset + (self._skipped if whence == io.SEEK_SET else 0), whence)
        return self.tell()

    def tell(self) -> int:
        return 2**63 - 1 if self._at_end else self._raw.tell() - self._skipped

    def read(self, count: int) -> bytes:
        position = self._raw.tell()
        if self._end is not None:
            count = max(0, min(count, self._end - position))
        data = self._raw.read(count)
        for offset, replacement in self._patches:
            for index, byte in enumerate(replacement, start=offset - position):
                if 0 <= index < len(data):
                    data = data[:index] + bytes([byte]) + data[index + 1 :]
        return data
