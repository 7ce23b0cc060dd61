"""Which part of a store is trained on and which is held out.

By file: a clip whose hash falls into the lowest `valid_fraction` of all hashes is held out. The
hash is of the clip's id alone, so a clip keeps its place when files are added or removed, in any
order, on any platform. A split that the source names goes before the hash; clips of the split
"test" are in neither part.

Small collections, where that would leave a part empty:

    nothing held out, two clips or more    the clip with the smallest hash is held out
    nothing to train on, two or more       the clip with the largest hash is trained on
    a single clip                          its last `valid_fraction` of frames is held out

In these, adding files can move the clip in question to the other part, once.

Letters: T codec frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audiolm.tokens.sources import SPLIT_NAMES
from audiolm.tokens.store import TokenStore

_TRAIN, _VALID, _ = range(1, 1 + len(SPLIT_NAMES))


SPAN = np.dtype([("clip", np.int64), ("start", np.int64), ("frames", np.int64)])
"""A stretch of a clip: frames start .. start + frames, at least one. Spans are arrays of these."""


def spans_of(clip: ArrayLike, start: ArrayLike, frames: ArrayLike) -> NDArray[Any]:
    """A `SPAN` array from its three columns."""
    columns = np.broadcast_arrays(clip, start, frames)
    spans = np.empty(columns[0].shape, SPAN)
    for name, column in zip(SPAN.names or (), columns, strict=True):
        spans[name] = column
    return spans


def cut_spans(spans: NDArray[Any], length: int) -> NDArray[Any]:
    """The same frames in spans of at most `length`; only the last of each is shorter."""
    pieces = -(-spans["frames"] // length)
    first = np.cumsum(pieces) - pieces
    which = np.repeat(np.arange(len(spans)), pieces)
    offset = (np.arange(len(which)) - first[which]) * length
    whole = spans[which]
    frames = np.minimum(whole["frames"] - offset, length)
    return spans_of(whole["clip"], whole["start"] + offset, frames)


def split_clips(store: TokenStore, valid_fraction: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """(training spans, held-out spans) of a store, which share no frame.

    valid_fraction: share of the clips without a named split that is held out, in [0, 1). With 0,
    only clips that the source names "valid" are, possibly none.
    Raises ValueError for a fraction outside, and where named splits or a single clip of one frame
    leave a part empty.
    """
    return split_by_hash(
        store.index["split"], store.index["id_hash"], store.frames, valid_fraction, str(store.path)
    )


def split_by_hash(
    named: NDArray[Any],
    hashes: NDArray[np.uint64],
    frames: NDArray[Any],
    valid_fraction: float,
    source: str,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """`split_clips` for clips of `frames` each (or of any other unit of length).

    named: 1 + the place of the split's name in SPLIT_NAMES, 0 for none. hashes: `hash64` of the
    ids. source: what messages call the collection.
    """
    if not 0 <= valid_fraction < 1:
        raise ValueError(f"valid_fraction {valid_fraction} is outside 0 <= valid_fraction < 1")
    by_hash = named == 0
    low = by_hash & (hashes < np.uint64(int(valid_fraction * 2**64)))
    valid = np.flatnonzero((named == _VALID) | low)
    train = np.flatnonzero((named == _TRAIN) | (by_hash & ~low))
    movable = np.flatnonzero(by_hash)

    if len(train) + len(valid) == 1 and len(movable) == 1 and valid_fraction > 0:
        return _split_frames(int(movable[0]), frames, valid_fraction, source)
    if not len(train):
        if not len(movable):
            raise ValueError(
                f"{source}: nothing to train on, every clip is named valid or test; "
                "name some train, or none to split by the hash of the id"
            )
        chosen = movable[np.argmax(hashes[movable])]
        train, valid = np.array([chosen]), valid[valid != chosen]
    elif not len(valid) and valid_fraction > 0:
        if not len(movable):
            raise ValueError(
                f"{source}: nothing held out, every clip is named train or test; "
                "name some valid, or set valid_fraction to 0"
            )
        chosen = movable[np.argmin(hashes[movable])]
        valid, train = np.array([chosen]), train[train != chosen]
    return spans_of(train, 0, frames[train]), spans_of(valid, 0, frames[valid])


def _split_frames(
    clip: int, frames: NDArray[Any], valid_fraction: float, source: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    length = int(frames[clip])
    if length < 2:
        raise ValueError(f"{source}: a single clip of {length} frame cannot be split; add more")
    held_out = min(max(1, round(length * valid_fraction)), length - 1)
    kept = length - held_out
    return spans_of([clip], 0, kept), spans_of([clip], kept, held_out)
