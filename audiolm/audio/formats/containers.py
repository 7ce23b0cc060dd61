"""The containers that FFmpeg reads and libsndfile does not: recognised by content, never by name.

Also whether the file holds all of what its elements promise. FFmpeg decodes a cut Matroska or AVI
to what is there and says nothing, so that is found here, by walking the elements' sizes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from audiolm.audio.errors import AudioError
from audiolm.audio.formats.layout import Layout, is_placeholder
from audiolm.audio.formats.mpeg import id3_size

CONTAINER_SUFFIXES: frozenset[str] = frozenset(
    {
        *(".m4a", ".m4b", ".aac", ".mka", ".weba", ".wma", ".amr", ".wv"),
        *(".mp4", ".m4v", ".mov", ".3gp", ".mkv", ".webm", ".wmv", ".avi"),
        *(".3g2", ".m4r", ".qt", ".asf", ".flv", ".f4v", ".ogv", ".ogx", ".spx"),
        *(".mpg", ".mpeg", ".vob", ".ts", ".mts", ".m2ts"),
        *(".ac3", ".eac3", ".dts", ".tta", ".ape", ".mpc", ".ra", ".rm", ".rmvb", ".dsf"),
    }
)
"""Suffixes (lower case) of the files that need FFmpeg."""

_MAX_ELEMENTS = 5_000_000  # 32 hours of AAC; what lies behind them is not looked at

_HEAD = 24  # bytes of an element that are looked at
_MAGIC = 600  # of the file's begin: four packets of MPEG-TS


class Container(NamedTuple):
    name: str
    demuxer: str
    """FFmpeg's name of its reader."""
    cut: bool
    """Whether the file ends before its last element does."""
    joined: bool = False
    """Whether another file follows, of which FFmpeg reads nothing."""

    def options(self) -> dict[str, str]:
        """For FFmpeg: this reader alone (a playlist could name any address), and no network."""
        return {"format_whitelist": self.demuxer, "protocol_whitelist": "file,pipe"}

    def address(self, path: Path) -> str:
        """For FFmpeg, which takes a name like `concat:x` or `-i` for an instruction."""
        return f"file:{path.absolute()}"

    def not_opened(self, path: Path) -> AudioError:
        if self.cut:
            return AudioError(path, "truncated: it ends before its index or its first sample")
        return AudioError(path, f"damaged: it begins as {self.name}, but FFmpeg cannot open it")

    def no_track(self, path: Path) -> AudioError:
        if self.cut:
            return self.not_opened(path)
        return AudioError(path, f"no audio track: this {self.name} file holds none")


class _Kind(NamedTuple):
    name: str
    demuxer: str
    is_head: Callable[[bytes], bool]
    """Whether a file of these first bytes is of this kind."""
    header_bytes: int
    """The least bytes of an element that `length` needs."""
    length: Callable[[bytes], int]
    """Bytes of the element that starts with these bytes, all in all; 0: unknown, or no element."""
    first: int = 0
    """Offset of the first element."""
    begins: Callable[[bytes], bool] = lambda head: False
    """Whether an element of these first bytes is one of which a file has one only."""


def find_container(raw: BinaryIO) -> Container | None:
    """The container of a file, where it is one that FFmpeg is needed for."""
    size = raw.seek(0, io.SEEK_END)
    tagged = id3_size(raw, 0)  # music players write ID3 before bare AAC too
    raw.seek(tagged)
    head = raw.read(_MAGIC)
    for kind in _KINDS:
        if kind.is_head(head) and (not tagged or kind.demuxer == "aac"):
            return Container(kind.name, kind.demuxer, *_walk(raw, size, tagged, kind))
    return None


def _walk(raw: BinaryIO, size: int, start: int, kind: _Kind) -> tuple[bool, bool]:
    """Whether the file ends before its last element does, and whether another file follows."""
    position = start + kind.first
    begins = 0
    for _ in range(_MAX_ELEMENTS):
        if position >= size:
            break
        raw.seek(position)
        head = raw.read(_HEAD)
        if len(head) < kind.header_bytes:
            return True, begins > 1
        length = kind.length(head)
        if length == 0:
            return False, begins > 1
        begins += kind.begins(head)
        position += length
    return position > size, begins > 1


def _box_length(head: bytes) -> int:
    """ISO/IEC 14496-12, section 4.2: size, type, and a 64-bit size where the first one is 1."""
    length = int.from_bytes(head[:4], "big")
    if length == 1:
        length = int.from_bytes(head[8:16], "big")
    return length if length >= 8 and head[4:8].isascii() and head[4:8].isalnum() else 0


