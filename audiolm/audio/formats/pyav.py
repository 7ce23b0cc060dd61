"""Decoding by FFmpeg's libraries in this process, through PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.audio.errors import AudioError
from audiolm.audio.formats.containers import Container
from audiolm.audio.formats.frames import CHANGED, FAILED, FrameSource, Promise, Timeline
from audiolm.audio.formats.source import DecodingError


def has_pyav() -> bool:
    """Whether PyAV is installed and its libraries load."""
    try:
        import_module("av")
    except ImportError:
        return False
    return True


@contextmanager
def open_pyav(path: Path, container: Container) -> Iterator[FrameSource]:
    """The first audio track. Raises AudioError for what cannot be opened or has none."""
    av: Any = import_module("av")  # late: it takes 0.1 s, and comes with the extra alone
    try:
        file = av.open(container.address(path), options=container.options())
    except (av.FFmpegError, ValueError) as error:
        raise container.not_opened(path) from error
    with file:
        if not file.streams.audio:
            raise container.no_track(path)
        stream = file.streams.audio[0]
        if stream.codec_context is None:
            raise AudioError(path, "not readable: FFmpeg has no decoder for its audio track")
        promise = Promise(
            demuxer=container.demuxer,
            cut=container.cut,
            track=float(stream.duration * stream.time_base) if stream.duration else None,
            tag=stream.metadata.get("DURATION"),
            file=file.duration / 1e6 if file.duration else None,
            start=float((stream.start_time or 0) * stream.time_base),
            alone=len(file.streams) == 1,
        )
        frames = _decoded(file, stream, av.FFmpegError)
        try:
            first = next(frames)
        except DecodingError as error:
            raise promise.failed_at_once(path, error) from error
        except StopIteration:
            raise promise.nothing(path) from None
        # Not by `to_ndarray` of the frame itself: where each of 8 channels has its own plane,
        # PyAV 18.1 counts 9 and ends the process. This also scales integers, as ffmpeg does.
        as_floats = av.AudioResampler(format="flt")
        rate, channels = int(first.sample_rate), int(first.layout.nb_channels)
        timeline = Timeline()
        yield FrameSource(
            path=path,
            sample_rate=rate,
            channels=channels,
            format=container.name,
            subtype=str(stream.codec.canonical_name).upper(),
            promise=promise,
            frames=_samples(chain((first,), frames), as_floats, rate, channels, timeline),
            timeline=timeline,
        )


def _decoded(file: Any, stream: Any, failure: type[Exception]) -> Iterator[Any]:
    try:
        yield from file.decode(stream)
    except failure as error:
        raise DecodingError(FAILED) from error


def _samples(
    frames: Iterator[Any], as_floats: Any, rate: int, channels: int, timeline: Timeline
) -> Iterator[NDArray[np.float32]]:
    for frame in frames:
        if (frame.sample_rate, frame.layout.nb_channels) != (rate, channels):
            raise DecodingError(CHANGED)
        timeline.add(frame.time, frame.samples / rate)
        # The resampler takes no frame of another layout, also of as many channels.
        try:
            parts = as_floats.resample(frame)
        except ValueError as error:
            raise DecodingError(CHANGED) from error
        for part in parts:
            yield part.to_ndarray().reshape(-1, channels)
