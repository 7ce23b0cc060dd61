"""Windows of codes for training and validation, and the order in which they are served.

    item g of TrainingWindows:    a pass over all slots in shuffled order, then the next pass
                                  slot -> span, and a start in it drawn at random
    item i of ValidationWindows:  the i-th stretch of the held-out spans, first to last

What training serves at item g depends on (seed, g) and the data, and on nothing else: not on what
was served before, on workers, or on processes. A run that goes on at step n asks for the items of
step n. Random numbers are raw words of Philox (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011), a counter-based generator whose words numpy keeps the same across versions.

Letters: B batch, K codebooks, W frames of a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from audiolm.tokens.splits import cut_spans
from audiolm.tokens.store import TokenStore

# Which of the random streams of a seed: the order of an epoch's slots, or the start of a crop.
_ORDER, _START = 0, 1


class Window(NamedTuple):
    """codes: (K, W) int64, 0 beyond the first `length` frames."""

    codes: Tensor
    length: int


class WindowBatch(TypedDict):
    """codes: (B, K, W) int64, 0 beyond each window's length. lengths: (B,) int64, frames."""

    codes: Tensor
    lengths: Tensor


def collate(windows: Sequence[Window]) -> WindowBatch:
    """Join windows into a batch; for DataLoader's `collate_fn`."""
    return {
        "codes": torch.stack([window.codes for window in windows]),
        "lengths": torch.tensor([window.length for window in windows], dtype=torch.int64),
    }


class TrainingWindows(Dataset[Window]):
    """Random crops of a store's spans; endless, item g for any g >= 0.

    A span of n frames has ceil(n / window_frames) slots in each pass, so that long recordings are
    seen in proportion to their length. A span shorter than the window gives all of itself, padded.
    `len` is the number of slots in a pass.

    window_frames: W. seed: 0 .. 2**64 - 1.
    Raises ValueError for numbers outside their range and for empty spans.
    """

    def __init__(
        self, store: TokenStore, spans: NDArray[Any], window_frames: int, seed: int
    ) -> None:
        _check(spans, window_frames)
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed} is outside 0 .. 2**64 - 1")
        self.store = store
        self.spans = spans
        self.window_frames = window_frames
        self.seed = seed
        self._slots_end = np.cumsum(-(-spans["frames"] // window_frames))
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return int(self._slots_end[-1])

    def __getitem__(self, g: int) -> Window:
        if g < 0:
            raise IndexError(f"item {g}: items count from 0")
        epoch, place = divmod(g, len(self))
        slot = self._epoch_order(epoch)[place]
        span = int(np.searchsorted(self._slots_end, slot, side="right"))
        clip, first, frames = (int(value) for value in self.spans[span])
        length = min(frames, self.window_frames)
        # The upper bits of a 64-bit word times the number of starts: 0 .. frames - length.
        word = int(self._random_words(_START, g, 1)[0])
        start = first + (word * (frames - length + 1) >> 64)
        return _window(self.store, clip, start, length, self.window_frames)

    def __getitems__(self, items: list[int]) -> list[Window]:
        """DataLoader asks for a batch's items at once."""
        return [self[g] for g in items]

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        """Slots in the order of this pass. The last one asked for is kept."""
        if self._order is None or self._order[0] != epoch:
            words = self._random_words(_ORDER, epoch, len(self))
            self._order = epoch, np.argsort(words, kind="stable")
        return self._order[1]

    def _random_words(self, stream: int, number: int, count: int) -> NDArray[np.uint64]:
        # Philox counts up in the first word of its counter; the others tell the streams apart.
        # As arrays: numpy would take lists with words above 2**63 for floats.
        key = np.array([self.seed, stream], np.uint64)
        counter = np.array([0, number, 0, 0], np.uint64)
        words: NDArray[np.uint64] = np.random.Philox(key=key, counter=counter).random_raw(count)
        return words

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_order": None}


class ValidationWindows(Dataset[Window]):
    """Every frame of the spans once, in order, in windows of W frames; a span's last is shorter.

    Raises ValueError for a window of no frames and for empty spans.
    """

    def __init__(self, store: TokenStore, spans: NDArray[Any], window_frames: int) -> None:
        _check(spans, window_frames)
        self.store = store
        self.window_frames = window_frames
        self.pieces = cut_spans(spans, window_frames)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, i: int) -> Window:
        if not 0 <= i < len(self):
            raise IndexError(f"window {i} of {len(self)}")
        clip, start, length = (int(value) for value in self.pieces[i])
        return _window(self.store, clip, start, length, self.window_frames)


class StepSampler(Sampler[list[int]]):
    """Which items of `TrainingWindows` each batch of each process holds.

    Batch n of process `rank` holds the items (n * world_size + rank) * batch_size + j,
    j = 0 .. batch_size - 1, so all processes together serve the same items at n however the same
    global batch is divided over them. For DataLoader's `batch_sampler`.

    batch_size: items of one process. start_batch: where to go on; num_batches: where to stop,
    counted from the beginning of training, which is also `len`.
    Raises ValueError for numbers outside their range.
    """

    def __init__(
        self,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        *,
        start_batch: int = 0,
        num_batches: int,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size {batch_size} must be at least 1")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside 0 .. world_size - 1 = {world_size - 1}")
        if not 0 <= start_batch <= num_batches:
            raise ValueError(f"start_batch {start_batch} is outside 0 .. num_batches {num_batches}")
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.start_batch = start_batch
        self.num_batches = num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        for n in range(self.start_batch, self.num_batches):
            first = (n * self.world_size + self.rank) * self.batch_size
            yield list(range(first, first + self.batch_size))


def _check(spans: NDArray[Any], window_frames: int) -> None:
    if window_frames < 1:
        raise ValueError(f"window_frames {window_frames} must be at least 1")
    if not len(spans):
        raise ValueError("no spans to make windows of: this part of the store is empty")


def _window(store: TokenStore, clip: int, start: int, length: int, window_frames: int) -> Window:
    codes = np.zeros((store.num_codebooks, window_frames), np.int64)
    codes[:, :length] = store.read(clip, start, length)
    return Window(torch.from_numpy(codes), length)
