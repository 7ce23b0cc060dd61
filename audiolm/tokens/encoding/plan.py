"""What there is to encode, in which batches, and which part does which.

    recordings: the clips' audio, each once (exact duplicates share their codes), in order of ids
      short ones: batches of similar length
      long ones: sections, in runs
    batches and runs, longest first, are dealt to the parts in turn

The plan follows from the collection alone, and not from what is encoded already or where it runs:
a run that was killed resumes with the batches that it would have encoded, and every part knows what
the others do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from audiolm.tokens.encoding.sections import Framing, Section
from audiolm.tokens.shards import EncodedClips

# Clips that are sorted by length together. Batches get no better with more.
_PLAN_CLIPS = 512

# A long recording is cut into runs of sections that a part encodes together, reading the file once.
# Short enough that the parts' shares of the work differ by an eighth of one at most.
_RUNS_A_PART = 8


class Job(NamedTuple):
    """A batch of recordings that are encoded whole, or sections of one recording.

    recordings: indices in the plan. sections: their numbers; empty for a batch.
    """

    recordings: Sequence[int]
    sections: Sequence[int]


@dataclass(frozen=True)
class Plan:
    """Recordings and how their encoding is divided.

    clips: for each recording, the first clip that has its audio. keys, samples, rates, frames: of
    its audio. jobs: batches and runs, which hold every section of every recording once. owners:
    for each job, the number of the part that encodes it. name: a hash of all that.
    """

    framing: Framing
    clips: NDArray[np.int64]
    keys: NDArray[np.uint64]
    samples: NDArray[np.int64]
    rates: NDArray[np.int64]
    frames: NDArray[np.int64]
    jobs: list[Job]
    owners: NDArray[np.int64]
    name: str

    def section(self, recording: int, number: int) -> Section:
        """A section of a recording."""
        return self.framing.section(
            number, int(self.samples[recording]), int(self.rates[recording])
        )

    def sections_of(self, recording: int) -> list[Section]:
        """All sections of a recording."""
        count = self.framing.num_sections(int(self.frames[recording]))
        return [self.section(recording, number) for number in range(count)]

    def find_sections(self, recording: int, encoded: EncodedClips) -> NDArray[np.int64]:
        """For each section of a recording, the row that holds its codes, or -1."""
        key = int(self.keys[recording])
        return encoded.find(
            np.array([section.key(key) for section in self.sections_of(recording)], np.uint64)
        )

    def missing(
        self, wanted: NDArray[np.bool_], sections: EncodedClips
    ) -> Iterator[tuple[int, Job]]:
        """What is still to be encoded of each job, with the part that it belongs to.

        wanted: which recordings are. sections: those that are encoded already.
        """
        for owner, job in zip(self.owners.tolist(), self.jobs, strict=True):
            recordings = [r for r in job.recordings if wanted[r]]
            if not recordings:
                continue
            if job.sections:
                found = self.find_sections(recordings[0], sections)
                numbers = [n for n in job.sections if found[n] < 0]
                if numbers:
                    yield owner, Job(recordings, numbers)
            else:
                yield owner, Job(recordings, ())

    def seconds(self, frames: int) -> float:
        """The duration of so many frames."""
        return frames * self.framing.hop_length / self.framing.sample_rate


def make_plan(audio: NDArray[Any], framing: Framing, batch_seconds: float, num_parts: int) -> Plan:
    """The plan for clips with this `AUDIO` (see `audiolm.datasets.checks.check`), sorted by id.

    batch_seconds: of a batch, at most, or a single recording.
    """
    _, first = np.unique(audio["key"], return_index=True)
    clips = np.sort(first)
    own = audio[clips]
    samples, rates = own["num_samples"].astype(np.int64), own["sample_rate"].astype(np.int64)
    frames = framing.num_frames(samples, rates)
    batch_frames = max(1, round(batch_seconds * framing.sample_rate / framing.hop_length))
    short = np.flatnonzero(frames <= framing.length)
    jobs = [Job(batch, ()) for batch in plan_batches(frames, short, batch_frames)]
    weights = [int(frames[job.recordings].sum()) for job in jobs]
    run = max(1, int(frames.sum()) // (_RUNS_A_PART * num_parts) // framing.length)
    for recording in np.flatnonzero(frames > framing.length).tolist():
        total = int(frames[recording])
        count = framing.num_sections(total)
        for begin in range(0, count, run):
            end = min(begin + run, count)
            jobs.append(Job([recording], range(begin, end)))
            weights.append(min(end * framing.length, total) - begin * framing.length)
    owners = np.zeros(len(jobs), np.int64)
    # Longest first, in turn: no part gets more than another by more than the longest job.
    owners[np.argsort(-np.array(weights, np.int64), kind="stable")] = (
        np.arange(len(jobs)) % num_parts
    )
    digest = hashlib.sha256(f"{tuple(framing)} {num_parts}".encode())
    for array in (own["key"], frames, owners):
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return Plan(
        framing, clips, own["key"], samples, rates, frames, jobs, owners, digest.hexdigest()[:10]
    )


def plan_batches(
    frames: NDArray[np.int64], recordings: NDArray[np.int64], batch_frames: int
) -> Iterator[list[int]]:
    """Group these recordings into batches of similar length.

    frames: of each recording there is. Every one is in one batch, of `batch_frames` in all or of
    a single recording.
    """
    for first in range(0, len(recordings), _PLAN_CLIPS):
        chunk = recordings[first : first + _PLAN_CLIPS]
        batch: list[int] = []
        total = 0
        for i in chunk[np.argsort(frames[chunk], kind="stable")].tolist():
            if batch and total + frames[i] > batch_frames:
                yield batch
                batch, total = [], 0
            batch.append(i)
            total += int(frames[i])
        yield batch
