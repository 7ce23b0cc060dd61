"""What the header of a file promises, for the formats that libsndfile reads.

What a header promises and what a file holds differ more often than one would think. libsndfile
shortens a cut WAV, AIFF, AU, W64 or Ogg to what is there and says nothing, takes a WAV of data size
0 (written to a pipe) for an empty one, and guesses the length of an MP3 without a length tag from
its first frame (a quarter of the true one was seen). So `read_layout` looks at the few bytes that
tell.
"""

from __future__ import annotations

import io
import struct
from typing import BinaryIO, NamedTuple

from audiolm.audio.formats.mpeg import find_frames, id3_size, read_tag


class Layout(NamedTuple):
    size: int
    """Bytes of the file."""
    held: int = 0
    """Bytes of sound in it, ..."""
    promised: int = 0
    """... and as many as its header promises; less than `held` where it promises nothing."""
    cut: bool = False
    """Ends in the middle of a page of a stream whose length no header tells."""
    chained: bool = False
    """One stream follows another, and libsndfile would read the first alone."""
    counted: bool = True
    """False: libsndfile would guess the number of samples, so its length must be hidden."""
    patch: tuple[int, bytes] | None = None
    """Offset, and the bytes that libsndfile should see there."""
    skipped: int = 0
    """Bytes before the first MP3 frame that are not a part of it, nor a tag."""


class _Chunks(NamedTuple):
    """How a container lays out its chunks: id, size, body, id, size, body, ..."""

    first: int
    """Offset of the first chunk."""
    id_bytes: int
    size_format: str
    sound: bytes
    """The id of the chunk that holds the samples."""
    counts_itself: bool = False
    """Whether a chunk's size includes its id and size."""
    align: int = 2


_CONTAINERS = {
    b"RIFF": _Chunks(12, 4, "<I", b"data"),  # WAV
    b"RIFX": _Chunks(12, 4, ">I", b"data"),
    b"RF64": _Chunks(12, 4, "<I", b"data"),  # EBU Tech 3306
    b"FORM": _Chunks(12, 4, ">I", b"SSND"),  # AIFF, AIFC
    b"riff": _Chunks(40, 16, "<q", b"data", counts_itself=True, align=8),  # W64
    b"caff": _Chunks(8, 4, ">q", b"data", align=1),
}
_MAX_CHUNKS = 10_000  # a damaged file may hold millions of empty ones
_RF64_DATA_SIZE = 28  # offset of the 64-bit size in the ds64 chunk, which comes first


def read_layout(raw: BinaryIO, suffix: str) -> Layout:
    """The layout of a file, by its first bytes and, for Ogg, its last.

    In a file of the suffix .mp3 (and no other, as in libsndfile), frames may come after junk.
    """
    size = raw.seek(0, io.SEEK_END)
    raw.seek(0)
    magic = raw.read(4)
    if magic in _CONTAINERS:
        return _chunk_layout(raw, size, magic)
    if magic == b".snd" and size >= 12:
        offset, promised = struct.unpack(">II", raw.read(8))
        return Layout(size, size - offset, 0 if is_placeholder(promised) else promised)
    if magic == b"OggS":
        return _ogg_layout(raw, size)
    if magic[:3] == b"ID3" or (len(magic) == 4 and magic[0] == 0xFF and magic[1] & 0xE0 == 0xE0):
        return _mp3_layout(raw, size, id3_size(raw, 0))
    if suffix.lower() == ".mp3" and (start := find_frames(raw)) is not None:
        return _mp3_layout(raw, size, start)._replace(skipped=start)
    return Layout(size)


def _mp3_layout(raw: BinaryIO, size: int, start: int) -> Layout:
    tag = read_tag(raw, start)
    if tag is not None and tag.covers_all:
        return Layout(size)
    # Where more frames follow than the tag tells of, as in MP3s that were joined, libsndfile would
    # stop after the first: without the tag's name it is a frame of silence like any other.
    return Layout(size, counted=False, patch=None if tag is None else (tag.offset, bytes(4)))


def is_placeholder(length: int) -> bool:
    """Sizes that writers to a pipe leave: 0, all ones, or the largest of a signed integer."""
    return length <= 0 or 0x7F000000 <= length <= 0x80000000 or 0xFFFF0000 <= length <= 0xFFFFFFFF


def _chunk_layout(raw: BinaryIO, size: int, magic: bytes) -> Layout:
    chunks = _CONTAINERS[magic]
    header = chunks.id_bytes + struct.calcsize(chunks.size_format)
    position = chunks.first
    for _ in range(_MAX_CHUNKS):
        raw.seek(position)
        fields = raw.read(header)
        if len(fields) < header:
            break
        (length,) = struct.unpack(chunks.size_format, fields[chunks.id_bytes :])
        if chunks.counts_itself:
            length -= header
        body = position + header
        if fields[:4] == chunks.sound:
            if magic == b"RF64" and length == 0xFFFFFFFF:
                raw.seek(_RF64_DATA_SIZE)
                length = int.from_bytes(raw.read(8), "little")
            if magic == b"RIFF" and length == 0 and _samples_follow(raw, body):
                return Layout(size, patch=(body - 4, b"\xff\xff\xff\xff"))
            return Layout(size, size - body, 0 if is_placeholder(length) else length)
        if not 0 <= length <= size - body:
            break
        position = body + length + -length % chunks.align
    return Layout(size)


def _samples_follow(raw: BinaryIO, body: int) -> bool:
    """After a data chunk of size 0: samples, and not the next chunk (whose id is printable)?"""
    raw.seek(body)
    following = raw.read(4)
    return len(following) > 0 and not all(0x20 <= byte < 0x7F for byte in following)


def _ogg_layout(raw: BinaryIO, size: int) -> Layout:
    """Whether the last Ogg page is incomplete, or of a stream that does not start at the front.

    RFC 3533, section 6. A page of 27 bytes of header, n lacing values and their sum of bytes is
    65,307 bytes at most; the first pages of all streams that run side by side come first.
    """
    raw.seek(max(0, size - 65307))
    tail = raw.read()
    start = tail.rfind(b"OggS")
    page = tail[start:]
    if start < 0 or len(page) < 27 or len(page) < _ogg_page_bytes(page):
        return Layout(size, cut=True)
    serials = set()
    position = 0
    for _ in range(_MAX_CHUNKS):
        raw.seek(position)
        first = raw.read(27 + 255)
        if len(first) < 27 or first[:4] != b"OggS" or not first[5] & 2:
            break
        serials.add(first[14:18])
        position += _ogg_page_bytes(first)
    return Layout(size, chained=len(serials) > 0 and page[14:18] not in serials)


def _ogg_page_bytes(page: bytes) -> int:
    return 27 + page[26] + sum(page[27 : 27 + page[26]])
