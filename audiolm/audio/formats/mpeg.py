"""MP3 files: the tags around their frames, and where those begin and end."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

_SEARCHED = 65536  # bytes in which the first frame is looked for, as libmpg123 does
_LARGEST = 2881  # bytes of a frame: 320 kbit/s at 16 kHz, padded
_KBITS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)  # MPEG-1
_KBITS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)  # MPEG-2 and 2.5
_RATES = (44100, 48000, 32000, 0)  # Hz; half of it in MPEG-2, a quarter in 2.5


class LengthTag(NamedTuple):
    """A Xing, Info or VBRI tag in the first frame, which tells how many frames there are."""

    offset: int
    """Of its name in the file."""
    covers_all: bool
    """False: more frames follow those that it tells of, or libmpg123 does not find it."""


def id3_size(raw: BinaryIO, start: int) -> int:
    """Bytes of the ID3v2 tag at ``start``; 0 without one."""
    raw.seek(start)
    head = raw.read(10)
    if head[:3] != b"ID3" or len(head) < 10:
        return 0
    # ID3v2.3, section 3.1: the tag's size is four times seven bits.
    size = 0
    for byte in head[6:]:
        size = size << 7 | byte & 0x7F
    return 10 + size


def find_frames(raw: BinaryIO) -> int | None:
    """Offset of the first three frames in a row, where there are any near the file's begin."""
    raw.seek(0)
    data = raw.read(_SEARCHED + 3 * _LARGEST)
    start = data.find(b"\xff")
    while 0 <= start < _SEARCHED:
        if _frames_at(data, start):
            return start
        start = data.find(b"\xff", start + 1)
    return None


def read_tag(raw: BinaryIO, start: int) -> LengthTag | None:
    """The tag of the first frame, which begins at ``start`` or a little behind it."""
    raw.seek(start)
    head = raw.read(2048 + 3 * _LARGEST)
    found = [at for name in (b"Xing", b"Info", b"VBRI") if 0 <= (at := head.find(name)) < 2048]
    if not found:
        return None
    at = min(found)
    frame = next((i for i in range(at) if _frame_bytes(head[i : i + 4]) > at - i), 0)
    if head[at : at + 4] == b"VBRI":
        field, counted = head[at + 10 : at + 14], head[at + 14 : at + 18]
    else:
        flags = int.from_bytes(head[at + 4 : at + 8], "big")
        field = head[at + 8 + 4 * (flags & 1) :][:4] if flags & 2 else b""
        counted = head[at + 8 : at + 12] if flags & 1 else b""
    length, frames = int.from_bytes(field, "big"), int.from_bytes(counted, "big")
    follows = length > 0 and _frames_follow(raw, start + frame + length)
    follows = follows or (frames > 0 and _are_more_frames(raw, start + frame, frames))
    return LengthTag(start + at, covers_all=not follows and _is_seen(head, frame, at))


def _is_seen(head: bytes, frame: int, at: int) -> bool:
    """Whether libmpg123, too, finds a tag at ``at``: else libsndfile guesses the length.

    It looks in the very first frame, behind side information that is empty. (A VBRI it never
    reads.) With a checksum in the frame, which versions of it take differently, this is not sure.
    """
    if head[at : at + 4] == b"VBRI" or any(_frames_at(head, i) for i in range(frame)):
        return False
    header = head[frame : frame + 4]
    if len(header) < 4 or not header[1] & 1:
        return len(header) == 4
    full, mono = header[1] >> 3 & 3 == 3, header[3] >> 6 == 3
    side = {(True, False): 32, (False, True): 9}.get((full, mono), 17)
    return at == frame + 4 + side and not any(head[frame + 6 : at])


def _frames_follow(raw: BinaryIO, position: int) -> bool:
    """Whether three frames in a row are near ``position``, behind tags if there are any there."""
    raw.seek(position)
    if raw.read(3) == b"TAG":  # ID3v1
        position += 128
    position += id3_size(raw, position)
    raw.seek(position)
    data = raw.read(2048 + 3 * _LARGEST)
    return any(_frames_at(data, start) for start in range(min(2048, len(data))))


def _are_more_frames(raw: BinaryIO, position: int, count: int) -> bool:
    """Whether more than so many frames, and the one of the tag, are at ``position``."""
    for _ in range(count + 2):  # some writers do not count the last one
        raw.seek(position)
        length = _frame_bytes(raw.read(4))
        if length == 0:
            return False
        position += length
    raw.seek(position)
    return _frame_bytes(raw.read(4)) > 0


def _frames_at(data: bytes, position: int) -> bool:
    for _ in range(3):
        length = _frame_bytes(data[position : position + 4])
        if length == 0:
            return False
        position += length
    return True


def _frame_bytes(header: bytes) -> int:
    """ISO/IEC 11172-3, section 2.4.1.3, layer III; 0: no frame starts like this."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return 0
    version = header[1] >> 3 & 3  # 0: MPEG-2.5, 1: reserved, 2: MPEG-2, 3: MPEG-1
    kbits = (_KBITS_1 if version == 3 else _KBITS_2)[header[2] >> 4]
    rate = _RATES[header[2] >> 2 & 3] >> (3 - version if version else 2)
    if version == 1 or kbits == 0 or rate == 0:
        return 0
    return (144 if version == 3 else 72) * 1000 * kbits // rate + (header[2] >> 1 & 1)
