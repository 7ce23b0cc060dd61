"""Windows: which frames of which clip are served, and reading them.

Choosing is arithmetic on the index and is done in the main process; what is chosen travels to the
readers as a few numbers a window, so that readers in other processes know nothing but the stores.

Letters: B batch, K codebooks, T codec frames, W frames of a full window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from audiolm.batches.shuffle import START, Shuffled, random_words
from audiolm.tokens.store import TokenStore

WINDOW = np.dtype(
    [("store", np.int64), ("clip", np.int64), ("start", np.int64), ("frames", np.int64)]
)
"""Frames start .. start + frames of a clip of one of several stores, by their indices."""


class WindowBatch(TypedDict):
    """codes: (B, K, T) int64, T the longest window's, 0 beyond each window's length.

    lengths: (B,) int64, frames. reaches_end: (B,) boolean, whether a window reaches the end of its
    clip.
    conditions: of the clips, B rows each. full: codes that a batch of full windows
    holds.
    """

    codes: Tensor
    lengths: Tensor
    reaches_end: Tensor
    conditions: dict[str, Tensor]
    full: int


Conditions = Callable[[NDArray[Any]], dict[str, Tensor]]
"""Conditions of the clips of `WINDOW`s: tensors of as many rows."""


class TrainingWindows:
    """Random crops of a store's spans: endless, and the same whoever asks for which part.

    A span of n frames has ceil(n / W) slots in each pass, so that long recordings are seen in
    proportion to their length; a pass takes the slots in shuffled order, and each is given a crop
    of its span. A span shorter than W gives all of itself. `len` is the slots of a pass.

    spans: `splits.SPAN`. window_frames: W. shortest, longest: only spans whose windows have so
    many frames. seed: 0 .. 2**64 - 1. stream: distinguishes windows of the same seed.
    """

    def __init__(
        self,
        spans: NDArray[Any],
        window_frames: int,
        seed: int,
        shortest: int = 1,
        longest: int | None = None,
        stream: int = 0,
    ) -> None:
        self.spans = spans
        self.window_frames = window_frames
        self.seed = seed
        self.stream = stream
        frames = spans["frames"]
        fits = frames >= shortest
        if longest is not None and longest < window_frames:
            fits &= frames <= longest
        self._chosen = np.flatnonzero(fits).astype(np.uint32)  # there are tens of millions
        slots = -(-frames[fits] // window_frames)
        self._slots = int(slots.sum())
        # Where each span has one slot, a slot's number is its span's.
        self._slots_end = None if self._slots == len(slots) else np.cumsum(slots)
        self._order = Shuffled(self._slots, seed, stream) if self._slots else None

    def __len__(self) -> int:
        return self._slots

    def take(self, first: int, count: int) -> NDArray[Any]:
        """Windows first .. first + count - 1 of the endless order, a `SPAN` array."""
        assert self._order is not None
        slots = self._order.at(np.arange(first, first + count))
        if self._slots_end is not None:
            slots = np.searchsorted(self._slots_end, slots, side="right")
        windows: NDArray[Any] = self.spans[self._chosen[slots]]
        length = np.minimum(windows["frames"], self.window_frames)
        starts = (windows["frames"] - length + 1).astype(np.uint64)
        # 32 random bits times the number of starts: 0 .. frames - length.
        words = random_words(self.seed, START, count, (0, 0, self.stream), first) >> np.uint64(32)
        windows["start"] += (words * starts >> np.uint64(32)).astype(np.int64)
        windows["frames"] = length
        return windows


class WindowReader(Dataset[WindowBatch]):
    """Reads batches: give it `WINDOW` arrays.

    For a DataLoader without a batch size of its own, whose sampler gives such arrays. Picklable.

    stores: that the windows' `store` counts in, all of one K. full_windows, window_frames: of a
    full batch, for `WindowBatch.full`. conditions: None for an unconditional model.
    """

    def __init__(
        self,
        stores: Sequence[TokenStore],
        full_windows: int,
        window_frames: int,
        conditions: Conditions | None = None,
    ) -> None:
        self.stores = list(stores)
        self.conditions = conditions
        self.num_codebooks = stores[0].num_codebooks
        self.full = full_windows * self.num_codebooks * window_frames

    def __getitem__(self, windows: NDArray[Any]) -> WindowBatch:
        lengths = windows["frames"].copy()
        codes = np.zeros((len(windows), self.num_codebooks, int(lengths.max())), np.int64)
        reaches_end = np.empty(len(windows), np.bool_)
        for row, (store, clip, start, frames) in enumerate(windows.tolist()):
            codes[row, :, :frames] = self.stores[store].read(clip, start, frames)
            reaches_end[row] = start + frames == self.stores[store].frames[clip]
        return {
            "codes": torch.from_numpy(codes),
            "lengths": torch.from_numpy(lengths),
            "reaches_end": torch.from_numpy(reaches_end),
            "conditions": {} if self.conditions is None else self.conditions(windows),
            "full": self.full,
        }
