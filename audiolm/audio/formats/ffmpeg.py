"""Decoding by an ``ffmpeg`` program, which hands the samples over through a pipe."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from audiolm.audio.errors import AudioError
from audiolm.audio.formats.containers import Container
from audiolm.audio.formats.frames import CHANGED, FAILED, FrameSource, Promise
from audiolm.audio.formats.source import DecodingError

_CHUNK = 16384  # samples taken from the pipe at a time
_PROBE_TIMEOUT = 60  # s; reading a header takes a fraction of one
_ENTRIES = (
    "format=duration:"
    "stream=index,codec_type,codec_name,time_base,duration_ts,start_pts:stream_tags=DURATION"
)


def has_ffmpeg() -> bool:
    """Whether the programs ``ffmpeg`` and ``ffprobe`` (which come together) are on the path."""
    return shutil.which("ffmpeg") is not None and shutil.which("ffprobe") is not None


@contextmanager
def open_ffmpeg(path: Path, container: Container) -> Iterator[FrameSource]:
    """The first audio track. Raises AudioError for what cannot be opened or has none."""
    streams, file_duration = _probe(path, container)
    audio = [stream for stream in streams if stream.get("codec_type") == "audio"]
    if not audio:
        raise container.no_track(path)
    stream = audio[0]
    if "codec_name" not in stream:
        raise AudioError(path, "not readable: FFmpeg has no decoder for its audio track")
    tick = Fraction(stream["time_base"])
    ticks = stream.get("duration_ts")
    promise = Promise(
        demuxer=container.demuxer,
        cut=container.cut,
        track=float(ticks * tick) if ticks else None,
        tag=stream.get("tags", {}).get("DURATION"),
        file=file_duration,
        start=float(stream.get("start_pts", 0) * tick),
        alone=len(streams) == 1,
    )
    with tempfile.TemporaryFile() as log, _decoder(path, container, log) as process:
        assert process.stdout is not None
        try:
            rate, channels = _read_header(process, log)
        except DecodingError as error:
            raise promise.failed_at_once(path, error) from error
        except EOFError:
            raise promise.nothing(path) from None
        yield FrameSource(
            path=path,
            sample_rate=rate,
            channels=channels,
            format=container.name,
            subtype=str(stream["codec_name"]).upper(),
            promise=promise,
            frames=_samples(process, log, channels),
        )


def _input(path: Path, container: Container) -> list[str]:
    options = [text for key, value in container.options().items() for text in (f"-{key}", value)]
    return [*options, "-i", container.address(path)]


def _probe(path: Path, container: Container) -> tuple[list[dict[str, Any]], float | None]:
    """The streams, and the duration of the whole in seconds."""
    command = ["ffprobe", "-v", "error", "-of", "json", "-show_entries", _ENTRIES]
    try:
        found = subprocess.run(
            [*command, *_input(path, container)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise AudioError(
            path, f"not readable: ffprobe found no header within {_PROBE_TIMEOUT} s"
        ) from error
    if found.returncode:
        raise container.not_opened(path)
    record = json.loads(found.stdout.decode(errors="replace"))
    duration = record.get("format", {}).get("duration")
    return record.get("streams", []), None if duration is None else float(duration)


@contextmanager
def _decoder(path: Path, container: Container, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The program at work, gone when the block is left, however it is left."""
    # The first error ends it, and so does a change of rate or channels, which it would resample
    # away. AU is raw samples behind a short header that tells their rate and channels.
    careful = ("-nostdin", "-v", "error", "-xerror", "-reinit_filter", "0", "-threads", "1")
    output = ("-map", "0:a:0", "-c:a", "pcm_f32be", "-f", "au", "-")
    process = subprocess.Popen(
        ["ffmpeg", *careful, *_input(path, container), *output],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _read_header(process: subprocess.Popen[bytes], log: IO[bytes]) -> tuple[int, int]:
    """Rate and channels. Raises DecodingError, and EOFError where there is not a single sample."""
    assert process.stdout is not None
    header = process.stdout.read(24)
    if len(header) < 24:
        _check_end(process, log)
        raise EOFError
    words = np.frombuffer(header, dtype=">u4")
    process.stdout.read(int(words[1]) - 24)
    return int(words[4]), int(words[5])


def _samples(
    process: subprocess.Popen[bytes], log: IO[bytes], channels: int
) -> Iterator[NDArray[np.float32]]:
    assert process.stdout is not None
    while data := process.stdout.read(_CHUNK * 4 * channels):
        whole = len(data) - len(data) % (4 * channels)
        yield np.frombuffer(data[:whole], dtype=">f4").reshape(-1, channels).astype(np.float32)
    _check_end(process, log)


def _check_end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    if process.wait() == 0:
        return
    log.seek(0)
    raise DecodingError(CHANGED if b"Changing audio frame properties" in log.read() else FAILED)
