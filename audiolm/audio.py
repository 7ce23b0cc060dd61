"""Audio files in and out: find, read, stream, resample, mix, write.

The only module that knows audio files. libsndfile (through soundfile) decodes and encodes them,
soxr resamples: at its HQ setting aliases stay below -100 dB.

Letters: C audio channels, N audio samples. Sample values are floats, full scale is -1 to 1.

What a header promises and what a file holds differ more often than one would think. libsndfile
shortens a cut WAV, AIFF, AU, W64 or Ogg to what is there and says nothing, takes a WAV of data size
0 (written to a pipe) for an empty one, and guesses the length of an MP3 without a length tag from
its first frame (a quarter of the true one was seen). So `_layout` looks at the few bytes that tell.
"""

from __future__ import annotations

import io
import logging
import math
import os
import stat
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import soundfile
import soxr
import torch
from torch import Tensor

log = logging.getLogger(__name__)

AUDIO_SUFFIXES: frozenset[str] = frozenset(
    {
        *(".wav", ".wave", ".rf64", ".w64"),
        *(".flac", ".ogg", ".oga", ".opus", ".mp3"),
        *(".aiff", ".aif", ".aifc", ".caf", ".au", ".snd"),
    }
)
"""Suffixes (lower case) of the files that `find_audio_files` lists; contents decide the format."""

MIN_SAMPLE_RATE = 100
"""Hz. A header below this is damaged; to believe it would blow one second up to minutes."""

_CHUNK = 16384  # samples decoded at a time: how near the place of a decoding error is told
_UNKNOWN = 2**62  # libsndfile gives more samples than this for a length that it does not know
_BITS = {"PCM_16": 16, "PCM_24": 24}


class AudioError(ValueError):
    """A file that cannot serve as audio. `str` is one line, ``PATH: REASON``; it can be pickled."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{_one_line(self.path)}: {self.reason}"


@dataclass(frozen=True)
class AudioInfo:
    """What a file says of itself. `num_samples` counts one channel."""

    sample_rate: int
    """Hz."""
    channels: int
    num_samples: int
    format: str
    """libsndfile's name of the container: WAV, FLAC, MP3, OGG, ..."""
    subtype: str
    """libsndfile's name of the encoding: PCM_16, FLOAT, VORBIS, ..."""

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.num_samples / self.sample_rate


def find_audio_files(folder: Path | str) -> list[Path]:
    """Audio files below ``folder``, sorted by their path relative to it (with ``/``).

    Files and folders whose name starts with a dot are left out. Links to folders are followed; each
    real folder is listed once (under its own name rather than a link's), which ends loops and keeps
    one recording from turning up twice. A subfolder that may not be read is left out with a
    warning.

    Raises:
        FileNotFoundError, NotADirectoryError: no such folder.
        ValueError: no audio file in it.
    """
    folder = Path(folder)
    if not folder.exists():
        raise FileNotFoundError(f"no such folder: {_one_line(folder)}")
    if not folder.is_dir():
        raise NotADirectoryError(f"not a folder: {_one_line(folder)}")
    files: list[Path] = []
    seen: set[str] = set()
    folders, links = [folder], list[Path]()
    while folders or links:
        # Links wait until every real folder has been seen.
        current = folders.pop() if folders else links.pop(0)
        real = os.path.realpath(current)
        if real in seen:
            continue
        seen.add(real)
        try:
            for entry in sorted(current.iterdir(), key=lambda entry: entry.name):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    (links if entry.is_symlink() else folders).append(entry)
                elif entry.suffix.lower() in AUDIO_SUFFIXES and entry.is_file():
                    files.append(entry)
        except OSError as error:
            if current == folder:
                raise
            log.warning("left out the folder %s: %s", _one_line(current), error.strerror)
    if not files:
        raise ValueError(
            f"no audio files in {_one_line(folder)}: "
            f"looked for {' '.join(sorted(AUDIO_SUFFIXES))}, hidden files left out"
        )
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def read_info(path: Path | str) -> AudioInfo:
    """Rate, channels, length and format. Decodes the file only where no header tells its length.

    Raises:
        AudioError: not audio, not readable, or empty. (A file that was cut passes: its
            `num_samples` is what libsndfile finds; `read_audio` is the check.)
    """
    with _open(path) as source:
        num_samples = source.file.frames
        if not source.counted:
            num_samples = sum(len(chunk) for chunk in _decode(source, 0.0, None))
        if num_samples == 0:
            raise AudioError(path, _empty(source))
        return AudioInfo(
            sample_rate=source.file.samplerate,
            channels=source.file.channels,
            num_samples=num_samples,
            format=source.file.format,
            subtype=source.file.subtype,
        )


