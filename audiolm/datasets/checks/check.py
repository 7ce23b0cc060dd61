"""Check a collection before anything else: decode every clip once and tell what is there.

clips, sorted by id
  |  which were measured before?           (same file, size, time of last change, start, end)
  v
measure the others, in worker processes    a fault is a result like any other
  |  to the cache, every 20 s              what a kill cannot take away
  v
rules on the measurements, exact duplicates
  |
  v
CheckReport: clips to encode; the others with their reasons
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from audiolm.datasets.checks.apply import Collection, apply_rules, seconds_of
from audiolm.datasets.checks.cache import CheckCache, Source, path_in
from audiolm.datasets.checks.measure import AUDIO, MEASURED, Fault, Measurement, measure
from audiolm.datasets.checks.report import CheckReport
from audiolm.datasets.checks.rules import Rules
from audiolm.datasets.clip import Clip, Found, PassedOver, RowMatch, SkippedClip
from audiolm.files import hash64, user_path
from audiolm.locks import FileLock
from audiolm.parallel import Part, as_a_workers_death, check_part, worker_settings
from audiolm.progress import audio_rate, bar_interval

__all__ = ["AUDIO", "CheckReport", "check_clips"]

# A chunk of work for a process: so many bytes of files, each counted as at least the second, which
# takes a millisecond to open. Large enough that handing it over costs nothing beside it.
_CHUNK_BYTES = 4 * 2**20
_FILE_BYTES = 2**16


def check_clips(
    clips: Iterable[Found],
    cache_dir: Path,
    rules: Rules,
    *,
    num_workers: int,
    part: Part = Part(0, 1),  # noqa: B008
    known: NDArray[np.uint64] | None = None,
    channels: int = 1,
    show_progress: bool = True,
) -> CheckReport:
    """Decode what was not decoded before, and tell which clips can be used and what is wrong.

    cache_dir: where measurements are kept; several collections may share it.
    num_workers: processes that decode; 0 decodes in this one.
    part: only the clips whose id's hash falls into it are measured and reported on.
    known: `hash64` of the ids that the store holds already. Of exact duplicates the one kept is
        known, so that no audio changes its split as data grows; else the one in the most protected
        split that its source names (test, valid, train, none); else the first by id.
    channels: of the codec, 1 or 2: what is mixed for it is judged by the mix.

    A second process on the same part waits, and finds everything measured. Raises ValueError for
    two clips of one id and for no clips at all; see `CheckReport.enforce` for too many bad ones.
    Ctrl-C keeps what was measured; the next run resumes there.
    """
    check_part(part)
    ordered, unusable, asides = _select(clips, part)
    collection = Collection(ordered, np.zeros(len(ordered), MEASURED), {}, [])
    cache_dir = user_path(cache_dir)
    with _lock(cache_dir, part):
        _measure_all(collection, CheckCache(cache_dir), num_workers, show_progress)
    report = apply_rules(collection, unusable, rules, part, known, channels)
    return replace(report, asides=asides)


def _select(
    clips: Iterable[Found], part: Part
) -> tuple[list[Clip], list[SkippedClip], list[PassedOver | RowMatch]]:
    """The part's clips by id; what the source could not use, and what it says beside, which the
    first part reports."""
    ordered: list[Clip] = []
    unusable: list[SkippedClip] = []
    asides: list[PassedOver | RowMatch] = []
    empty = True
    for clip in clips:
        if isinstance(clip, PassedOver | RowMatch):
            if part.number == 0:
                asides.append(clip)
            continue
        empty = False
        if isinstance(clip, SkippedClip):
            if part.number == 0:
                unusable.append(clip)
        elif part.count == 1 or hash64(clip.id) % part.count == part.number:
            ordered.append(clip)
    if empty:
        raise ValueError("no clips to encode: the source is empty")
    ordered.sort(key=lambda clip: clip.id)
    for first, second in pairwise(ordered):
        if first.id == second.id:
            raise ValueError(
                f"two clips have the id {first.id!r}, {first.path} and {second.path}; "
                "every clip needs its own"
            )
    return ordered, unusable, asides


# ---- Measuring


_Task = tuple[int, Path, float, float | None]
"""A clip's index, its file, and from which second to which."""


class _Measure(Dataset[list[tuple[int, Measurement | Fault]]]):
    """Measures the chunk that it is indexed with, so that workers hold nothing of the others."""

    def __getitem__(self, chunk: list[_Task]) -> list[tuple[int, Measurement | Fault]]:
        return [(i, measure(path, start, end)) for i, path, start, end in chunk]


def _as_is(result: Any) -> Any:
    return result


