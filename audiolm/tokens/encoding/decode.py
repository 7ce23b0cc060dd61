"""Decode what is to be encoded: in worker processes, so that the codec never waits for a file.

A worker takes its share of the jobs one after the other: a batch of recordings, which comes as
one `list[Decoded]`, or sections of a long one, each a list of its own, for which the file is read
once from front to back. A recording that cannot be read comes as its reason.

Samples travel as NumPy arrays through a pipe. PyTorch would send tensors through shared memory,
one file descriptor each: batches of many short clips run out of descriptors, and containers have
64 MB of such memory by default.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from audiolm.audio import AudioError, read_audio, reason_of, resample, stream_audio
from audiolm.parallel import worker_settings
from audiolm.tokens.encoding.sections import Framing, Section

_BLOCK_SECONDS = 10.0
_CHANGED = "changed since it was checked; run prepare again"


class Recording(NamedTuple):
    """A clip of a file and what its check found.

    number: its index in the plan. start, end: seconds, end None for the file's end. num_samples,
    sample_rate: as they were decoded. size, mtime_ns: of the file then.
    """

    number: int
    path: Path
    start: float
    end: float | None
    num_samples: int
    sample_rate: int
    size: int
    mtime_ns: int


class DecodeJob(NamedTuple):
    """Recordings to be read whole, or a single one of which these sections are to be read."""

    recordings: list[Recording]
    sections: list[Section]


class Decoded(NamedTuple):
    """Samples (C, N) at the codec's rate of a recording, or of a section of it, to be encoded.

    recording: its index in the plan. audio: the reason in one line where it cannot be read.
    """

    recording: int
    section: Section | None
    audio: NDArray[np.float32] | str


def decode_jobs(
    jobs: Sequence[DecodeJob], framing: Framing, num_workers: int
) -> DataLoader[list[Decoded]]:
    """What is to be encoded together, one list at a time; in any order with several workers."""
    return DataLoader(
        _Reading(jobs, framing),
        batch_size=None,
        **worker_settings(num_workers),
        prefetch_factor=2 if num_workers else None,
        collate_fn=_as_is,
        # A long file holds up no others. (Without workers there is nothing to hold up.)
        in_order=num_workers == 0,
    )


def _as_is(result: Any) -> Any:
    return result


class _Reading(IterableDataset[list[Decoded]]):
    def __init__(self, jobs: Sequence[DecodeJob], framing: Framing) -> None:
        self._jobs, self._framing = jobs, framing

    def __iter__(self) -> Iterator[list[Decoded]]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for job in self._jobs[first::step]:
            if not job.sections:
                yield [_read_whole(recording, self._framing) for recording in job.recordings]
                continue
            (recording,) = job.recordings
            try:
                for section, samples in _read_sections(recording, job.sections, self._framing):
                    yield [Decoded(recording.number, section, samples.numpy())]
            except (OSError, ValueError) as error:
                yield [Decoded(recording.number, job.sections[0], reason_of(error))]


def _read_whole(recording: Recording, framing: Framing) -> Decoded:
    try:
        _check_unchanged(recording)
        duration = None if recording.end is None else recording.end - recording.start
        samples, _ = read_audio(
            recording.path, framing.sample_rate, framing.channels, recording.start, duration
        )
        if samples.shape[1] != framing.num_samples(recording.num_samples, recording.sample_rate):
            raise AudioError(recording.path, _CHANGED)
    except (OSError, ValueError) as error:
        return Decoded(recording.number, None, reason_of(error))
    return Decoded(recording.number, None, samples.numpy())


def _read_sections(
    recording: Recording, sections: Sequence[Section], framing: Framing
) -> Iterator[tuple[Section, Tensor]]:
    """The samples of each section, frames start .. stop of it, in their order.

    sections: some of the recording's, in order. Memory for one of them, however far apart.
    """
    _check_unchanged(recording)
    rate = recording.sample_rate
    begin, end = sections[0].first, sections[-1].last
    duration: float | None = (end - begin) / rate
    if end == recording.num_samples and recording.end is None:
        duration = None  # to the file's own end, where it is seen whether that has come too soon
    blocks = stream_audio(
        recording.path,
        channels=framing.channels,
        block_duration=_BLOCK_SECONDS,
        start=(round(recording.start * rate) + begin) / rate,
        duration=duration,
    )
    held = torch.zeros(framing.channels, 0)
    position = begin  # of the first sample that is held
    waiting = list(reversed(sections))
    for block in blocks:
        held = torch.cat([held, block], dim=1)
        while waiting and waiting[-1].last <= position + held.shape[1]:
            section = waiting.pop()
            samples = held[:, section.first - position : section.last - position]
            yield section, _resampled(samples, section, rate, framing)
        wanted = waiting[-1].first if waiting else end
        passed = min(max(0, wanted - position), held.shape[1])
        held = held[:, passed:]
        position += passed
    if waiting or position + held.shape[1] != end:
        raise AudioError(recording.path, _CHANGED)


def _resampled(samples: Tensor, section: Section, rate: int, framing: Framing) -> Tensor:
    resampled = resample(samples.contiguous(), rate, framing.sample_rate)
    first = (section.start - section.cut) * framing.hop_length
    last = (section.stop - section.cut) * framing.hop_length
    return resampled[:, first:last].contiguous()


def _check_unchanged(recording: Recording) -> None:
    status = os.stat(recording.path)
    if (status.st_size, status.st_mtime_ns) != (recording.size, recording.mtime_ns):
        raise AudioError(recording.path, _CHANGED)
