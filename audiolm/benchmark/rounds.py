"""Time candidates in rounds, so that whatever else the machine does hits all alike.

    round 1     A B C D        each once; the first round, which warms up, is not counted
    round 2     B C D A        in turns, so that none always follows the same
    round 3     C D A B

A ratio compares two candidates within each round, and then takes the median over the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tqdm import tqdm

from audiolm.benchmark.disturbance import Sample, Stopwatch


@dataclass(frozen=True)
class Candidate:
    """Something that is timed.

    run: does it once. work: how much it does then; its rate is work / seconds. unit: of the rate.
    against: the candidate whose rate this one's is compared with.
    limit: the candidate whose rate bounds this one's, and cost: how much of that one's work a unit
    of this one's takes.
    """

    name: str
    run: Callable[[], object]
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
class Figure:
    """What was measured of one candidate.

    rate: over the samples that were not disturbed, or over all where all were. ratio: to the one
    that it is compared with. share: of its limit. samples, disturbed: how many, and how many of
    them were.
    """

    name: str
    unit: str
    rate: Spread
    ratio: Spread | None
    against: str | None
    share: float | None
    limit: str | None
    samples: tuple[Sample, ...]

    @property
    def disturbed(self) -> int:
        return sum(sample.disturbed for sample in self.samples)


def interleave(
    candidates: Sequence[Candidate], rounds: int, title: str, show_progress: bool = True
) -> list[Figure]:
    """Time all candidates in so many rounds, after one that warms up.

    Raises ValueError for less than one round.
    """
    if rounds < 1:
        raise ValueError(f"rounds={rounds} must be at least 1")
    samples: dict[str, list[Sample]] = {candidate.name: [] for candidate in candidates}
    assert len(samples) == len(candidates), "two candidates of one name"
    total = (rounds + 1) * len(candidates)
    with tqdm(total=total, desc=title, unit="sample", disable=not show_progress) as bar:
        for number in range(rounds + 1):
            turn = number % len(candidates)
            for candidate in [*candidates[turn:], *candidates[:turn]]:
                bar.set_postfix_str(candidate.name)
                with Stopwatch() as watch:
                    candidate.run()
                if number:
                    samples[candidate.name].append(watch.sample)
                bar.update()
    return figures(candidates, samples)


def figures(
    candidates: Sequence[Candidate], samples: Mapping[str, Sequence[Sample]]
) -> list[Figure]:
    """Rates, ratios and shares from the samples of each candidate, one a round."""
    by_name = {candidate.name: candidate for candidate in candidates}

    def rates(name: str) -> list[float]:
        return [by_name[name].work / sample.seconds for sample in samples[name]]

    def spread(name: str) -> Spread:
        kept = _undisturbed(samples[name])
        return Spread.of([rates(name)[i] for i in kept])

    found = []
    for candidate in candidates:
        ratio = share = None
        if candidate.against is not None:
            pairs = zip(samples[candidate.name], samples[candidate.against], strict=True)
            kept = _undisturbed([max(pair, key=lambda s: s.foreign or 0.0) for pair in pairs])
            mine, theirs = rates(candidate.name), rates(candidate.against)
            ratio = Spread.of([mine[i] / theirs[i] for i in kept])
        if candidate.limit is not None:
            bound = spread(candidate.limit).median
            share = spread(candidate.name).median * candidate.cost / bound
        found.append(
            Figure(
                candidate.name,
                candidate.unit,
                spread(candidate.name),
                ratio,
                candidate.against,
                share,
                candidate.limit,
                tuple(samples[candidate.name]),
            )
        )
    return found


def _undisturbed(samples: Sequence[Sample]) -> list[int]:
    """Places of the samples that count."""
    quiet = [i for i, sample in enumerate(samples) if not sample.disturbed]
    return quiet or list(range(len(samples)))
