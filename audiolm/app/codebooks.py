"""A recording through a codec with fewer and more of its codebooks.

Letters: C audio channels, N audio samples, K codebooks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from audiolm.audio import read_audio
from audiolm.codec import EncodecCodec

MOST_SECONDS = 20.0
"""Of a recording that are played."""
MOST_COUNTS = 8
"""Numbers of codebooks that are tried."""


def counts_of(codec: EncodecCodec) -> list[int]:
    """The numbers of codebooks to try: all up to `MOST_COUNTS`, of more by doubling.

    A codec with segments (EnCodec at 48 kHz) keeps a sound's level in one more codebook, the last,
    and needs it.
    """
    least = 1 if codec.settings["segment"] is None else 2
    most = codec.num_codebooks
    if most - least < MOST_COUNTS:
        return list(range(least, most + 1))
    doubled = [least]
    while 2 * doubled[-1] < most:
        doubled.append(2 * doubled[-1])
    return [*doubled, most]


def by_codebooks(codec: EncodecCodec, recording: str | Path) -> Iterator[tuple[int, Tensor]]:
    """Yield a number of codebooks and the sound (C, N) that they keep; first 0, the recording.

    Args:
        codec: with at most the codebooks that it uses.
        recording: a file, of which the first `MOST_SECONDS` are taken.

    Raises:
        OSError, AudioError: a file that cannot be read.
    """
    waveform, _ = read_audio(recording, codec.sample_rate, codec.channels, duration=MOST_SECONDS)
    yield 0, waveform
    for count in counts_of(codec):
        some = EncodecCodec(codec.settings, codec.weights, num_codebooks=count).to(codec.device)
        yield count, some.decode(some.encode(waveform[None]), waveform.shape[1])[0].cpu()


def bits_per_second(codec: EncodecCodec, count: int) -> float:
    """What so many codebooks take."""
    return float(count * codec.frame_rate * math.log2(codec.codebook_size))
