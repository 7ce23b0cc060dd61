"""How often each code occurs, and follows which: the baselines that a loss is compared with.

A model that knew nothing but the frequencies of codes would have the unigram entropy as its loss
on the codes they were counted on, and the cross-entropy on others. Below it, a model has learned
what follows what; below the bigram's, more than what follows a single code.

Letters: K codebooks, V codes in a codebook.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.tokens.store import TokenStore

_CHUNK_FRAMES = 4096
_JOINED_FRAMES = 16 * _CHUNK_FRAMES


@dataclass(frozen=True)
class CodeCounts:
    """counts: (K, V) int64. frames: how many were counted. sampled: not all of them were."""

    counts: NDArray[np.int64]
    frames: int
    sampled: bool


def count_codes(store: TokenStore, spans: NDArray[Any], max_frames: int = 4_000_000) -> CodeCounts:
    """Count every code of the spans, or of an evenly spread sample of about `max_frames` frames."""
    num_codebooks, size = store.num_codebooks, store.codebook_size
    shift = np.arange(num_codebooks)[:, None] * size
    counts = np.zeros(num_codebooks * size, np.int64)
    frames = 0
    waiting: list[NDArray[np.int64]] = []
    waiting_frames = 0
    chunks = _chunks(spans, max_frames)
    for number, (clip, start, _, length) in enumerate(chunks):
        codes = store.read(clip, start, length)
        waiting.append(codes + shift)
        waiting_frames += codes.shape[1]
        # Many short clips are counted together: each call costs a pass over all K * V counts.
        if waiting_frames >= _JOINED_FRAMES or number + 1 == len(chunks):
            joined = np.concatenate(waiting, axis=1)
            counts += np.bincount(joined.ravel(), minlength=len(counts))
            frames += waiting_frames
            waiting, waiting_frames = [], 0
    sampled = frames < int(spans["frames"].sum())
    return CodeCounts(counts.reshape(num_codebooks, size), frames, sampled)


def count_pairs(
    store: TokenStore,
    spans: NDArray[Any],
    codebooks: Sequence[int],
    end_token: bool,
    max_frames: int = 4_000_000,
) -> NDArray[np.int64]:
    """How often each code follows each other one in its codebook: (len(codebooks), V + 1, V + 1).

    [k, a, b] counts b behind a. Row V stands for what the first code of a span follows, column V
    for the end of a clip, which is counted where a span reaches it: in codebook 0, and with
    `end_token` only. So the sum over a is how often b occurs. Counted are all spans, or a sample as
    in `count_codes`. The table takes 8 (V + 1)^2 bytes a codebook.
    """
    size = store.codebook_size + 1
    nothing = end = store.codebook_size
    pairs = np.zeros((len(codebooks), size * size), np.int64)
    waiting: list[list[NDArray[np.int64]]] = [[] for _ in codebooks]
    waiting_frames = 0
    chunks = _chunks(spans, max_frames)
    for number, (clip, start, is_first, length) in enumerate(chunks):
        known = 0 if is_first else 1  # the frame before is read, and counted with its own chunk
        codes = store.read(clip, start - known, length + known)
        at_end = end_token and start + length == store.frames[clip]
        for index, k in enumerate(codebooks):
            line = codes[k].astype(np.int64)
            if is_first:
                line = np.concatenate([[nothing], line])
            if at_end and k == 0:
                line = np.concatenate([line, [end]])
            waiting[index].append(line[:-1] * size + line[1:])
        waiting_frames += length
        if waiting_frames >= _JOINED_FRAMES or number + 1 == len(chunks):
            for table, found in zip(pairs, waiting, strict=True):
                table += np.bincount(np.concatenate(found), minlength=len(table))
                found.clear()
            waiting_frames = 0
    return pairs.reshape(len(codebooks), size, size)


def _chunks(spans: NDArray[Any], max_frames: int) -> list[tuple[int, int, bool, int]]:
    """(clip, start, whether its span begins here, frames) of all of the spans, or of a sample."""
    chunks = -(-spans["frames"] // _CHUNK_FRAMES)  # that each span is counted in
    chunks_end = np.cumsum(chunks)
    count, total = int(chunks.sum()), int(spans["frames"].sum())
    chosen = np.arange(count)
    if total > max_frames:
        wanted = max(1, count * max_frames // total)
        chosen = np.arange(wanted) * count // wanted
    which = np.searchsorted(chunks_end, chosen, side="right")
    offsets = (chosen - chunks_end[which] + chunks[which]) * _CHUNK_FRAMES
    return [
        (clip, start + offset, offset == 0, min(frames - offset, _CHUNK_FRAMES))
        for (clip, start, frames), offset in zip(
            spans[which].tolist(), offsets.tolist(), strict=True
        )
    ]


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
    """Nats per code, shape (K,), that the training codes' frequencies give on validation codes.

    Counts are (K, V). One is added to each training count, so that a code never seen in training
    costs a lot and not infinitely much.
    """
    logs = np.log(_smoothed_shares(train_counts))
    nats: NDArray[np.float64] = -(valid_counts * logs).sum(axis=1) / valid_counts.sum(axis=1)
    return nats


def bigram_cross_entropy(train_pairs: NDArray[Any], valid_pairs: NDArray[Any]) -> float:
    """Nats per code of a codebook that a table of which code follows which gives on validation
    codes.

    The pairs are of one codebook, (codes before, codes after), such as a (V + 1, V + 1) of
    `count_pairs`; without the column of the end where that cannot follow.

    The table is smoothed by absolute discounting. Each pair that was seen gives away a part d of
    its count, d = n1 / (n1 + 2 n2) where n1 pairs were seen once and n2 twice; what a code before
    has gathered so goes to all codes in proportion to their own frequency, to which one is added.

    Source: Ney, Essen & Kneser 1994, "On structuring probabilistic dependences in stochastic
    language modelling".
    """
    alone = _smoothed_shares(train_pairs.sum(axis=0)[None])[0]
    # Within a half: counts of several stores that were mixed are fractions.
    once, twice = (np.count_nonzero(np.abs(train_pairs - n) < 0.5) for n in (1, 2))
    discount = once / (once + 2 * twice) if once else 0.5
    seen = np.maximum(train_pairs.sum(axis=1), 1e-300)
    unseen = np.where(seen < 1e-299, 1.0, np.minimum(train_pairs, discount).sum(axis=1) / seen)
    before, after = np.nonzero(valid_pairs)
    kept = np.maximum(train_pairs[before, after] - discount, 0) / seen[before]
    logs = np.log(kept + unseen[before] * alone[after])
    validation = valid_pairs[before, after]
    return float(-(validation * logs).sum() / validation.sum())


def _smoothed_shares(counts: NDArray[Any]) -> NDArray[np.float64]:
    smoothed = counts + 1
    shares: NDArray[np.float64] = smoothed / smoothed.sum(axis=1, keepdims=True)
    return shares


@dataclass(frozen=True)
class Baselines:
    """Nats per code that a model has to beat to have learnt anything, of each codebook (K,).

    Attributes:
        uniform: of guessing blindly: ln V, and ln (V + 1) where a clip's end is an outcome too.
        unigram: on the validation codes, of how often each code occurs in training.
        bigram: of how often each follows the one before it in its codebook; None where it was not
            measured, since it takes a table of V x V.
    """

    uniform: NDArray[np.float64]
    unigram: NDArray[np.float64]
    bigram: NDArray[np.float64] | None = None

    @property
    def uniform_mean(self) -> float:
        return float(np.mean(self.uniform))

    @property
    def unigram_mean(self) -> float:
        return float(np.mean(self.unigram))


def unigram_baselines(
    stores: Sequence[TokenStore],
    trained_on: Sequence[NDArray[Any]],
    validation: Sequence[NDArray[Any]],
    shares: Sequence[float] = (1.0,),
) -> Baselines:
    """The baselines that are quick to measure; the unigram's on the training codes without others.

    Arguments as of `bigram_baselines`, but that there may be no validation at all.
    """
    train = [count_codes(store, spans) for store, spans in zip(stores, trained_on, strict=True)]
    mixed = mix_counts([part.counts for part in train], shares)
    unigram = unigram_entropy(mixed)
    if total := sum(int(spans["frames"].sum()) for spans in validation):
        counted = [
            (count_codes(store, spans).counts, int(spans["frames"].sum()) / total)
            for store, spans in zip(stores, validation, strict=True)
            if len(spans)
        ]
        unigram = unigram_cross_entropy(mixed, mix_counts(*zip(*counted, strict=True)))
    return Baselines(np.full(len(unigram), math.log(stores[0].codebook_size)), unigram)


CELLS = 2**24
"""Of tables of pairs, as many are held at a time (128 MiB), or those of one codebook if more."""


def bigram_baselines(
    stores: Sequence[TokenStore],
    trained_on: Sequence[NDArray[Any]],
    validation: Sequence[NDArray[Any]],
    shares: Sequence[float] = (1.0,),
    end_token: bool = False,
) -> Baselines:
    """All baselines, of all validation codes.

    Args:
        stores: of one codec.
        trained_on: spans of each; longer ones than 15 hours at 75 frames a second are sampled.
        validation: spans of each, some in one of them.
        shares: of each store in what is trained on.
        end_token: whether the end of a clip is one more outcome of codebook 0.

    Raises:
        ValueError: for stores without any validation clips.
    """
    if not any(len(spans) for spans in validation):
        raise ValueError("there is no validation set: raise data.valid_fraction above 0")
    size, num_codebooks = stores[0].codebook_size, stores[0].num_codebooks
    at_once = max(1, CELLS // (size + 1) ** 2)
    uniform, unigram, bigram = np.empty((3, num_codebooks))
    for first in range(0, num_codebooks, at_once):
        group = range(first, min(first + at_once, num_codebooks))
        train = [
            count_pairs(store, spans, group, end_token)
            for store, spans in zip(stores, trained_on, strict=True)
        ]
        valid = sum(
            count_pairs(store, spans, group, end_token, max_frames=int(spans["frames"].sum()))
            for store, spans in zip(stores, validation, strict=True)
            if len(spans)
        )
        assert isinstance(valid, np.ndarray)
        for index, k in enumerate(group):
            outcomes = size + (1 if end_token and k == 0 else 0)
            tables = [pairs[index, :, :outcomes] for pairs in train]
            mixed = mix_counts([t.reshape(1, -1) for t in tables], shares).reshape(-1, outcomes)
            pairs = valid[index, :, :outcomes]
            uniform[k] = math.log(outcomes)
            unigram[k] = unigram_cross_entropy(mixed.sum(0)[None], pairs.sum(0)[None])[0]
            bigram[k] = bigram_cross_entropy(mixed, pairs)
    return Baselines(uniform, unigram, bigram)
