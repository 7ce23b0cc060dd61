"""Opening a file with the decoder that its contents ask for."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from audiolm.audio.errors import AudioError
from audiolm.audio.formats.containers import Container, find_container, shared_container
from audiolm.audio.formats.ffmpeg import has_ffmpeg, open_ffmpeg
from audiolm.audio.formats.joined import joined_streams
from audiolm.audio.formats.layout import Layout, read_layout
from audiolm.audio.formats.pyav import has_pyav, open_pyav
from audiolm.audio.formats.sndfile import UnsupportedEncodingError, open_sndfile
from audiolm.audio.formats.source import Source
from audiolm.files import user_path

MIN_SAMPLE_RATE = 100
"""Hz. A header below this is damaged; to believe it would blow one second up to minutes."""

MAX_SAMPLE_RATE = 10_000_000
"""Hz, above any converter of sound. A header above this is damaged too."""


@contextmanager
def open_source(path: Path | str) -> Iterator[Source]:
    """The decoder of a file. Raises AudioError for what is not readable or not audio."""
    path = user_path(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would block for ever
            raise AudioError(path, "not readable: not a regular file")
        with path.open("rb") as raw:
            layout = read_layout(raw, path.suffix)
            container = find_container(raw)
            shared = shared_container(raw, layout)
        joined = joined_streams(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise AudioError(path, f"not readable: {error.strerror}") from error
    if layout.size == 0:
        raise AudioError(path, "empty: the file has 0 bytes")
    if container is not None and container.joined:
        joined = container.name
    if joined := joined or layout.joined:
        raise AudioError(
            path,
            f"joined: several {joined} streams one after another; join them as samples, not as "
            "files",
        )
    if layout.behind and not layout.patches:
        raise _longer(path, layout)
    with ExitStack() as stack:
        if container is None:
            try:
                source: Source = stack.enter_context(open_sndfile(path, layout))
            except AudioError as error:
                if shared is None or not _may_know(shared, error):
                    raise
                if layout.behind:
                    raise _longer(path, layout) from error
                try:
                    source = stack.enter_context(_open_container(path, shared))
                except AudioError as second:
                    # Of what may be damaged, the first one's reason is the better.
                    known = shared.cut or error.reason.startswith("not readable")
                    raise (second if known else error) from second
        else:
            source = stack.enter_context(_open_container(path, container))
        if not MIN_SAMPLE_RATE <= source.sample_rate <= MAX_SAMPLE_RATE:
            raise AudioError(path, f"not audio: its sample rate is {source.sample_rate} Hz")
        yield source


def _may_know(shared: Container, error: AudioError) -> bool:
    """Whether FFmpeg may read what libsndfile does not: other encodings, and other streams of Ogg
    (Speex, FLAC as FFmpeg writes it, a film's sound behind its pictures)."""
    return isinstance(error, UnsupportedEncodingError) or shared.demuxer == "ogg"


def _longer(path: Path, layout: Layout) -> AudioError:
    return AudioError(
        path,
        f"longer than its header says: {layout.behind:,} bytes lie behind its samples; mend the "
        "header, or cut the file",
    )


def _open_container(path: Path, container: Container) -> AbstractContextManager[Source]:
    """PyAV before the program: the same samples (measured), a version that its package fixes, and
    no two processes to start a file."""
    if has_pyav():
        return open_pyav(path, container)
    if has_ffmpeg():
        return open_ffmpeg(path, container)
    raise AudioError(
        path,
        f"not readable: {container.name} needs FFmpeg; put ffmpeg on the path, "
        "or pip install 'audiolm[formats]'",
    )
