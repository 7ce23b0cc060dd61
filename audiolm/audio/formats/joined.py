"""Files that were joined as files: one stream behind another, of which decoders read the first.

    cat a.flac b.flac > both.flac       a radio's recording, a chained Ogg       cat a.wav b.wav

How long the first one is tells no header in bytes, so its successor's first bytes are looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from audiolm.audio.formats.mpeg import id3_size

_PIECE = 2**20  # bytes searched at a time
_FLAC = b"fLaC"
_OGG = b"OggS\0"
_OVERLAP = 8  # bytes of a stream's begin that are looked at
_BEGIN_OF_STREAM = 2  # in the sixth byte of an Ogg page


@lru_cache(maxsize=256)  # a list of parts of a long recording opens it for each of them
def joined_streams(path: Path, size: int, mtime_ns: int) -> str:
    """The format of a FLAC or Ogg file in which a stream follows another, else nothing.

    size, mtime_ns: of the file, which is read to its end. Raises OSError.
    """
    with path.open("rb") as raw:
        start = id3_size(raw, 0)
        raw.seek(start)
        magic = raw.read(4)
        if magic == _FLAC:
            return "FLAC" if any(map(_is_flac, _find(raw, _FLAC, start + 4))) else ""
        if magic == _OGG[:4]:
            # The first pages of streams that run side by side come first, before any other.
            begins = [page[5] & _BEGIN_OF_STREAM for page in _find(raw, _OGG, start)]
            others = begins.index(0) if 0 in begins else len(begins)
            return "Ogg" if any(begins[others:]) else ""
    return ""


def _is_flac(begin: bytes) -> bool:
    """RFC 9639, section 8: the marker, and a block of type 0, perhaps the last, of 34 bytes."""
    return begin[4:8] in (b"\0\0\0\x22", b"\x80\0\0\x22")


def _find(raw: BinaryIO, marker: bytes, start: int) -> Iterator[bytes]:
    """Eight bytes from each place on at which the marker stands, from byte `start` on."""
    raw.seek(start)
    held = b""
    while piece := raw.read(_PIECE):
        held += piece
        at = held.find(marker)
        while 0 <= at <= len(held) - _OVERLAP:
            yield held[at : at + _OVERLAP]
            at = held.find(marker, at + len(marker))
        held = held[max(0, len(held) - _OVERLAP + 1) :] if at < 0 else held[at:]
