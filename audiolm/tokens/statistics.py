"""How often each code occurs: the yardsticks that a training loss is compared with.

A model that knew nothing but these frequencies would have the unigram entropy as its loss on the
codes they were counted on, and the cross-entropy on others. Below it, a model has learned what
follows what.

Letters: K codebooks, V codes in a codebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.tokens.store import TokenStore

_PIECE_FRAMES = 4096


@dataclass(frozen=True)
class CodeCounts:
    """counts: (K, V) int64. frames: how many were counted. sampled: not all of them were."""

    counts: NDArray[np.int64]
    frames: int
    sampled: bool


def count_codes(store: TokenStore, spans: NDArray[Any], max_frames: int = 4_000_000) -> CodeCounts:
    """Count every code of the spans, or of an evenly spread sample of about `max_frames` frames."""
    pieces = -(-spans["frames"] // _PIECE_FRAMES)  # that each span is counted in
    pieces_end = np.cumsum(pieces)
    count, total = int(pieces.sum()), int(spans["frames"].sum())
    sampled = total > max_frames
    chosen = np.arange(count)
    if sampled:
        wanted = max(1, count * max_frames // total)
        chosen = np.arange(wanted) * count // wanted
    which = np.searchsorted(pieces_end, chosen, side="right")
    offsets = (chosen - pieces_end[which] + pieces[which]) * _PIECE_FRAMES
    num_codebooks, size = store.num_codebooks, store.codebook_size
    shift = np.arange(num_codebooks)[:, None] * size
    counts = np.zeros(num_codebooks * size, np.int64)
    frames = 0
    waiting: list[NDArray[np.int64]] = []
    waiting_frames = 0
    pieces_of = zip(spans[which].tolist(), offsets.tolist(), strict=True)
    for number, ((clip, start, length), offset) in enumerate(pieces_of):
        codes = store.read(clip, start + offset, min(length - offset, _PIECE_FRAMES))
        waiting.append(codes + shift)
        waiting_frames += codes.shape[1]
        # Many short clips are counted together: each call costs a pass over all K * V counts.
        if waiting_frames >= 16 * _PIECE_FRAMES or number + 1 == len(chosen):
            joined = np.concatenate(waiting, axis=1)
            counts += np.bincount(joined.ravel(), minlength=len(counts))
            frames += waiting_frames
            waiting, waiting_frames = [], 0
    return CodeCounts(counts.reshape(num_codebooks, size), frames, sampled)


def mix_counts(counts: Sequence[NDArray[Any]], shares: Sequence[float]) -> NDArray[np.float64]:
    """Counts (K, V) of as many codes, mixed from several stores' in these shares of the frames.

    counts: (K, V) of each store. shares: add up to 1.
    """
    frames = [int(part[0].sum()) for part in counts]
    factors = [share * sum(frames) / n for share, n in zip(shares, frames, strict=True)]
    return np.tensordot(np.array(factors), np.stack(counts), axes=1)


def unigram_entropy(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Entropy in nats of each codebook's codes, shape (K,), from counts (K, V)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    entropy: NDArray[np.float64] = -(shares * logs).sum(axis=1)
    return entropy


def unigram_cross_entropy(
    train_counts: NDArray[Any], valid_counts: NDArray[Any]
) -> NDArray[np.float64]:
    """Nats per code, shape (K,), that the training codes' frequencies give on held-out codes.

    Counts are (K, V). One is added to each training count, so that a code never seen in training
    costs a lot and not infinitely much.
    """
    smoothed = train_counts + 1
    logs = np.log(smoothed / smoothed.sum(axis=1, keepdims=True))
    nats: NDArray[np.float64] = -(valid_counts * logs).sum(axis=1) / valid_counts.sum(axis=1)
    return nats
