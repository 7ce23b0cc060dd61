"""Batches of windows of like lengths (length bucketing), under a budget.

A batch has the capacity of a number of full windows. Windows of full length go into batches in the
order of `TrainingWindows`. Where clips are shorter, their lengths are divided into buckets, each
bucket has a `TrainingWindows` of its own, and its batches hold as many windows as fit:

    lengths       300 .. 320    200 .. 299     140 .. 199
    a batch       ##########    ######....     ####......
                  ##########    ######....     ####......
                                ######....     ####......
                                               ####......
    schedule      0 1 0 0 2 0 1 ...            in proportion to the batches of a pass

Everything is a function of the seed, the batch's number and the data: batch n is there at once,
and is the same however it is divided among processes.

Letters: W frames of a full window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from audiolm.batches.schedule import StrideScheduler
from audiolm.batches.splits import SPAN, cut_spans
from audiolm.batches.windows import WINDOW, TrainingWindows

PADDING = 0.08  # share of the frames of batches that may be padding
_MAX_LENGTHS = 512  # lengths distinguished in dividing them into buckets

T = TypeVar("T")


@dataclass(frozen=True)
class Bucket:
    """Windows of like lengths.

    longest: frames. rows: windows of a batch. stores: indices of the stores that have such
    windows. windows: theirs. scheduler: among them, for each window.
    """

    longest: int
    rows: int
    stores: tuple[int, ...]
    windows: tuple[TrainingWindows, ...]
    scheduler: StrideScheduler

    def batch(self, i: int) -> NDArray[Any]:
        """Batch i of this bucket, in the order of its scheduler."""
        which, number = self.scheduler.at(i * self.rows, self.rows)
        batch = np.empty(self.rows, WINDOW)
        for index, (store, windows) in enumerate(zip(self.stores, self.windows, strict=True)):
            mine = np.flatnonzero(which == index)
            if len(mine):
                taken = windows.take(int(number[mine[0]]), len(mine))
                batch["store"][mine] = store
                for name in SPAN.names or ():
                    batch[name][mine] = taken[name]
        return batch


class TrainingBatches:
    """The batches of a training, endless: `batches[n]` for any n >= 0 is a `WINDOW` array.

    Its windows are of like lengths, the longest first, as many as take no more steps than
    `full_windows` full ones; but no more than their bucket has in a pass, where that are at least
    `full_windows`. The stores' shares of the frames are exact but for a window a store and bucket.

    Args:
        spans: of each store, to train on.
        window_frames: W.
        full_windows: full windows that fit a batch, in all processes together.
        steps: the model's steps for a window of so many frames, which capacity is counted in.
        seed: 0 .. 2**64 - 1.
        shares: of the frames trained on, a store, above 0.

    Attributes:
        buckets: of lengths, the longest first.
        mean_frames: of a batch, padding not counted.
        padding: share of a batch's frames that is padding, at most and on average.
        passes: over each store in one batch.

    Raises:
        ValueError: for numbers outside their range and for empty spans.
    """

    def __init__(
        self,
        spans: Sequence[NDArray[Any]],
        window_frames: int,
        full_windows: int,
        steps: Callable[[int], int],
        seed: int,
        shares: Sequence[float] = (1.0,),
    ) -> None:
        _check(window_frames, full_windows)
        if not spans or not all(len(part) for part in spans):
            raise ValueError("no spans to train on: this part of a store is empty")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed} is outside 0 .. 2**64 - 1")
        counts = np.stack([window_lengths(part["frames"], window_frames) for part in spans])
        frames = counts @ np.arange(window_frames + 1)  # of a pass over each store
        # Over each store, while as many frames are trained on as the shares add up to.
        passes = np.array(shares, np.float64) / frames
        if steps(1) == steps(window_frames):  # nothing is gained by distinguishing lengths
            bounds = [window_frames]
        else:
            bounds = divide_lengths((passes[:, None] * counts).sum(axis=0), PADDING)
        self.buckets: list[Bucket] = []
        rates = []
        for number, (shortest, longest) in enumerate(
            zip([bound + 1 for bound in bounds[1:]] + [1], bounds, strict=True)
        ):
            slots = counts[:, shortest : longest + 1].sum(axis=1)
            capacity = rows_that_fit(longest, window_frames, full_windows, steps)
            stores = np.flatnonzero(slots).tolist()
            windows = [
                TrainingWindows(
                    spans[store], window_frames, seed, shortest, longest, store << 32 | number
                )
                for store in stores
            ]
            # More rows than a pass would be the same windows twice in a batch.
            rows = min(capacity, max(int(slots.sum()), full_windows))
            scheduler = StrideScheduler((passes * slots)[stores])
            bucket = Bucket(longest, rows, tuple(stores), tuple(windows), scheduler)
            self.buckets.append(bucket)
            rates.append(sum((passes * slots).tolist()) / bucket.rows)
        self._scheduler = StrideScheduler(np.array(rates))
        self.mean_frames = sum(shares) / sum(rates)
        self.passes = passes / sum(rates)
        padded = sum(
            r * bucket.rows * bucket.longest for r, bucket in zip(rates, self.buckets, strict=True)
        )
        self.padding = 1 - sum(shares) / padded

    def __getitem__(self, n: int) -> NDArray[Any]:
        if n < 0:
            raise IndexError(f"batch {n}: batches count from 0")
        bucket, number = self._scheduler.at(n, 1)
        batch = self.buckets[int(bucket[0])].batch(int(number[0]))
        return batch[np.argsort(-batch["frames"], kind="stable")]


def window_lengths(frames: NDArray[Any], window_frames: int) -> NDArray[np.int64]:
    """How many windows of each length a pass over spans of `frames` has: (W + 1,), by length."""
    counts = np.bincount(np.minimum(frames, window_frames), minlength=window_frames + 1)
    longer = frames[frames > window_frames]
    counts[window_frames] += int((-(-longer // window_frames)).sum()) - len(longer)
    return counts


def divide_lengths(weights: NDArray[np.float64], padding: float) -> list[int]:
    """The longest lengths of the fewest buckets that keep padding small; the longest bucket first.

    By dynamic programming over the lengths at which a bucket may end.

    weights: (W + 1,), windows of each length. padding: share of the frames, each window counted
    as long as the longest of its bucket.
    """
    (present,) = np.nonzero(weights)
    longest = int(present[-1])
    coarse = -(-longest // _MAX_LENGTHS)
    ends = np.unique(np.minimum(-(-present // coarse) * coarse, longest))
    below = np.concatenate([[0.0], np.cumsum(weights)[ends]])  # windows up to each end
    frames = float(np.cumsum(weights * np.arange(len(weights)))[-1])
    # cost[i, j]: frames of a bucket of the windows above ends[i - 1] and up to ends[j - 1].
    cost = np.concatenate([[0], ends]) * (below[None, :] - below[:, None])
    cost[np.tril_indices(len(cost))] = np.inf
    least = np.full(len(cost), np.inf)  # frames of all windows up to an end, in so many buckets
    least[0] = 0.0
    choices: list[NDArray[np.int64]] = []
    while not choices or (frames < (1 - padding) * least[-1] and len(choices) < len(ends)):
        totals = least[:, None] + cost
        choices.append(totals.argmin(axis=0))
        least = totals.min(axis=0)
    bounds, end = [], len(ends)
    for choice in reversed(choices):
        bounds.append(int(ends[end - 1]))
        end = int(choice[end])
    return bounds


def rows_that_fit(
    longest: int, window_frames: int, full_windows: int, steps: Callable[[int], int]
) -> int:
    """Windows of `longest` frames that take no more steps than `full_windows` of W frames."""
    return full_windows * steps(window_frames) // steps(longest)


def validation_batches(
    spans: Sequence[NDArray[Any]],
    window_frames: int,
    full_windows: int,
    steps: Callable[[int], int],
    part: int = 0,
    parts: int = 1,
) -> list[NDArray[Any]]:
    """Every frame of the stores' spans once, in batches of `WINDOW`s, the longest first.

    A window has W frames, or what is left at the end of a span. Those of one of several parts are
    every parts-th of all.

    Raises ValueError for numbers outside their range and for no spans at all.
    """
    _check(window_frames, full_windows)
    windows = []
    for store, whole in enumerate(spans):
        cut = cut_spans(whole, window_frames)
        windows.append(np.empty(len(cut), WINDOW))
        windows[-1]["store"] = store
        for name in SPAN.names or ():
            windows[-1][name] = cut[name]
    joined = np.concatenate(windows)
    if not len(joined):
        raise ValueError("no spans to validate on: this part of the stores is empty")
    mine = joined[np.argsort(-joined["frames"], kind="stable")][part::parts]
    batches = []
    first = 0
    while first < len(mine):
        capacity = rows_that_fit(int(mine["frames"][first]), window_frames, full_windows, steps)
        batches.append(mine[first : first + capacity])
        first += capacity
    return batches


class StepSampler(Sampler[T]):
    """What a function gives for the batches of a training, one after the other.

    start_batch: where to resume; num_batches: where to stop, counted from the beginning of
    training, which is also `len`.
    Raises ValueError for numbers outside their range.
    """

    def __init__(
        self, batch: Callable[[int], T], *, start_batch: int = 0, num_batches: int
    ) -> None:
        if not 0 <= start_batch <= num_batches:
            raise ValueError(f"start_batch {start_batch} is outside 0 .. num_batches {num_batches}")
        self.batch = batch
        self.start_batch = start_batch
        self.num_batches = num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[T]:
        return map(self.batch, range(self.start_batch, self.num_batches))


def _check(window_frames: int, full_windows: int) -> None:
    if window_frames < 1:
        raise ValueError(f"window_frames {window_frames} must be at least 1")
    if full_windows < 1:
        raise ValueError(f"full_windows {full_windows} must be at least 1")
