"""What a number that a user gives may be, and the one line that says so where it is not."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import SupportsFloat

MAX_SEED = 2**32 - 1
"""torch's generator on a CPU reads 32 bits of a seed: of larger ones several are the same."""


@dataclass(frozen=True)
class Limits:
    """The numbers that a setting may be; never NaN, and never infinite.

    Args:
        low: the least.
        high: the largest.
        whole: whether it must be a whole number.
        above: whether it must be above `low`, which itself is too little.
        below: whether it must be below `high`, which itself is too much.
        infinite: whether it may be positive infinity too.
    """

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    above: bool = False
    below: bool = False
    infinite: bool = False

    def check(self, name: str, value: object, remedy: str = "") -> int | float:
        """The number as Python's own: an int of whole ones, also where it is one of NumPy's.

        Args:
            name: of the setting, for the message.
            value: what was given for it.
            remedy: what to do instead, for the message.

        Raises:
            ValueError: it is not a number, or not one of these.
        """
        number = as_number(value, self.whole)
        if number is None or not self._holds(number):
            advice = f"; {remedy}" if remedy else ""
            raise ValueError(f"{name}={value} must be {self}{advice}")
        return number

    def _holds(self, number: int | float) -> bool:
        if number == math.inf:
            return self.infinite
        enough = number > self.low if self.above else number >= self.low
        few_enough = number < self.high if self.below else number <= self.high
        return enough and few_enough and number != -math.inf  # NaN is neither

    def __str__(self) -> str:
        """In words: "a whole number from 1 to 5", "a number above 0, at most 1"."""
        low = "" if self.low == -math.inf else f"{_plain(self.low)}"
        high = "" if self.high == math.inf else f"{'below ' * self.below}{_plain(self.high)}"
        if low and high and not self.above:
            span = f" from {low} to {high}"
        else:
            at_most = high if self.below else f"at most {high}"
            lower = (f" above {low}" if self.above else f" of at least {low}") if low else ""
            span = lower + (f"{',' * bool(lower)} {at_most}" if high else "")
        kind = "a whole number" if self.whole else "a number"
        finite = "" if self.whole or high or self.infinite else ", and finite"
        return f"{kind}{span}{finite}"


def as_number(value: object, whole: bool = False) -> int | float | None:
    """A number of Python's or NumPy's as Python's own; None for what is not one.

    A truth value, which Python counts as a number, is not; nor is a text that spells one.

    Args:
        whole: whether 2.5, or 2.0, is not one either.
    """
    if isinstance(value, bool | str | bytes) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        number = operator.index(value)  # type: ignore[arg-type]
        return number if whole or math.isfinite(number) else None
    except TypeError:
        pass
    except OverflowError:  # more than a float holds
        return None
    if whole or not isinstance(value, SupportsFloat) or getattr(value, "ndim", 0) != 0:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _plain(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


SEED = Limits(0, MAX_SEED, whole=True)
COUNT = Limits(1, 10**9, whole=True)
COUNT_OR_NONE = Limits(0, 10**9, whole=True)
SHARE = Limits(0, 1)
HALF = Limits(0, 0.5)
SHARE_ABOVE_0 = Limits(0, 1, above=True)
SHARE_BELOW_1 = Limits(0, 1, below=True)
POSITIVE = Limits(0, above=True)
NOT_NEGATIVE = Limits(0)
LONGEST_DURATION = 1e9
"""Seconds of a stream, 31 years; what has no end is infinite."""
DURATION = Limits(0, LONGEST_DURATION, above=True, infinite=True)
