"""The grammar of the demo set: which pieces there are, and how many.

A piece is 32 notes of equal length in 8 bars of 4, a small rondo: one bar, the refrain A, keeps
coming back between two episodes B and C.

    form          A A B A A A C A
    scale         10 degrees: two octaves of a pentatonic scale, in one of three keys
    transitions   from each note to the next, across bars too: one or two degrees up or down
    refrain       starts on a tonic: degree 0 or 5

That is all: every piece that keeps these rules is in the language, and each is as likely as any
other. So sampling one is sampling a whole number below their count, and the entropy is its
logarithm. An A follows an A, hence its last note lies one or two degrees from its first; an episode
leads from the one to the other. Both are counted exactly, by powers of the matrix of legal
transitions.

What is hard to learn here is the form: bar 8 holds nothing new to whoever remembers bar 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

REFRAIN = "A"
PENTATONIC = (0, 2, 4, 7, 9)  # semitones above the tonic
# MIDI note numbers of degree 0: A2, C#3, F3. A major third apart, two keys share one note in five,
# the fewest that three pentatonic scales can share evenly: the key of a few notes is plain.
KEYS = (45, 49, 53)


@dataclass(frozen=True)
class Piece:
    """key: an index into KEYS. degrees: of the scale, one a note."""

    key: int
    degrees: tuple[int, ...]

    @property
    def pitches(self) -> tuple[int, ...]:
        """MIDI note numbers."""
        return tuple(to_midi(self.key, degree) for degree in self.degrees)


def to_midi(key: int, degree: int) -> int:
    """MIDI note number of a degree of a key."""
    octave, step = divmod(degree, len(PENTATONIC))
    return KEYS[key] + 12 * octave + PENTATONIC[step]


@dataclass(frozen=True)
class Grammar:
    """The rules, with their numbers. GRAMMAR is the demo set's; smaller ones can be listed whole.

    The form starts and ends with the refrain, no episode follows an episode, and none comes twice.
    """

    degrees: int = 2 * len(PENTATONIC)
    tonics: tuple[int, ...] = (0, len(PENTATONIC))
    keys: int = len(KEYS)
    bar: int = 4
    """Notes in a bar."""
    form: str = "AABAAACA"

    def __post_init__(self) -> None:
        assert len(set(self._episodes)) == len(self._episodes)
        parts = self.form.split(REFRAIN)
        assert not parts[0] and not parts[-1] and all(len(part) <= 1 for part in parts)

    # ---- The rules

    @property
    def notes(self) -> int:
        """Notes in a piece."""
        return self.bar * len(self.form)

    @property
    def refrains(self) -> tuple[int, ...]:
        """Which bars are the refrain, from 0."""
        return tuple(i for i, name in enumerate(self.form) if name == REFRAIN)

    def to_degree(self, key: int, midi: int | None) -> int | None:
        """The degree of a key that a MIDI note is; None where it is none, or `midi` is None."""
        return next((d for d in range(self.degrees) if to_midi(key, d) == midi), None)

    def is_transition(self, degree: int | None, following: int | None) -> bool:
        """Whether a note may follow another. None, a note off the scale, goes with nothing."""
        return degree is not None and following is not None and 1 <= abs(degree - following) <= 2

    def is_piece(self, degrees: Sequence[int]) -> bool:
        """Whether the grammar holds a whole piece of these degrees."""
        bars = [tuple(degrees[i : i + self.bar]) for i in range(0, len(degrees), self.bar)]
        return (
            len(degrees) == self.notes
            and all(0 <= degree < self.degrees for degree in degrees)
            and all(map(self.is_transition, degrees, degrees[1:]))
            and bars[0][0] in self.tonics
            and all(bars[i] == bars[0] for i in self.refrains)
        )

    # ---- How many pieces there are

    @cached_property
    def count(self) -> int:
        """Pieces, keys included."""
        return self.keys * sum(self._completions(refrain) for refrain in self._all_refrains)

    @property
    def bits(self) -> float:
        """Entropy of a piece: exact, since all are equally likely."""
        return math.log2(self.count)

    @property
    def bits_by_bar(self) -> tuple[float, ...]:
        """Entropy of each bar given those before it; the sum is `bits`. The key is in the first."""
        total = self.count // self.keys
        first, episode = math.log2(self.keys), 0.0
        for refrain in self._all_refrains:
            share = self._completions(refrain) / total
            first -= share * math.log2(share)
            episode += share * math.log2(self._bridges(refrain))
        bars = [0.0 if name == REFRAIN else episode for name in self.form]
        return (first, *bars[1:])

    @property
    def chance_of_transition(self) -> float:
        """The share of legal transitions among notes of the scale sampled at random."""
        return float(self._legal.sum()) / self.degrees**2

    # ---- Sampling

    def sample(self, rng: np.random.Generator) -> Piece:
        """One of all pieces, each as likely as any other."""
        return self.piece(int(rng.integers(self.count)))

    def piece(self, number: int) -> Piece:
        """Piece `number`, 0 .. count - 1: each piece has one number."""
        assert 0 <= number < self.count
        number, key = divmod(number, self.keys)
        for refrain in self._all_refrains:
            if number < self._completions(refrain):
                break
            number -= self._completions(refrain)
        bars = {REFRAIN: refrain}
        for name in self._episodes:
            number, which = divmod(number, self._bridges(refrain))
            bars[name] = self._bridge(refrain[-1], refrain[0], which)
        return Piece(key, tuple(degree for name in self.form for degree in bars[name]))

    def _bridge(self, start: int, end: int, which: int) -> tuple[int, ...]:
        """The bar number `which` of those that lead from the degree `start` to `end`."""
        bar: list[int] = []
        degree = start
        for left in range(self.bar, 0, -1):
            for following in np.flatnonzero(self._legal[degree]):
                ways = int(self._walks(left)[following, end])
                if which < ways:
                    break
                which -= ways
            degree = int(following)
            bar.append(degree)
        return tuple(bar)

    def _completions(self, refrain: tuple[int, ...]) -> int:
        """Pieces with this refrain, in one key."""
        return int(self._bridges(refrain) ** len(self._episodes))

    def _bridges(self, refrain: tuple[int, ...]) -> int:
        """Bars that lead from the last note of a refrain to its first."""
        return int(self._walks(self.bar + 1)[refrain[-1], refrain[0]])

    @property
    def _episodes(self) -> str:
        return self.form.replace(REFRAIN, "")

    @cached_property
    def _all_refrains(self) -> list[tuple[int, ...]]:
        """Every bar that starts on a tonic, and may follow itself."""
        walks: list[tuple[int, ...]] = [(tonic,) for tonic in self.tonics]
        for _ in range(self.bar - 1):
            walks = [(*w, int(d)) for w in walks for d in np.flatnonzero(self._legal[w[-1]])]
        return [walk for walk in walks if self.is_transition(walk[-1], walk[0])]

    @cached_property
    def _legal(self) -> NDArray[np.int64]:
        """(degrees, degrees): 1 where a degree may follow a degree."""
        distance = np.abs(np.subtract.outer(np.arange(self.degrees), np.arange(self.degrees)))
        legal: NDArray[np.int64] = ((distance == 1) | (distance == 2)).astype(np.int64)
        return legal

    def _walks(self, transitions: int) -> NDArray[np.int64]:
        """(degrees, degrees): how many walks of so many transitions lead from one to another."""
        walks: NDArray[np.int64] = np.linalg.matrix_power(self._legal, transitions)
        return walks


GRAMMAR = Grammar()
