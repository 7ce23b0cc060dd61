"""Streams that take turns in proportion to their rates, as evenly as can be.

    rates 3 and 1:    0 0 1 0   0 0 1 0   0 0 1 0 ...

A stream of rate r is due at the times (i + 1/2) / r, i = 0, 1, ..., and who is due first has the
next turn: the stride scheduling of Waldspurger and Weihl ("Stride scheduling", 1995), which deals
out turns as Webster's method deals out seats. After any number of turns each stream has had its
share but for about one turn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class StrideScheduler:
    """Whose turn it is, for any turn and without those before.

    rates: (streams,), above 0; only their ratios count.
    """

    def __init__(self, rates: NDArray[np.float64]) -> None:
        self.rates = rates
        self._total = float(rates.sum())

    def at(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(streams, numbers), both (count,), of turns first .. first + count - 1.

        numbers: which of its stream's own turns it is, from 0.
        """
        streams = len(self.rates)
        # Rounded, a stream's turns before time t are t * rate: all streams' together differ from
        # t * total by streams / 2 at most. So no turn that is due before `early` comes after
        # `first`, and none from `late` on before the last one asked for.
        early = max(0.0, (first - streams) / self._total)
        late = (first + count + streams) / self._total
        begin = np.maximum(0, np.floor(early * self.rates).astype(np.int64) - 1)
        candidates = np.ceil(late * self.rates).astype(np.int64) + 1 - begin
        stream = np.repeat(np.arange(streams), candidates)
        number = np.arange(len(stream)) - np.repeat(
            np.cumsum(candidates) - candidates - begin, candidates
        )
        due = (number + 0.5) / self.rates[stream]
        skipped = first - int(begin.sum())
        chosen = np.argsort(due, kind="stable")[skipped : skipped + count]
        return stream[chosen], number[chosen]