def resample(waveform: Tensor, source_rate: int, target_rate: int) -> Tensor:
    """``waveform`` (C, N) at ``source_rate`` Hz as (C, N') at ``target_rate`` Hz, by soxr HQ.

    N' is ``floor(N * target_rate / source_rate + 1/2)``. The filter has no delay: what sounds at
    second t of the one sounds at second t of the other.

    Raises:
        ValueError: not a float32 tensor (C, N), or a rate that is not positive.
    """
    _check_waveform(waveform)
    _check_rate(source_rate)
    _check_rate(target_rate)
    if source_rate == target_rate:
        return waveform
    samples = waveform.numpy().T
    resampled = soxr.resample(samples, source_rate, target_rate, quality="HQ")
    return torch.from_numpy(resampled.T).contiguous()


def convert_channels(waveform: Tensor, channels: int) -> Tensor:
    """``waveform`` (C, N) as (channels, N), for mono or stereo.

    To mono: the mean over channels. Mono to stereo: repeated. More than two to stereo: the mono mix
    repeated, since the order of many channels is anybody's (surround, ambisonic, an array of
    microphones), so the first two need not be left and right, and the mix loses no source.

    Raises:
        ValueError: ``channels`` is not 1 or 2, or the waveform is not float32 (C, N).
    """
    _check_waveform(waveform)
    if channels not in (1, 2):
        raise ValueError(f"channels is {channels}: must be 1 (mono) or 2 (stereo)")
    if waveform.shape[0] == channels:
        return waveform
    mono = waveform.mean(dim=0, keepdim=True)
    return mono.expand(channels, -1).contiguous()


def read_audio(
    path: Path | str,
    sample_rate: int | None = None,
    channels: int | None = None,
    start: float = 0.0,
    duration: float | None = None,
) -> tuple[Tensor, int]:
    """The samples of a file, (C, N) float32, and their rate in Hz.

    Args:
        path: a file of any format, rate and depth that libsndfile reads. Integers are divided by
            their full scale; floats are kept, also beyond -1 to 1.
        sample_rate: Hz, resampled to it (see `resample`); None keeps the file's.
        channels: 1 or 2, see `convert_channels`; None keeps the file's.
        start: seconds into the file. The part is cut out first and resampled then.
        duration: seconds; None reads to the end. Where the file ends sooner, what is there.

    Raises:
        AudioError: the file cannot be read, is not audio, holds no samples (from ``start`` on),
            holds NaN or Inf, or ends before the length that its header promises. Parts that were
            not asked for are not checked.
        ValueError: an argument out of its range.
    """
    _check_request(sample_rate, channels, start, duration)
    with _open(path) as source:
        blocks = list(_blocks(source, sample_rate, channels, 30.0, start, duration))
        return torch.cat(blocks, dim=1), sample_rate or source.file.samplerate


