"""Encode what workers decode, into shards.

Letters: C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from numpy.typing import NDArray
from tqdm import tqdm

from audiolm.audio import reason_of
from audiolm.parallel import as_a_workers_death
from audiolm.progress import audio_rate, bar_interval
from audiolm.tokens.encoding.decode import Decoded, DecodeJob, decode_jobs
from audiolm.tokens.encoding.plan import Plan
from audiolm.tokens.shards import ShardWriter

if TYPE_CHECKING:
    # Not at run time: training from a store needs no codec, and EnCodec takes seconds to import.
    from audiolm.codec import Codec

A = TypeVar("A")
B = TypeVar("B")
Codes = tuple[Decoded, NDArray[Any]]


@dataclass
class Encoded:
    """What `encode_jobs` did.

    recordings: indices in the plan of those that were encoded, wholly or in part. frames: of all
    that was. skipped: reasons, by the key of the audio.
    """

    recordings: set[int] = field(default_factory=set)
    frames: int = 0
    skipped: dict[int, str] = field(default_factory=dict)


def encode_jobs(
    jobs: Sequence[DecodeJob],
    plan: Plan,
    codec: Codec,
    clips: ShardWriter,
    sections: ShardWriter,
    *,
    num_workers: int,
    show_progress: bool,
) -> Encoded:
    """Encode recordings into `clips` and sections into `sections`, whose shards it closes.

    A batch is all in one shard. Raises ChildProcessError where a worker dies; then, as after
    Ctrl-C, what was encoded is in the shards.
    """
    encoded = Encoded()
    total = sum(_frames(plan, job) for job in jobs)
    progress = _Progress(plan.seconds(total), show=show_progress and total > 0)
    try:
        reader = decode_jobs(jobs, plan.framing, min(num_workers, len(jobs)))
        for found, reasons in _side_by_side(
            lambda group: _encode(group, codec), reader, _num_threads(codec, len(jobs))
        ):
            for recording, reason in reasons:
                encoded.skipped.setdefault(int(plan.keys[recording]), reason)
            whole: list[tuple[int, NDArray[Any]]] = []
            for decoded, codes in found:
                key = int(plan.keys[decoded.recording])
                if decoded.section is None:
                    whole.append((key, codes))
                else:
                    sections.add([(decoded.section.key(key), codes)])
                encoded.recordings.add(decoded.recording)
                encoded.frames += codes.shape[1]
                progress.advance(plan.seconds(codes.shape[1]))
            clips.add(whole)
            clips.close_if_due()
            sections.close_if_due()
    except KeyboardInterrupt:
        done, of = (plan.seconds(frames) / 3600 for frames in (encoded.frames, total))
        raise KeyboardInterrupt(
            f"stopped; {done:.3f} of {of:.3f} hours were encoded and are kept, "
            "run the same command to resume"
        ) from None
    except RuntimeError as error:
        raise as_a_workers_death(error, "; what was encoded is kept") from error
    finally:
        clips.close()
        sections.close()
        progress.close()
    return encoded


def _frames(plan: Plan, job: DecodeJob) -> int:
    if job.sections:
        return sum(section.end - section.begin for section in job.sections)
    return sum(int(plan.frames[recording.number]) for recording in job.recordings)


def _num_threads(codec: Codec, jobs: int) -> int:
    """How many jobs to encode at a time: on a CPU one a thread, each with one thread."""
    return min(torch.get_num_threads(), jobs) if codec.device.type == "cpu" else 1


def _side_by_side(function: Callable[[A], B], arguments: Iterable[A], threads: int) -> Iterator[B]:
    """`map`, with so many calls at a time and at most two results a thread waiting.

    Networks of few channels divide badly: PyTorch's threads wait for each other in every layer, and
    for ever where another program takes one's core. Whole batches side by side do not. They
    also continue while this thread reads the next ones.
    """
    if threads <= 1:
        yield from map(function, arguments)
        return
    waiting: deque[Future[B]] = deque()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for argument in arguments:
            waiting.append(pool.submit(function, argument))
            if len(waiting) >= 2 * threads or waiting[0].done():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _encode(group: list[Decoded], codec: Codec) -> tuple[list[Codes], list[tuple[int, str]]]:
    """Codes (K, T) of what could be decoded, all together; a section's without its margins.

    And of the others the recording, and why.
    """
    reasons = [(d.recording, d.audio) for d in group if isinstance(d.audio, str)]
    good = [(d, torch.from_numpy(d.audio)) for d in group if not isinstance(d.audio, str)]
    if not good:
        return [], reasons
    try:
        found = codec.encode_batch([waveform for _, waveform in good])
    except ValueError as error:
        if len(good) == 1:
            return [], [*reasons, (good[0][0].recording, reason_of(error))]
        # One of them cannot be encoded: find out which.
        alone = [_encode([decoded], codec) for decoded, _ in good]
        return [c for codes, _ in alone for c in codes], reasons + [r for _, w in alone for r in w]
    codes = []
    for (decoded, _), own in zip(good, found, strict=True):
        section = decoded.section
        if section is not None:
            own = own[:, section.begin - section.start : section.end - section.start]
        codes.append((decoded, own.cpu().numpy()))
    return codes, reasons


class _Progress:
    """A bar of hours of audio, with the rate so far."""

    def __init__(self, seconds: float, show: bool) -> None:
        self._started = time.perf_counter()
        self._seconds = 0.0
        self._bar = tqdm(
            total=seconds / 3600,
            desc="encoding",
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n:.3f}/{total:.3f} hours "
            "[{elapsed}<{remaining}{postfix}]",
            disable=not show,
            mininterval=bar_interval(),
        )

    def advance(self, seconds: float) -> None:
        """So many more seconds of audio are done."""
        self._seconds += seconds
        rate = audio_rate(self._seconds, time.perf_counter() - self._started)
        self._bar.set_postfix_str(rate, refresh=False)
        # Rounding may take the sum a hair over the total; a bar over its end warns.
        self._bar.update(min(seconds / 3600, self._bar.total - self._bar.n))

    def close(self) -> None:
        self._bar.close()
