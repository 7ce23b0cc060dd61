"""Time candidates in rounds, so that whatever else the machine does hits all alike.

    round 1     A B C D        each once; the first round, which warms up, is not counted
    round 2     B C D A        in turns, so that none always follows the same
    round 3     C D A B

A ratio compares two candidates within each round, and then takes the median over the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tqdm import tqdm

from audiolm.benchmarks.disturbance import Sample, Stopwatch
from audiolm.limits import COUNT


@dataclass(frozen=True)
class Candidate:
    """Something that is timed.

    run: does it once; None where another part of the program times it, and calls `measurements`.
    work: how much it does then; its rate is work / seconds. unit: of the rate.
    against: the candidate whose rate this one's is compared with.
    limit: the candidate whose rate bounds this one's, and cost: how much of that one's work a unit
    of this one's takes.
    """

    name: str
    run: Callable[[], object] | None
    work: float
    unit: str
    against: str | None = None
    limit: str | None = None
    cost: float = 0.0


class Spread(NamedTuple):
    """Median, least and greatest of some values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Measurement:
    """What was measured of one candidate.

    rate: over the samples that were not disturbed, or over all where all were. ratio: to the one
    that it is compared with. share: of its limit. samples, disturbed: how many, and how many of
    them were. work: of a sample.
    """

    name: str
    unit: str
    rate: Spread
    ratio: Spread | None
    against: str | None
    share: float | None
    limit: str | None
    samples: tuple[Sample, ...]
    work: float = 1.0

    @property
    def disturbed(self) -> int:
        return sum(sample.disturbed for sample in self.samples)


def interleave(
    candidates: Sequence[Candidate],
    rounds: int,
    title: str,
    show_progress: bool = True,
    *,
    warm_up: bool = True,
) -> list[Measurement]:
    """Time all candidates in so many rounds, after one that warms up unless they are warm.

    Raises ValueError for less than one round.
    """
    COUNT.check("rounds", rounds)
    samples: dict[str, list[Sample]] = {candidate.name: [] for candidate in candidates}
    assert len(samples) == len(candidates), "two candidates of one name"
    first = 0 if warm_up else 1
    total = (rounds + 1 - first) * len(candidates)
    with tqdm(total=total, desc=title, unit="sample", disable=not show_progress) as bar:
        for number in range(first, rounds + 1):
            first = number % len(candidates)
            for candidate in [*candidates[first:], *candidates[:first]]:
                assert candidate.run is not None
                bar.set_postfix_str(candidate.name)
                with Stopwatch() as watch:
                    candidate.run()
                if number:
                    samples[candidate.name].append(watch.sample)
                bar.update()
    return measurements(candidates, samples)


def measurements(
    candidates: Sequence[Candidate], samples: Mapping[str, Sequence[Sample]]
) -> list[Measurement]:
    """Rates, ratios and shares from the samples of each candidate, one a round."""
    found: dict[str, Measurement] = {}
    for candidate in candidates:
        taken = tuple(samples[candidate.name])
        rates = [candidate.work / sample.seconds for sample in taken]
        rate = Spread.of([rates[i] for i in _undisturbed(taken)])
        found[candidate.name] = Measurement(
            candidate.name,
            candidate.unit,
            rate,
            None,
            candidate.against,
            None,
            candidate.limit,
            taken,
            candidate.work,
        )
    for candidate in candidates:
        measurement = found[candidate.name]
        if candidate.against is not None:
            measurement = replace(measurement, ratio=ratio(measurement, found[candidate.against]))
        if candidate.limit is not None:
            bound = found[candidate.limit].rate.median
            measurement = replace(
                measurement, share=measurement.rate.median * candidate.cost / bound
            )
        found[candidate.name] = measurement
    return list(found.values())


def ratio(mine: Measurement, theirs: Measurement) -> Spread:
    """How many times the rate of another measurement this one's is, within each round.

    Rounds in which either was disturbed do not count, unless all were.
    """
    pairs = list(zip(mine.samples, theirs.samples, strict=True))
    kept = _undisturbed([max(pair, key=lambda s: s.foreign or 0.0) for pair in pairs])
    ratios = [mine.work / m.seconds / (theirs.work / t.seconds) for m, t in pairs]
    return Spread.of([ratios[i] for i in kept])


def _undisturbed(samples: Sequence[Sample]) -> list[int]:
    """Indices of the samples that count."""
    quiet = [i for i, sample in enumerate(samples) if not sample.disturbed]
    return quiet or list(range(len(samples)))
