"""What held-out codes cost under tables of frequencies: what a model has to beat.

Letters: K codebooks, V codes in a codebook.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.tokens.statistics import (
    bigram_cross_entropy,
    count_pairs,
    mix_counts,
    unigram_cross_entropy,
)
from audiolm.tokens.store import TokenStore

CELLS = 2**24
"""Of tables of pairs, as many are held at a time (128 MiB), or those of one codebook if more."""


@dataclass(frozen=True)
class CodeYardsticks:
    """Nats per held-out code, of each codebook (K,).

    Attributes:
        uniform: of guessing blindly.
        unigram: of how often each code occurs in training.
        bigram: of how often each follows the one before it in its codebook.
    """

    uniform: NDArray[np.float64]
    unigram: NDArray[np.float64]
    bigram: NDArray[np.float64]


def measure_code_yardsticks(
    stores: Sequence[TokenStore],
    trained_on: Sequence[NDArray[Any]],
    held_out: Sequence[NDArray[Any]],
    shares: Sequence[float] = (1.0,),
    ends: bool = False,
) -> CodeYardsticks:
    """The yardsticks of all held-out codes.

    Args:
        stores: of one codec.
        trained_on: spans of each; longer ones than 15 hours at 75 frames a second are sampled.
        held_out: spans of each, some in one of them.
        shares: of each store in what is trained on.
        ends: whether the end of a clip is one more outcome of codebook 0.

    Raises:
        ValueError: for stores that hold nothing out at all.
    """
    if not any(len(spans) for spans in held_out):
        raise ValueError("nothing is held out: raise data.valid_fraction above 0")
    size, num_codebooks = stores[0].codebook_size, stores[0].num_codebooks
    at_once = max(1, CELLS // (size + 1) ** 2)
    uniform, unigram, bigram = np.empty((3, num_codebooks))
    for first in range(0, num_codebooks, at_once):
        group = range(first, min(first + at_once, num_codebooks))
        train = [
            count_pairs(store, spans, group, ends)
            for store, spans in zip(stores, trained_on, strict=True)
        ]
        valid = sum(
            count_pairs(store, spans, group, ends, max_frames=int(spans["frames"].sum()))
            for store, spans in zip(stores, held_out, strict=True)
            if len(spans)
        )
        assert isinstance(valid, np.ndarray)
        for place, k in enumerate(group):
            outcomes = size + (1 if ends and k == 0 else 0)
            tables = [pairs[place, :, :outcomes] for pairs in train]
            mixed = mix_counts([t.reshape(1, -1) for t in tables], shares).reshape(-1, outcomes)
            pairs = valid[place, :, :outcomes]
            uniform[k] = math.log(outcomes)
            unigram[k] = unigram_cross_entropy(mixed.sum(0)[None], pairs.sum(0)[None])[0]
            bigram[k] = bigram_cross_entropy(mixed, pairs)
    return CodeYardsticks(uniform, unigram, bigram)
