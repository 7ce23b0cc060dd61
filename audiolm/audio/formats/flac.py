"""How many samples the frames of a FLAC file hold, where its header counts fewer.

A recorder that crashed, or a writer that never came back to its header, leaves a STREAMINFO whose
count is too small, and decoders stop there. Every frame tells its own place, so the last one knows:

    fLaC | STREAMINFO ... | frame 0 | frame 1 | ... | frame n-1 | frame n | tag
           counts 4096                                ^---------^
                                                      its checksum holds, and n follows it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_MARKER = b"fLaC"
# Bytes of the file's end in which the last frame is looked for: the usual ones are short, and the
# longest two have 65,535 samples of 8 channels and 32 bits.
_SEARCHED = (2**16, 2**19, 2**22)
_LONGEST_HEADER = 16
_FIELD = 21  # offset of the five bytes with the number of samples
_MAX_BLOCKS = 10_000  # of metadata; a damaged file may hold millions of empty ones
_BLOCK_SIZES = (0, 192, 576, 1152, 2304, 4608, 0, 0, *(256 << i for i in range(8)))
_SYNC = re.compile(rb"\xff[\xf8\xf9]")


class SampleCount(NamedTuple):
    """The number of samples in a header."""

    start: int
    """Of the FLAC in its file: a tag may come before it."""
    field: bytes
    """Five bytes that hold it in their lower 36 bits."""
    promised: int

    def patch(self, num_samples: int) -> tuple[int, bytes]:
        """The field's offset, and the field with another number."""
        others = int.from_bytes(self.field, "big") & ~(2**36 - 1)
        return self.start + _FIELD, (others | num_samples).to_bytes(5, "big")


class _Frame(NamedTuple):
    """A header of a frame, or what looks like one."""

    offset: int
    by_samples: bool
    """Whether `number` counts samples (blocks of several sizes) or frames."""
    number: int
    block: int
    """Samples of the frame."""


def read_count(raw: BinaryIO, start: int) -> SampleCount | None:
    """What the STREAMINFO of a file tells whose marker is at ``start``. RFC 9639, section 8.2."""
    raw.seek(start)
    head = raw.read(26)
    if len(head) < 26 or head[:4] != _MARKER or head[4] & 0x7F:
        return None
    field = head[_FIELD:]
    return SampleCount(start, field, int.from_bytes(field, "big") & (2**36 - 1))


def count_samples(raw: BinaryIO, count: SampleCount, size: int) -> int:
    """The samples that the frames hold, where these are more than promised; else the promise.

    Only the end of the file is looked at. A frame counts where the frame before it, whose checksum
    holds, ends at it.
    """
    first = _end_of_metadata(raw, count.start)
    for searched in _SEARCHED:
        begin = max(first, size - searched)
        raw.seek(begin)
        held = _samples_to_end(raw.read(max(0, size - begin)), whole=first == begin)
        if held is not None:
            return max(held, count.promised)
        if first == begin:
            break
    return count.promised


def _samples_to_end(data: bytes, whole: bool) -> int | None:
    """Samples up to the end of the last frame in the end of a file; None where there is none.

    whole: whether the data begins with the first frame.
    """
    headers = list(_headers(data))
    # What ends at a number: frames before one of this number. The first frame needs none.
    before: dict[tuple[bool, int], list[_Frame]] = {}
    if whole:
        before = {(by_samples, 0): [_Frame(0, by_samples, 0, 0)] for by_samples in (False, True)}
    for frame in headers:
        following = frame.number + (frame.block if frame.by_samples else 1)
        before.setdefault((frame.by_samples, following), []).append(frame)
    for frame in reversed(headers):
        for last in before.get((frame.by_samples, frame.number), ()):
            if last.offset <= frame.offset and _crc16(data[last.offset : frame.offset]) == 0:
                position = frame.number if frame.by_samples else frame.number * last.block
                return position + frame.block
    return None


def _end_of_metadata(raw: BinaryIO, start: int) -> int:
    position = start + len(_MARKER)
    for _ in range(_MAX_BLOCKS):
        raw.seek(position)
        head = raw.read(4)
        position += 4 + int.from_bytes(head[1:], "big")
        if len(head) < 4 or head[0] & 0x80:
            break
    return position


def _headers(data: bytes) -> Iterator[_Frame]:
    for found in _SYNC.finditer(data):
        frame = _header(data[found.start() : found.start() + _LONGEST_HEADER], found.start())
        if frame is not None:
            yield frame


def _header(head: bytes, offset: int) -> _Frame | None:
    """RFC 9639, section 9.1."""
    if len(head) < 6 or head[3] & 1 or head[3] >> 4 > 10 or head[2] & 15 == 15:
        return None
    by_samples = bool(head[1] & 1)
    # The number is coded as UTF-8 is, with up to seven bytes.
    ones = 8 - (head[4] ^ 0xFF).bit_length()
    if ones == 1 or ones > 7:
        return None
    number = head[4] & (0x7F >> ones)
    end = 4 + max(1, ones)
    for byte in head[5:end]:
        if byte >> 6 != 2:
            return None
        number = number << 6 | byte & 0x3F
    size, rate = head[2] >> 4, head[2] & 15
    block = _BLOCK_SIZES[size]
    if size in (6, 7):
        block = int.from_bytes(head[end : end + size - 5], "big") + 1
        end += size - 5
    end += {12: 1, 13: 2, 14: 2}.get(rate, 0)
    if not block or len(head) <= end or _crc8(head[: end + 1]) != 0:
        return None
    return _Frame(offset, by_samples, number, block)


def _crc_table(polynomial: int, bits: int) -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte << bits - 8
        for _ in range(8):
            value = value << 1 ^ (polynomial if value >> bits - 1 else 0)
        table.append(value & (1 << bits) - 1)
    return tuple(table)


_CRC8, _CRC16 = _crc_table(0x107, 8), _crc_table(0x18005, 16)


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value = _CRC8[value ^ byte]
    return value


def _crc16(data: bytes) -> int:
    """0 where the last two bytes are the checksum of those before."""
    value = 0
    for byte in data:
        value = (value << 8 & 0xFF00) ^ _CRC16[value >> 8 ^ byte]
    return value
