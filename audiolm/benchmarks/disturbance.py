"""Whether anybody else used the processor while something was timed.

From /proc/stat and /proc/self: of Linux. Elsewhere it cannot be measured.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LIMIT = 0.15
"""Of one CPU, from which on a sample counts as disturbed. A busy second core halves the speed of a
program with a thread a core: all wait for the one that is not run."""
_TICKS = 2  # of the clock, that either count may be off by at both ends together


class Sample(NamedTuple):
    """seconds: it took. foreign: CPUs that others used meanwhile; None where that is not known."""

    seconds: float
    foreign: float | None

    @property
    def disturbed(self) -> bool:
        return self.foreign is not None and self.foreign > LIMIT


@dataclass
class Stopwatch:
    """Times a block: `with Stopwatch() as watch: ...`, then `watch.sample`."""

    sample: Sample = field(default=Sample(0.0, None))
    _wall: float = 0.0
    _busy: float | None = None
    _own: float = 0.0

    def __enter__(self) -> Stopwatch:
        self._busy, self._own = busy_seconds(), own_seconds()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self._wall
        busy, own = busy_seconds(), own_seconds()
        foreign = None
        if busy is not None and self._busy is not None and seconds > 0:
            others = busy - self._busy - (own - self._own)
            # The counts go by ticks: so much may be missing or too many.
            foreign = max(0.0, others - _TICKS * _tick()) / seconds
        self.sample = Sample(seconds, foreign)


def busy_seconds() -> float | None:
    """Seconds in which the CPUs that this process may use were not idle, since the start."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in lines:
        name, *counts = line.split()
        if name in mine:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, counts[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks * _tick()


def own_seconds() -> float:
    """CPU seconds of this process, of its children that have ended, and of those that live."""
    times = os.times()
    ended = times.user + times.system + times.children_user + times.children_system
    return ended + sum(_seconds_of(pid) for pid in _descendants(os.getpid()))


def _seconds_of(pid: int) -> float:
    try:
        # The name, in parentheses, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) * _tick()


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _tick() -> float:
    return float(1 / os.sysconf("SC_CLK_TCK"))