def _measure_all(
    collection: Collection, cache: CheckCache, num_workers: int, show_progress: bool
) -> None:
    """Fill in the collection's rows and faults, from the cache or by decoding."""
    clips, rows, faults = collection.clips, collection.rows, collection.faults
    collection.formats = cache.formats
    todo = _look_up(collection, cache, show_progress)
    done = 0
    loader = DataLoader(
        _Measure(),
        batch_size=None,
        sampler=_chunks(clips, rows["size"], todo),
        **worker_settings(num_workers),
        collate_fn=_as_is,
        # A long file holds up no others. (Without workers there is nothing to hold up.)
        in_order=num_workers == 0,
    )
    progress = _Progress(len(todo), _weight(rows["size"][todo]), show_progress)
    try:
        for results in loader:
            for i, result in results:
                size, mtime_ns = int(rows["size"][i]), int(rows["mtime_ns"][i])
                source = _source(cache.folder, clips[i], size, mtime_ns)
                cache.add(source, result)
                if isinstance(result, Fault):
                    faults[i] = result
                else:
                    rows[i] = cache.row(source, result)
                done += 1
            progress.advance(rows[[i for i, _ in results]])
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped; {done} of {len(todo)} files were checked and are kept, "
            "run the same command to resume"
        ) from None
    except RuntimeError as error:
        kept = f" after {done} of {len(todo)} files, which are kept"
        raise as_a_workers_death(error, kept) from error
    finally:
        cache.flush()
        progress.close()
    cache.merge()


def _look_up(collection: Collection, cache: CheckCache, show_progress: bool) -> NDArray[np.int64]:
    """Fill in each file's size and time and what the cache knows; the indices of the others."""
    clips, rows, faults = collection.clips, collection.rows, collection.faults
    keys = np.zeros(len(clips), np.uint64)
    there = np.ones(len(clips), np.bool_)
    for i, clip in enumerate(
        tqdm(clips, "looking up", unit="file", leave=False, delay=2, disable=not show_progress)
    ):
        try:
            status = clip.path.stat()
        except (OSError, ValueError) as error:  # the latter for a path with a zero byte
            there[i] = False
            reason = getattr(error, "strerror", None) or str(error)
            faults[i] = Fault("unreadable", f"not readable: {reason}")
            continue
        rows["size"][i], rows["mtime_ns"][i] = status.st_size, status.st_mtime_ns
        keys[i] = _source(cache.folder, clip, status.st_size, status.st_mtime_ns).key
    found, cached = cache.find(keys)
    found &= there
    rows[found] = cached[found]
    for index in np.flatnonzero(found & (cached["sample_rate"] == 0)).tolist():
        fault = cache.fault(int(keys[index]))
        assert fault is not None, "a cached clip has neither a rate nor a fault"
        faults[index] = fault
    return np.flatnonzero(there & ~found)


def _source(folder: Path, clip: Clip, size: int, mtime_ns: int) -> Source:
    end = None if clip.end is None else float(clip.end)
    return Source(path_in(folder, clip.path), size, mtime_ns, float(clip.start), end)


def _weight(sizes: NDArray[np.int64]) -> int:
    """About how long files of these bytes take, in bytes."""
    return int(np.maximum(sizes, _FILE_BYTES).sum())


def _chunks(
    clips: Sequence[Clip], sizes: NDArray[np.int64], todo: NDArray[np.int64]
) -> Iterator[list[_Task]]:
    chunk: list[_Task] = []
    weight = 0
    for i in todo:
        clip = clips[i]
        chunk.append((int(i), clip.path, clip.start, clip.end))
        weight += _weight(sizes[i : i + 1])
        if weight >= _CHUNK_BYTES:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


class _Progress:
    """A bar over the bytes of the files: hours are not known before the files are decoded."""

    def __init__(self, files: int, weight: int, show: bool) -> None:
        self._started = time.perf_counter()
        self._files, self._done, self._seconds = files, 0, 0.0
        self._bar = tqdm(
            total=weight,
            desc="checking",
            bar_format="{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]",
            disable=not show or files == 0,
            mininterval=bar_interval(),
        )

    def advance(self, rows: NDArray[Any]) -> None:
        """The clips of these rows are done."""
        self._done += len(rows)
        self._seconds += seconds_of(rows[rows["sample_rate"] > 0]).sum()
        rate = audio_rate(self._seconds, time.perf_counter() - self._started)
        self._bar.set_postfix_str(
            f"{self._done:,}/{self._files:,} files, {self._seconds / 3600:.3f} hours, {rate}",
            refresh=False,
        )
        self._bar.update(_weight(rows["size"]))

    def close(self) -> None:
        self._bar.close()


@contextmanager
def _lock(cache_dir: Path, part: Part) -> Iterator[None]:
    """Hold a part alone, until this process ends, however."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    lock = FileLock(cache_dir / f".check-{part.number}-of-{part.count}.lock")
    if not lock.acquire(timeout=0):
        print(
            f"waiting: another process is checking with {cache_dir}: {lock.holder()} "
            f"(Ctrl-C to stop waiting)",
            file=sys.stderr,
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
