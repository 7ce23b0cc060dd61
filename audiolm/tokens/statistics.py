"""How often each code occurs: the yardsticks that a training loss is compared with.

A model that knew nothing but these frequencies would have the unigram entropy as its loss on the
codes they were counted on, and the cross-entropy on others. Below it, a model has learned what
follows what.

Letters: K codebooks, V codes in a codebook.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.tokens.splits import cut_spans
from audiolm.tokens.store import TokenStore

_PIECE_FRAMES = 4096


@dataclass(frozen=True)
class CodeCounts:
    """counts: (K, V) int64. frames: how many were counted. sampled: not all of them were."""

    counts: NDArray[np.int64]
    frames: int
    sampled: bool


def count_codes(store: TokenStore, spans: NDArray[Any], max_frames: int = 20_000_000) -> CodeCounts:
    """Count every code of the spans, or of an evenly spread sample of about `max_frames` frames."""
    pieces = cut_spans(spans, _PIECE_FRAMES)
    total = int(spans["frames"].sum())
    sampled = total > max_frames
    chosen = np.arange(len(pieces))
    if sampled:
        wanted = max(1, len(pieces) * max_frames // total)
        chosen = np.arange(wanted) * len(pieces) // wanted
    num_codebooks, size = store.num_codebooks, store.codebook_size
    shift = np.arange(num_codebooks)[:, None] * size
    counts = np.zeros(num_codebooks * size, np.int64)
    frames = 0
    waiting: list[NDArray[np.int64]] = []
    waiting_frames = 0
    for number, i in enumerate(chosen):
        clip, start, length = (int(value) for value in pieces[i])
        codes = store.read(clip, start, length)
        waiting.append(codes + shift)
        waiting_frames += length
        # Many short clips are counted together: each call costs a pass over all K * V counts.
        if waiting_frames >= 16 * _PIECE_FRAMES or number + 1 == len(chosen):
            joined = np.concatenate(waiting, axis=1)
            counts += np.bincount(joined.ravel(), minlength=len(counts))
            frames += waiting_frames
            waiting, waiting_frames = [], 0
    return CodeCounts(counts.reshape(num_codebooks, size), frames, sampled)


def unigram_entropy(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Entropy in nats of each codebook's codes, shape (K,), from counts (K, V)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    entropy: NDArray[np.float64] = -(shares * logs).sum(axis=1)
    return entropy


def unigram_cross_entropy(
    train_counts: NDArray[np.int64], valid_counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Nats per code, shape (K,), that the training codes' frequencies give on held-out codes.

    Counts are (K, V). One is added to each training count, so that a code never seen in training
    costs a lot and not infinitely much.
    """
    smoothed = train_counts + 1
    logs = np.log(smoothed / smoothed.sum(axis=1, keepdims=True))
    nats: NDArray[np.float64] = -(valid_counts * logs).sum(axis=1) / valid_counts.sum(axis=1)
    return nats