def stream_audio(
    path: Path | str,
    sample_rate: int | None = None,
    channels: int | None = None,
    block_duration: float = 30.0,
    start: float = 0.0,
    duration: float | None = None,
) -> Iterator[Tensor]:
    """As `read_audio`, in blocks (C, n), with memory for one block however long the file.

    Each block but the last holds ``round(block_duration * rate)`` samples. Joined, they are
    `read_audio`'s samples exactly: both come from here. A fault of the file is raised as AudioError
    where it is met, that is after the good blocks before it; an argument out of range at once.
    """
    _check_request(sample_rate, channels, start, duration)
    if not 0 < block_duration < math.inf:
        raise ValueError(f"block_duration is {block_duration} s: must be positive and finite")

    def blocks() -> Iterator[Tensor]:
        with _open(path) as source:
            yield from _blocks(source, sample_rate, channels, block_duration, start, duration)

    return blocks()


def write_wav(
    path: Path | str, waveform: Tensor, sample_rate: int, subtype: str = "PCM_16"
) -> float:
    """Write ``waveform`` (C, N) as a WAV file and return the gain that was applied.

    Nothing is clipped: where the peak is over full scale (1.0), the whole waveform is divided by it
    and a warning tells the peak; else the gain is 1.0. Folders are made as needed; the file appears
    complete or not at all.

    Args:
        subtype: PCM_16 or PCM_24 (read back within one step of the input), or FLOAT (exactly).

    Raises:
        ValueError: NaN or Inf, no samples, not a float tensor (C, N), an unknown subtype.
        OSError: the file cannot be written.
    """
    _check_rate(sample_rate)
    if subtype not in (*_BITS, "FLOAT"):
        raise ValueError(f"subtype is {subtype!r}: must be one of {', '.join((*_BITS, 'FLOAT'))}")
    waveform = waveform.detach().cpu()
    if waveform.is_floating_point():
        waveform = waveform.float()
    _check_waveform(waveform)
    if waveform.numel() == 0:
        raise ValueError(f"waveform has shape {tuple(waveform.shape)}: there is nothing to write")
    bad = int((~waveform.isfinite()).sum())
    if bad:
        raise ValueError(f"waveform holds {bad} NaN or Inf samples: not written to {path}")

    peak = float(waveform.abs().max())
    gain = 1.0
    if peak > 1.0:
        gain = 1.0 / peak
        log.warning(
            "%s: the peak is %+.2f dBFS; scaled by %.4f to fit full scale",
            _one_line(Path(path)),
            20 * math.log10(peak),
            gain,
        )
    samples: np.ndarray[Any, Any] = (waveform.double() * gain).numpy().T
    if subtype == "FLOAT":
        samples = samples.astype(np.float32)
    else:
        # Not libsndfile's own conversion: it writes 32767 times the value and reads 1/32768 of it,
        # which is up to 1.5 steps off and changes a 16-bit recording on its way through.
        steps = 2 ** (_BITS[subtype] - 1)
        integers = np.clip(np.rint(samples * steps), -steps, steps - 1).astype(np.int32)
        samples = integers << (32 - _BITS[subtype])
    with replacing(path) as temporary:
        try:
            soundfile.write(temporary, samples, sample_rate, format="WAV", subtype=subtype)
        except soundfile.LibsndfileError as error:
            raise OSError(f"cannot write {_one_line(Path(path))}: {error.error_string}") from error
    return gain


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it takes ``path``'s place when all went well.

    Makes the folder. On any error the temporary file is removed and ``path`` is as it was; one of
    writing is an OSError that names ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is not None:
            raise
        # From a write, which does not know its file: most often, the disk is full.
        raise OSError(f"{path} could not be written ({error}); free some space there") from error
    finally:
        temporary.unlink(missing_ok=True)


# ---- Arguments


