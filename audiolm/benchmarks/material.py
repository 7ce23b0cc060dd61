"""Recordings to encode: short clips as they come, and long ones of equal length.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from audiolm.audio import AudioError, find_audio_files, read_audio, write_wav
from audiolm.demo.melodies import SAMPLE_RATE, sample_melody, synthesise
from audiolm.limits import POSITIVE

SHORT = 10.0
"""Seconds up to which a file is a short clip."""
CLIP_SECONDS = (0.2, 2.0)
"""Seconds, from and to, of the short clips that longer recordings are cut into."""
MOST = 300.0
"""Seconds that are taken of one file, so that memory does not grow with its length."""


@dataclass(frozen=True)
class Recordings:
    """Files of one kind. seconds: of all of them."""

    name: str
    paths: list[Path]
    seconds: float


def short_clips(folder: Path | None, into: Path, seconds: float) -> Recordings:
    """Short clips of about so many seconds in all, no two the same.

    From `folder`, spread over its files of up to 10 s; where those are not enough, longer ones are
    cut up into `into`. None: melodies made by code, cut up.
    Raises ValueError where there is not so much.
    """
    POSITIVE.check("encode.short_seconds", seconds)
    paths: list[Path] = []
    taken, seen = 0.0, set[bytes]()
    files = None if folder is None else spread_out(find_audio_files(folder))
    rng = np.random.default_rng(0)
    for number, (path, sound, rate) in enumerate(_sounds(files)):
        if taken >= seconds:
            break
        if path is not None and sound.shape[1] <= SHORT * rate:
            clips = [sound]
        else:
            lengths = (
                rng.uniform(*CLIP_SECONDS, int(sound.shape[1] / rate / CLIP_SECONDS[0])) * rate
            )
            ends = np.cumsum(lengths.astype(int))
            clips = list(torch.tensor_split(sound, ends[ends < sound.shape[1]].tolist(), dim=1))
        for i, clip in enumerate(clips):
            digest = hashlib.blake2b(clip.numpy().tobytes()).digest()
            if taken >= seconds or digest in seen or clip.shape[1] < CLIP_SECONDS[0] / 2 * rate:
                continue
            seen.add(digest)
            taken += clip.shape[1] / rate
            if len(clips) > 1 or path is None:
                clip_path = into / f"{number:05d}_{i:03d}.wav"
                write_wav(clip_path, clip, rate)
                paths.append(clip_path)
            else:
                paths.append(path)
    if taken < seconds:
        raise ValueError(
            f"{folder} holds {taken:.0f} s of audio in clips that differ, less than "
            f"encode.short_seconds={seconds:g}; lower that"
        )
    return Recordings(f"{len(paths)} short clips, {taken / len(paths):.2f} s", paths, taken)


def long_clips(folder: Path | None, into: Path, seconds: float, total: float) -> Recordings:
    """Clips of `seconds`, of about `total` seconds in all, from recordings one after the other.

    The recordings are those of `folder` with the rate of its first; None: melodies made by code.
    The clips are written to `into`. Raises ValueError where there is not so much, or no clip in it.
    """
    if not 0 < seconds <= total:
        raise ValueError(
            f"encode.lengths={seconds:g} s must be above 0 and at most "
            f"encode.long_seconds={total:g}"
        )
    number = round(total / seconds)
    files = None if folder is None else find_audio_files(folder)
    paths: list[Path] = []
    held: list[Tensor] = []
    rate = 0
    for _, sound, own_rate in _sounds(files, mono=True):
        if not rate:
            rate = own_rate
        if own_rate != rate:
            continue
        held.append(sound)
        length = round(seconds * rate)
        while sum(part.shape[1] for part in held) >= length:
            joined = torch.cat(held, dim=1)
            paths.append(into / f"clip_{len(paths):03d}.wav")
            write_wav(paths[-1], joined[:, :length].contiguous(), rate)
            held = [joined[:, length:]]
            if len(paths) == number:
                return Recordings(f"{number} clips of {seconds:g} s", paths, number * seconds)
    raise ValueError(
        f"{folder} holds {len(paths) * seconds:g} s of audio at {rate} Hz in clips of {seconds:g} "
        f"s, less than encode.long_seconds={total:g}; lower that"
    )


def spread_out(paths: list[Path]) -> list[Path]:
    """The same files in an order whose beginning is spread over all of them."""
    step = max(1, round(len(paths) ** 0.5))
    return [path for first in range(step) for path in paths[first::step]]


def _sounds(
    files: list[Path] | None, mono: bool = False
) -> Iterator[tuple[Path | None, Tensor, int]]:
    """Files with their samples (C, N) and rates in Hz, or melodies without end.

    Files that cannot be read are passed over: what is wrong with them is the check's business.
    """
    if files is None:
        for index in count():
            yield None, synthesise(sample_melody(0, index)), SAMPLE_RATE
        return
    for path in files:
        try:
            sound, rate = read_audio(path, channels=1 if mono else None, duration=MOST)
        except AudioError:
            continue
        yield path, sound, rate