def _ebml_length(head: bytes) -> int:
    """RFC 8794, section 4: the EBML header and the Segment, whose ids both have four bytes."""
    if head[:4] not in (b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67") or head[4] == 0:
        return 0
    octets = 9 - head[4].bit_length()
    value = int.from_bytes(head[4 : 4 + octets], "big") & (1 << 7 * octets) - 1
    unknown = value == (1 << 7 * octets) - 1
    return 0 if unknown else 4 + octets + value


def _asf_length(head: bytes) -> int:
    """The ASF Specification, section 2.1: a GUID of 16 bytes and a size that counts both.

    Only headers and data count: what follows is an index. Data written to a pipe say 50 bytes.
    """
    length = int.from_bytes(head[16:24], "little")
    return length if head[:16] == _ASF or (head[:16] == _ASF_DATA and length > 50) else 0


def _riff_length(head: bytes) -> int:
    length = int.from_bytes(head[4:8], "little")
    if head[:4] != b"RIFF" or is_placeholder(length):
        return 0
    return 8 + length + length % 2


def _wavpack_length(head: bytes) -> int:
    return 8 + int.from_bytes(head[4:8], "little") if head[:4] == b"wvpk" else 0


def _is_adts(head: bytes) -> bool:
    # MP3 differs in the two bits of the layer, which are 0 here alone.
    return len(head) >= 7 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0


def _adts_length(head: bytes) -> int:
    """ISO/IEC 13818-7, section 6.2: 13 bits of frame length."""
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if _is_adts(head) and length >= 7 else 0


def _amr_length(sizes: tuple[int, ...]) -> Callable[[bytes], int]:
    """Bytes of a frame, by the four bits of its type (RFC 4867, section 5.3)."""
    return lambda head: sizes[head[0] >> 3 & 15]


def _is_index(head: bytes) -> bool:
    return head[4:8] == b"moov"


def _is_ebml(head: bytes) -> bool:
    return head[:4] == b"\x1a\x45\xdf\xa3"


def _is_asf(head: bytes) -> bool:
    return head[:16] == _ASF


def _is_avi(head: bytes) -> bool:
    return head[:4] + head[8:12] == b"RIFFAVI "


def _flv_length(head: bytes) -> int:
    """The FLV file format, annex E.4: a tag of audio, video or data, and its size once more."""
    return 15 + int.from_bytes(head[1:4], "big") if head[0] in (8, 9, 18) else 0


def _unknown(head: bytes) -> int:
    """Of packets that no header counts, and of a header that FFmpeg reads."""
    return 0


def _begins_with(*magic: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(magic)


def _is_ac3(head: bytes) -> bool:
    return head[:2] == b"\x0b\x77" and len(head) > 5 and head[5] >> 3 <= 10


def _is_eac3(head: bytes) -> bool:
    return head[:2] == b"\x0b\x77" and len(head) > 5 and 10 < head[5] >> 3 <= 16


def _is_packets(length: int, sync: int) -> Callable[[bytes], bool]:
    """Of MPEG-TS: packets of this length with a byte of synchronisation, three in a row."""
    return lambda head: head[sync::length][:3] == b"GGG" and len(head) >= sync + 2 * length + 1


_AMR_NB = (13, 14, 16, 18, 20, 21, 27, 32, 6, 0, 0, 0, 0, 0, 0, 1)
_AMR_WB = (18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 0, 0, 0, 0, 1, 1)
_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_ASF_DATA = bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c")
_ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")

_KINDS = (
    _Kind("MP4", "mov", lambda head: head[4:8] in _BOXES, 8, _box_length, begins=_is_index),
    _Kind("MATROSKA", "matroska", _is_ebml, 5, _ebml_length, begins=_is_ebml),
    _Kind("ASF", "asf", _is_asf, 24, _asf_length, begins=_is_asf),
    _Kind("AVI", "avi", _is_avi, 8, _riff_length, begins=_is_avi),  # others are RIFF AVIX
    _Kind("WAVPACK", "wv", lambda head: head[:4] == b"wvpk", 8, _wavpack_length),
    _Kind("AMR", "amr", lambda head: head[:6] == b"#!AMR\n", 1, _amr_length(_AMR_NB), 6),
    _Kind("AMR", "amr", lambda head: head[:9] == b"#!AMR-WB\n", 1, _amr_length(_AMR_WB), 9),
    _Kind("ADTS", "aac", _is_adts, 7, _adts_length),
    _Kind("FLV", "flv", _begins_with(b"FLV\1"), 11, _flv_length, 13),
    _Kind("MPEG-PS", "mpeg", _begins_with(b"\0\0\1\xba"), 4, _unknown),
    _Kind("AC3", "ac3", _is_ac3, 6, _unknown),
    _Kind("EAC3", "eac3", _is_eac3, 6, _unknown),
    _Kind("DTS", "dts", _begins_with(b"\x7f\xfe\x80\1"), 4, _unknown),
    _Kind("TTA", "tta", _begins_with(b"TTA1"), 4, _unknown),
    _Kind("APE", "ape", _begins_with(b"MAC "), 4, _unknown),
    _Kind("MUSEPACK", "mpc", _begins_with(b"MP+"), 4, _unknown),
    _Kind("MUSEPACK", "mpc8", _begins_with(b"MPCK"), 4, _unknown),
    _Kind("REALMEDIA", "rm", _begins_with(b".RMF", b".ra\xfd"), 4, _unknown),
    _Kind("DSF", "dsf", _begins_with(b"DSD "), 4, _unknown),
    _Kind("MPEG-TS", "mpegts", _is_packets(188, 0), 4, _unknown),
    _Kind("MPEG-TS", "mpegts", _is_packets(192, 4), 4, _unknown),
)

_SHARED = {
    **{b"RIFF": ("WAV", "wav"), b"FORM": ("AIFF", "aiff"), b"caff": ("CAF", "caf")},
    b"OggS": ("OGG", "ogg"),
}


def shared_container(raw: BinaryIO, layout: Layout) -> Container | None:
    """The container of a file that libsndfile reads, but not with the encoding that is in it."""
    raw.seek(0)
    name, demuxer = _SHARED.get(raw.read(4), ("", ""))
    cut = layout.cut or layout.held < layout.promised
    return Container(name, demuxer, cut) if name else None