def _one_line(path: Path) -> str:
    """The path with line breaks and undecodable bytes escaped, so that a message stays a line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


def _check_rate(sample_rate: int) -> None:
    if sample_rate <= 0:
        raise ValueError(f"sample rate is {sample_rate} Hz: must be positive")


def _check_waveform(waveform: Tensor) -> None:
    if waveform.ndim != 2 or waveform.shape[0] == 0 or waveform.dtype != torch.float32:
        raise ValueError(
            f"waveform is {waveform.dtype} of shape {tuple(waveform.shape)}: "
            "must be torch.float32 of shape (channels, samples)"
        )


def _check_request(
    sample_rate: int | None, channels: int | None, start: float, duration: float | None
) -> None:
    if sample_rate is not None:
        _check_rate(sample_rate)
    if channels not in (None, 1, 2):
        raise ValueError(f"channels is {channels}: must be 1 (mono), 2 (stereo) or None (as is)")
    if not 0 <= start < math.inf:
        raise ValueError(f"start is {start} s: must be finite and not negative")
    if duration is not None and not 0 < duration < math.inf:
        raise ValueError(f"duration is {duration} s: must be finite and positive")


# ---- Decoding


class _SoundFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no stubs
    """A SoundFile read front to back.

    soundfile seeks after each read of a seekable file and caps reads at the header's length; at the
    end of a FLAC file of unknown length that seek fails and loses the last samples.
    """

    def seekable(self) -> bool:
        return False


class _Source(NamedTuple):
    path: Path
    file: _SoundFile
    counted: bool
    """Whether `file.frames` is a count and not a guess."""
    promised: float
    """Samples that the header promises; inf: more than there are; 0: it promises nothing."""


@contextmanager
def _open(path: Path | str) -> Iterator[_Source]:
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block for ever
            raise AudioError(path, "not readable: not a regular file")
        with path.open("rb") as raw:
            layout = _layout(raw)
    except OSError as error:
        raise AudioError(path, f"not readable: {error.strerror}") from error
    if layout.size == 0:
        raise AudioError(path, "empty: the file has 0 bytes")
    with path.open("rb") as raw:
        adapted = layout.patch is not None or not layout.counted
        try:
            file = _SoundFile(_Adapted(raw, layout) if adapted else path)
        except soundfile.LibsndfileError as error:
            raise AudioError(path, _not_audio(error)) from error
        with file:
            # libsndfile takes what it does not know for bare samples, going by the file's suffix.
            if file.format == "RAW":
                raise AudioError(path, "not audio: no header that libsndfile knows")
            if file.samplerate < MIN_SAMPLE_RATE:
                raise AudioError(path, f"not audio: its sample rate is {file.samplerate} Hz")
            counted = layout.counted and file.frames < _UNKNOWN
            promised: float = file.frames if counted else 0
            if layout.cut:
                promised = math.inf
            elif layout.held < layout.promised:
                # Rounded up, so that a single missing byte counts.
                whole = -(-file.frames * layout.promised // layout.held) if layout.held else 0
                promised = whole or math.inf
            yield _Source(path, file, counted, promised)


def _not_audio(error: soundfile.LibsndfileError) -> str:
    text = str(error.error_string).strip().rstrip(".")
    if "malformed" in text:
        return "damaged: a known format, but its header is malformed"
    return "not audio: no format that libsndfile knows"


def _empty(source: _Source) -> str:
    if source.promised > 0:
        return f"truncated: 0.000 s of {_seconds(source.promised, source)}"
    return "empty: 0 samples"


def _empty_from(start: float, num_samples: int, source: _Source) -> str:
    return f"empty from {start:g} s on: the file holds {_seconds(num_samples, source)}"


def _seconds(samples: float, source: _Source) -> str:
    if samples == math.inf or samples == 0:
        return "an unknown length"
    return f"{samples / source.file.samplerate:.3f} s"


def _decode(
    source: _Source, start: float, duration: float | None
) -> Iterator[np.ndarray[Any, Any]]:
    """Checked samples (n, C) float32 of the part asked for, at the file's own rate and channels."""
    path, file = source.path, source.file
    rate = file.samplerate
    first = round(start * rate)
    end: float = math.inf if duration is None else first + max(1, round(duration * rate))
    position = 0
    # Others are decoded up to there: libsndfile lands beside the place in the last page of a Vorbis
    # file and in the last frames of an MP3, and seeks in no GSM 6.10 at all (all seen).
    if first and source.counted and file.subtype.startswith(("PCM", "FLOAT", "DOUBLE")):
        if first >= file.frames > 0:
            raise AudioError(path, _empty_from(start, file.frames, source))
        position = file.seek(first)
    while position < end:
        wanted = _CHUNK if position >= first else min(_CHUNK, first - position)
        try:
            chunk = file.read(int(min(wanted, end - position)), dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            of = _seconds(source.promised, source)
            at = f"{position / rate:.3f} s"
            raise AudioError(
                path, f"truncated or damaged: decoding fails after {at} of {of}"
            ) from error
        if len(chunk) == 0:
            break
        if position >= first:
            finite = np.isfinite(chunk).all(axis=1)
            if not finite.all():
                bad = int((~np.isfinite(chunk)).sum())
                at = f"{(position + int(finite.argmin())) / rate:.3f} s"
                raise AudioError(path, f"not finite: {bad} NaN or Inf samples from {at} on")
            yield chunk
        position += len(chunk)
    if position < min(end, source.promised):
        of = _seconds(source.promised, source)
        raise AudioError(path, f"truncated: {position / rate:.3f} s of {of}")
    if position == 0:
        raise AudioError(path, _empty(source))
    if position <= first:
        raise AudioError(path, _empty_from(start, position, source))


def _blocks(
    source: _Source,
    sample_rate: int | None,
    channels: int | None,
    block_duration: float,
    start: float,
    duration: float | None,
) -> Iterator[Tensor]:
    """Decoded, mixed, resampled, and cut into blocks (C, n)."""
    source_rate = source.file.samplerate
    target_rate = sample_rate or source_rate
    size = max(1, round(block_duration * target_rate))
    pending: list[Tensor] = []
    held = 0
    empty = True
    for part in _resampled(_mixed(source, channels, start, duration), source_rate, target_rate):
        pending.append(part)
        held += part.shape[1]
        if held < size:
            continue
        joined = torch.cat(pending, dim=1)
        whole = held - held % size
        for block in torch.split(joined[:, :whole], size, dim=1):
            yield block.contiguous()
        pending, held, empty = [joined[:, whole:]], held - whole, False
    if held:
        yield torch.cat(pending, dim=1)
    elif empty:
        at = f"at {target_rate} Hz (it has {source_rate} Hz)"
        raise AudioError(source.path, f"empty: less than one sample {at}")


def _mixed(
    source: _Source, channels: int | None, start: float, duration: float | None
) -> Iterator[Tensor]:
    for chunk in _decode(source, start, duration):
        part = torch.from_numpy(chunk).T
        # Before resampling, which then has fewer channels to do.
        yield part if channels is None else convert_channels(part, channels)


def _resampled(parts: Iterator[Tensor], source_rate: int, target_rate: int) -> Iterator[Tensor]:
    """`resample`, a part at a time; joined, the result is the same to the bit."""
    if source_rate == target_rate:
        yield from parts
        return
    first = next(parts)
    nothing = np.zeros((0, first.shape[0]), dtype=np.float32)
    stream = soxr.ResampleStream(
        source_rate, target_rate, first.shape[0], dtype="float32", quality="HQ"
    )
    for part in chain((first,), parts):
        samples = np.ascontiguousarray(part.T.numpy())
        yield torch.from_numpy(stream.resample_chunk(samples).T)
    yield torch.from_numpy(stream.resample_chunk(nothing, last=True).T)


# ---- What the header promises


class _Layout(NamedTuple):
    size: int
    """Bytes of the file."""
    held: int = 0
    """Bytes of sound in it, ..."""
    promised: int = 0
    """... and as many as its header promises; less than `held` where it promises nothing."""
    cut: bool = False
    """Ends in the middle of a page of a stream whose length no header tells."""
    counted: bool = True
    """False: libsndfile would guess the number of samples, so its length must be hidden."""
    patch: tuple[int, bytes] | None = None
    """Offset, and the bytes that libsndfile should see there."""


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


def _layout(raw: BinaryIO) -> _Layout:
    size = raw.seek(0, io.SEEK_END)
    raw.seek(0)
    magic = raw.read(4)
    if magic in _CONTAINERS:
        return _chunk_layout(raw, size, magic)
    if magic == b".snd" and size >= 12:
        offset, promised = struct.unpack(">II", raw.read(8))
        return _Layout(size, size - offset, 0 if _is_placeholder(promised) else promised)
    if magic == b"OggS":
        return _Layout(size, cut=_ogg_is_cut(raw, size))
    if magic[:3] == b"ID3" or (len(magic) == 4 and magic[0] == 0xFF and magic[1] & 0xE0 == 0xE0):
        return _Layout(size, counted=_mp3_has_length(raw))
    return _Layout(size)


def _chunk_layout(raw: BinaryIO, size: int, magic: bytes) -> _Layout:
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
                return _Layout(size, patch=(body - 4, b"\xff\xff\xff\xff"))
            return _Layout(size, size - body, 0 if _is_placeholder(length) else length)
        if not 0 <= length <= size - body:
            break
        position = body + length + -length % chunks.align
    return _Layout(size)


def _is_placeholder(length: int) -> bool:
    """Sizes that writers to a pipe leave: 0, all ones, or the largest of a signed integer."""
    return length <= 0 or 0x7F000000 <= length <= 0x80000000 or 0xFFFF0000 <= length <= 0xFFFFFFFF


def _samples_follow(raw: BinaryIO, body: int) -> bool:
    """After a data chunk of size 0: samples, and not the next chunk (whose id is printable)?"""
    raw.seek(body)
    following = raw.read(4)
    return len(following) > 0 and not all(0x20 <= byte < 0x7F for byte in following)


def _ogg_is_cut(raw: BinaryIO, size: int) -> bool:
    """Whether the last Ogg page is incomplete (RFC 3533, section 6).

    A page of 27 bytes of header, n lacing values and their sum of bytes is 65,307 bytes at most.
    """
    raw.seek(max(0, size - 65307))
    tail = raw.read()
    start = tail.rfind(b"OggS")
    page = tail[start:]
    if start < 0 or len(page) < 27 or len(page) < 27 + page[26]:
        return True
    return len(page) < 27 + page[26] + sum(page[27 : 27 + page[26]])


def _mp3_has_length(raw: BinaryIO) -> bool:
    """Whether the first MP3 frame is a Xing/Info or VBRI tag, which tells the number of frames."""
    raw.seek(0)
    head = raw.read(10)
    skipped = 0
    if head[:3] == b"ID3" and len(head) == 10:
        # ID3v2.3, section 3.1: the tag's size is four times seven bits.
        size = 0
        for byte in head[6:]:
            size = size << 7 | byte & 0x7F
        skipped = 10 + size
    raw.seek(skipped)
    frame = raw.read(2048)
    return any(tag in frame for tag in (b"Xing", b"Info", b"VBRI"))


class _Adapted:
    """A file as libsndfile should see it: with the layout's patch, or without an end."""

    def __init__(self, raw: BinaryIO, layout: _Layout) -> None:
        self._raw = raw
        self._patch = layout.patch
        self._endless = not layout.counted
        self._at_end = False

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at_end = self._endless and whence == io.SEEK_END
        if not self._at_end:
            self._raw.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return 2**63 - 1 if self._at_end else self._raw.tell()

    def read(self, count: int) -> bytes:
        position = self._raw.tell()
        data = self._raw.read(count)
        if self._patch is not None:
            offset, replacement = self._patch
            for index, byte in enumerate(replacement, start=offset - position):
                if 0 <= index < len(data):
                    data = data[:index] + bytes([byte]) + data[index + 1 :]
        return data
