"""What the header of a file promises, for the formats that libsndfile reads.

What a header promises and what a file holds differ more often than one would think. libsndfile
shortens a cut WAV, AIFF, AU, W64 or Ogg to what is there and says nothing, takes a WAV of data size
0 (written to a pipe) for an empty one, and guesses the length of an MP3 without a length tag from
its first frame (a quarter of the true one was seen). So `read_layout` looks at the few bytes that
tell. Samples also lie behind what a header counts: of a recorder that crashed, or beyond the 4 GiB
that the field of a WAV holds.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import BinaryIO, NamedTuple

from audiolm.audio.formats.flac import SampleCount, count_samples, read_count
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
    joined: str = ""
    """The format, where another file of it follows behind the samples."""
    behind: int = 0
    """Bytes behind the sound that the header promises which are neither chunks nor padding."""
    counted: bool = True
    """False: libsndfile would guess the number of samples, so its length must be hidden."""
    patches: tuple[tuple[int, bytes], ...] = ()
    """Offsets, and the bytes that libsndfile should see there."""
    end: int | None = None
    """Bytes of the file that libsndfile should see; None: all."""
    trailing: int = 0
    """Bytes behind the sound that are none of these either, and too few to be taken for sound."""
    skipped: int = 0
    """Bytes before the first MP3 frame that are not a part of it, nor a tag."""

    @property
    def adapted(self) -> bool:
        """Whether libsndfile should see another file than lies there."""
        return bool(self.patches) or self.end is not None or self.skipped > 0 or not self.counted


class _Chunks(NamedTuple):
    """How a container lays out its chunks: id, size, body, id, size, body, ..."""

    name: str
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
    b"RIFF": _Chunks("WAV", 12, 4, "<I", b"data"),
    b"RIFX": _Chunks("WAV", 12, 4, ">I", b"data"),
    b"RF64": _Chunks("RF64", 12, 4, "<I", b"data"),  # EBU Tech 3306
    b"FORM": _Chunks("AIFF", 12, 4, ">I", b"SSND"),  # also AIFC
    b"riff": _Chunks("W64", 40, 16, "<q", b"data", counts_itself=True, align=8),
    b"caff": _Chunks("CAF", 8, 4, ">q", b"data", align=1),
}
_MAX_CHUNKS = 10_000  # a damaged file may hold millions of empty ones
# Bytes behind the last chunk that are not taken for sound, whatever they are: recorders that crash
# leave seconds behind the length that they wrote last, and programs leave tags of their own.
_MOST_TRAILING = 4096
_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN")  # ID3v1, APE, Lyrics3
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
        if is_placeholder(promised):
            return Layout(size, size - offset)
        trailing = _trailing(raw, offset + promised, size)
        if trailing > _MOST_TRAILING:
            raw.seek(offset + promised)
            return Layout(size, joined="AU" if raw.read(4) == magic else "", behind=trailing)
        return Layout(size, size - offset, promised, trailing=trailing)
    if magic == b"OggS":
        return _ogg_layout(raw, size)
    if (count := read_count(raw, id3_size(raw, 0))) is not None:
        return _flac_layout(raw, size, count)
    if magic[:3] == b"ID3" or (len(magic) == 4 and magic[0] == 0xFF and magic[1] & 0xE0 == 0xE0):
        return _mp3_layout(raw, size, id3_size(raw, 0))
    if suffix.lower() == ".mp3" and (start := find_frames(raw)) is not None:
        return _mp3_layout(raw, size, start)._replace(skipped=start)
    return Layout(size)


def _flac_layout(raw: BinaryIO, size: int, count: SampleCount) -> Layout:
    """A FLAC is read as far as its header counts, or as its frames do where these are more."""
    if not count.promised:
        return Layout(size)
    held = count_samples(raw, count, size)
    return Layout(size, patches=() if held == count.promised else (count.patch(held),))


def _mp3_layout(raw: BinaryIO, size: int, start: int) -> Layout:
    tag = read_tag(raw, start)
    if tag is not None and tag.covers_all:
        return Layout(size)
    # Where more frames follow than the tag tells of, as in MP3s that were joined, libsndfile would
    # stop after the first: without the tag's name it is a frame of silence like any other.
    patches = () if tag is None else ((tag.offset, bytes(4)),)
    return Layout(size, counted=False, patches=patches)


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
                return Layout(size, patches=((body - 4, b"\xff\xff\xff\xff"),))
            if is_placeholder(length):
                return Layout(size, size - body)
            return _sound_layout(raw, size, magic, body, length)
        if not 0 <= length <= size - body:
            break
        position = body + length + -length % chunks.align
    return Layout(size)


def _sound_layout(raw: BinaryIO, size: int, magic: bytes, body: int, length: int) -> Layout:
    """The layout of a file whose header tells of `length` bytes of sound from `body` on."""
    chunks = _CONTAINERS[magic]
    if body + length >= size:
        return Layout(size, size - body, length)
    end, joined = _end_of_chunks(raw, size, magic, body + length)
    if joined:
        return Layout(size, joined=chunks.name)
    trailing = _trailing(raw, end, size)
    if trailing <= _MOST_TRAILING:
        # libsndfile takes what follows in a W64 for sound.
        seen = body + length if chunks.name == "W64" else None
        return Layout(size, size - body, length, end=seen, trailing=trailing)
    if chunks.name != "WAV":
        return Layout(size, behind=size - end)
    # Its writer went on beyond 4 GiB, where the field begins again at 0; or never came to write it.
    sound = length
    while (sound := sound + 2**32) <= size - body:
        end, joined = _end_of_chunks(raw, size, magic, body + sound)
        if not joined and (trailing := _trailing(raw, end, size)) <= _MOST_TRAILING:
            break
    else:
        sound, trailing = size - body, 0
    # libsndfile reads a WAV of these two lengths to its end, wherever that is.
    eight = struct.pack(chunks.size_format, 8)
    return Layout(
        size,
        behind=size - body - length,
        patches=((4, eight), (body - 4, bytes(4))),
        end=body + sound,
        trailing=trailing,
    )


def _end_of_chunks(raw: BinaryIO, size: int, magic: bytes, position: int) -> tuple[int, bool]:
    """Where the chunks end that follow at `position`, and whether another file begins there.

    The first one also where a writer forgot to fill the samples up to a whole word.
    """
    aligned = min(size, position + -position % _CONTAINERS[magic].align)
    ends = [_walk_chunks(raw, size, magic, start) for start in {position, aligned}]
    return max(ends, key=lambda end: (end[1], end[0]))


def _walk_chunks(raw: BinaryIO, size: int, magic: bytes, position: int) -> tuple[int, bool]:
    chunks = _CONTAINERS[magic]
    header = chunks.id_bytes + struct.calcsize(chunks.size_format)
    for _ in range(_MAX_CHUNKS):
        raw.seek(position)
        fields = raw.read(header)
        if fields[:4] == magic:
            return position, True
        if len(fields) < header or not all(0x20 <= byte < 0x7F for byte in fields[:4]):
            break
        (length,) = struct.unpack(chunks.size_format, fields[chunks.id_bytes :])
        length += 0 if chunks.counts_itself else header
        if not header <= length <= size - position:
            break
        position += length + -length % chunks.align
    return position, False


def _trailing(raw: BinaryIO, position: int, size: int) -> int:
    """Bytes from `position` on that are neither a tag nor the padding of a block: zeros, or ones.

    What an erased block of flash memory holds is ones.
    """
    position += id3_size(raw, position)
    raw.seek(position)
    if size - position <= _MOST_TRAILING and raw.read(11).startswith(_TAGS):
        return 0
    raw.seek(position)
    fill = raw.read(1)
    raw.seek(position)
    while piece := raw.read(2**20):
        if fill not in b"\0\xff" or piece.strip(fill):
            return size - position
    return 0


def _samples_follow(raw: BinaryIO, body: int) -> bool:
    """After a data chunk of size 0: samples, and not the next chunk (whose id is printable)?"""
    raw.seek(body)
    following = raw.read(4)
    return len(following) > 0 and not all(0x20 <= byte < 0x7F for byte in following)


def _ogg_layout(raw: BinaryIO, size: int) -> Layout:
    """Whether the last Ogg page is incomplete or damaged: decoders pass over it and say nothing.

    RFC 3533, section 6. A page of 27 bytes of header, n lacing values and their sum of bytes is
    65,307 bytes at most.
    """
    raw.seek(max(0, size - 65307))
    tail = raw.read()
    start = tail.rfind(b"OggS")
    page = tail[start:]
    if start < 0 or len(page) < 27 or len(page) < (length := _ogg_page_bytes(page)):
        return Layout(size, cut=True)
    return Layout(size, cut=not _is_ogg_page(page[:length]))


def _ogg_page_bytes(page: bytes) -> int:
    return 27 + page[26] + sum(page[27 : 27 + page[26]])


def _is_ogg_page(page: bytes) -> bool:
    """Whether its checksum holds: that of zlib, but with the bits of all bytes in reverse."""
    stored = int.from_bytes(page[22:26], "little")
    mirrored = (page[:22] + bytes(4) + page[26:]).translate(_MIRRORED)
    value = zlib.crc32(mirrored, 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(value.to_bytes(4, "little").translate(_MIRRORED), "big") == stored


_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
