"""Endless shuffled orders that can be entered anywhere.

    position 0  1  2  3  4  5  6 | 7  8  9 ...        pass 0, pass 1, ...
    thing    3  0  6  5  1  4  2 | 0  5  3 ...        each of 0 .. 6 once a pass

Random numbers are raw words of Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011), a counter-based generator whose words numpy keeps the same across versions: any word of
any stream is there at once, whatever was read before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PILE_SIZE = 2**16  # things that are sorted at once: half a megabyte, and some milliseconds

# Which of a seed's random words: the order of a pile, the start of a crop, how piles are dealt.
ORDER, START, DEAL = range(3)


class Shuffled:
    """Passes over the things 0 .. size - 1, each in an order of its own.

    The things of a pass are dealt out to ceil(size / PILE_SIZE) piles, of each run of neighbours
    one to each pile at random; every pile is shuffled, and one follows the other. So a pass over
    hundreds of millions of things takes the memory of one pile, each pile is an even sample of
    all of them, and up to PILE_SIZE things are in plain random order.

    size: at least 1. seed: 0 .. 2**64 - 1. stream: 0 .. 2**64 - 1, tells orders of the same seed
    apart.
    """

    def __init__(self, size: int, seed: int, stream: int = 0) -> None:
        self.size = size
        self.seed = seed
        self.stream = stream
        self._piles = -(-size // PILE_SIZE)
        self._runs = -(-size // self._piles)  # the last of which may be short
        self._last = size - (self._runs - 1) * self._piles
        piles = np.arange(self._piles)
        self._starts = piles * (self._runs - 1) + np.minimum(piles, self._last)
        self._pile: tuple[int, int, NDArray[np.int64]] | None = None  # the one asked for last

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The things at these positions of the endless order, of the same shape."""
        epochs, positions = np.divmod(positions, self.size)
        piles = np.searchsorted(self._starts, positions, side="right") - 1
        positions = positions - self._starts[piles]
        things = np.empty_like(positions)
        for key in np.unique(epochs * self._piles + piles):
            epoch, pile = divmod(int(key), self._piles)
            here = (epochs == epoch) & (piles == pile)
            things[here] = self._shuffled_pile(epoch, pile)[positions[here]]
        return things

    def _shuffled_pile(self, epoch: int, pile: int) -> NDArray[np.int64]:
        if self._pile is None or self._pile[:2] != (epoch, pile):
            things = self._dealt(epoch, pile)
            words = random_words(self.seed, ORDER, len(things), (epoch, pile, self.stream))
            self._pile = epoch, pile, things[np.argsort(words, kind="stable")]
        return self._pile[2]

    def _dealt(self, epoch: int, pile: int) -> NDArray[np.int64]:
        """A pile before it is shuffled: one thing of each run of `piles` neighbours."""
        words = random_words(self.seed, DEAL, self._runs, (epoch, 0, self.stream))
        turned = (words % np.uint64(self._piles)).astype(np.int64)
        if self._last < self._piles:
            turned[-1] = 0  # a short run goes to the first piles
        count = self._runs if pile < self._last else self._runs - 1
        return np.arange(count) * self._piles + (pile + turned[:count]) % self._piles


def random_words(
    seed: int, kind: int, count: int, where: tuple[int, int, int], first: int = 0
) -> NDArray[np.uint64]:
    """`count` random 64-bit words from word `first` on, of the stream that the rest names.

    kind: what they are for. where: three numbers, such as pass, pile and stream.
    """
    # Philox counts up in the first word of its counter, once for four words that it gives.
    # As arrays: numpy would take lists with words above 2**63 for floats.
    skipped = first % 4
    key = np.array([seed, kind], np.uint64)
    counter = np.array([first // 4, *where], np.uint64)
    words: NDArray[np.uint64] = np.random.Philox(key=key, counter=counter).random_raw(
        skipped + count
    )
    return words[skipped:]
