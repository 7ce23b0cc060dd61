"""Which part of a store is trained on and which is for validation.

By the hash of what belongs together: a group of clips (of a speaker, say), the copies of the same
audio, else the clip alone. Those whose hash falls into the lowest `valid_fraction` of all hashes
are for validation. The hash is of the group's or the clip's name alone, so a clip keeps its split
when files are added or removed, in any order, on any platform.

A split that the source names goes before the hash, for the clips that it names one for and for
the rest of their group; clips of the split "test" are in neither part. Where it names some "train"
and none "valid", as sets that come in train and test do, the hash takes some of these for
validation.

Small collections, where that would leave a part empty:

    nothing to validate on, two or more    the group with the smallest hash is validated on
    nothing to train on, two or more       the group with the largest hash is trained on
    a single clip                          its last `valid_fraction` of frames is validated on

In these, adding files can move the group in question to the other part, once.

Letters: T codec frames.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audiolm.datasets.clip import SPLIT_NAMES
from audiolm.tokens.store import TokenStore

_TRAIN, _VALID, _TEST = range(1, 1 + len(SPLIT_NAMES))


SPAN = np.dtype([("clip", np.int64), ("start", np.int64), ("frames", np.int64)])
"""A span of a clip: frames start .. start + frames, at least one. Spans are arrays of these."""


def spans_of(clip: ArrayLike, start: ArrayLike, frames: ArrayLike) -> NDArray[Any]:
    """A `SPAN` array from its three columns."""
    columns = np.broadcast_arrays(clip, start, frames)
    spans = np.empty(columns[0].shape, SPAN)
    for name, column in zip(SPAN.names or (), columns, strict=True):
        spans[name] = column
    return spans


def cut_spans(spans: NDArray[Any], length: int) -> NDArray[Any]:
    """The same frames in spans of at most `length`; only the last of each is shorter."""
    counts = -(-spans["frames"] // length)
    first = np.cumsum(counts) - counts
    which = np.repeat(np.arange(len(spans)), counts)
    offset = (np.arange(len(which)) - first[which]) * length
    whole = spans[which]
    frames = np.minimum(whole["frames"] - offset, length)
    return spans_of(whole["clip"], whole["start"] + offset, frames)


class Split(NamedTuple):
    """Spans of a store that share no frame; test: of clips that are in neither part."""

    train: NDArray[Any]
    valid: NDArray[Any]
    test: NDArray[Any]


def split_clips(store: TokenStore, valid_fraction: float) -> Split:
    """What of a store is for training, for validation, and named "test" by its source.

    valid_fraction: share of the clips without a named split for validation, in [0, 1). With 0,
    only clips that the source names "valid" are, possibly none.
    Raises ValueError for a fraction outside, where named splits or a single group leave a part
    empty, and where clips of one group are named for different splits.
    """
    hashes = np.ascontiguousarray(store.index["split_hash"])
    named = _name_groups(store, np.array(store.index["split"]), hashes)
    train, valid = split_by_hash(named, hashes, store.frames, valid_fraction, str(store.path))
    test = np.flatnonzero(named == _TEST)
    return Split(train, valid, spans_of(test, 0, store.frames[test]))


def _name_groups(
    store: TokenStore, named: NDArray[np.uint8], hashes: NDArray[np.uint64]
) -> NDArray[np.uint8]:
    """`named`, with clips that are named for nothing named as others of their group are."""
    (clips,) = np.nonzero(named)
    if not len(clips):
        return named
    clips = clips[np.argsort(hashes[clips], kind="stable")]
    together = hashes[clips[1:]] == hashes[clips[:-1]]
    (torn,) = np.nonzero(together & (named[clips[1:]] != named[clips[:-1]]))
    if len(torn):
        one, two = int(clips[torn[0]]), int(clips[torn[0] + 1])
        raise ValueError(
            f"{store.path}: {store.record(one)['id']} is named {SPLIT_NAMES[named[one] - 1]} and "
            f"{store.record(two)['id']} {SPLIT_NAMES[named[two] - 1]}, but both are of one group; "
            "name one split a group, or prepare into another folder without data.group"
        )
    (others,) = np.nonzero(named == 0)
    if len(others):
        found = np.minimum(np.searchsorted(hashes[clips], hashes[others]), len(clips) - 1)
        found = clips[found]
        named[others] = np.where(hashes[found] == hashes[others], named[found], 0)
    return named


def split_by_hash(
    named: NDArray[Any],
    hashes: NDArray[np.uint64],
    frames: NDArray[Any],
    valid_fraction: float,
    source: str,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(training spans, validation spans) of clips of `frames` each, or in another measure of
    length.

    named: 1 + the index of the split's name in SPLIT_NAMES, 0 for none. hashes: of the clips'
    groups, or of their ids. source: what messages call the collection.
    Raises ValueError as `split_clips` does.
    """
    if not 0 <= valid_fraction < 1:
        raise ValueError(f"valid_fraction {valid_fraction} is outside 0 <= valid_fraction < 1")
    by_hash = named == 0
    if valid_fraction > 0 and not (named == _VALID).any():
        by_hash |= named == _TRAIN
    low = by_hash & (hashes < np.uint64(int(valid_fraction * 2**64)))
    validation = (named == _VALID) | low
    trained_on = ((named == _TRAIN) | by_hash) & ~low

    if validation.sum() + trained_on.sum() == by_hash.sum() == 1 and valid_fraction > 0:
        return _split_frames(int(np.argmax(by_hash)), frames, valid_fraction, source)
    if not trained_on.any():
        if not by_hash.any():
            raise ValueError(
                f"{source}: nothing to train on, every clip is named valid or test; "
                "add some that are named train, or name none, to split by the hash of the id"
            )
        moved = by_hash & (hashes == hashes[by_hash].max())
        trained_on, validation = moved, validation & ~moved
    elif not validation.any() and valid_fraction > 0:
        moved = by_hash & (hashes == hashes[by_hash].min())
        trained_on, validation = trained_on & ~moved, moved
    if not trained_on.any() or (not validation.any() and valid_fraction > 0):
        raise ValueError(
            f"{source}: its {by_hash.sum()} clips are of one group, or the same audio, and cannot "
            "be split; add others, group by something else, or set valid_fraction to 0"
        )
    train, valid = np.flatnonzero(trained_on), np.flatnonzero(validation)
    return spans_of(train, 0, frames[train]), spans_of(valid, 0, frames[valid])


def _split_frames(
    clip: int, frames: NDArray[Any], valid_fraction: float, source: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    length = int(frames[clip])
    if length < 2:
        raise ValueError(f"{source}: a single clip of {length} frame cannot be split; add more")
    validation = min(max(1, round(length * valid_fraction)), length - 1)
    kept = length - validation
    return spans_of([clip], 0, kept), spans_of([clip], kept, validation)
