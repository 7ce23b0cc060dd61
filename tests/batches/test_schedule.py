"""Turns in proportion, from any turn on."""

from __future__ import annotations

import numpy as np
import pytest

from audiolm.batches.schedule import StrideScheduler

RATES = [[1.0], [3.0, 1.0], [0.7, 0.3], [1e-6, 5.0, 1.0], [1.0] * 7, [2.0, 3.0, 5.0, 7.0, 11.0]]


@pytest.mark.parametrize("rates", RATES)
def test_shares_are_exact_at_every_moment(rates: list[float]) -> None:
    stream, number = StrideScheduler(np.array(rates)).at(0, 3000)
    taken = np.cumsum(stream[:, None] == np.arange(len(rates)), axis=0)
    due = np.arange(1, 3001)[:, None] * np.array(rates) / sum(rates)
    assert np.abs(taken - due).max() <= (1 + len(rates)) / 2
    for i in range(len(rates)):  # each stream's turns one after the other
        mine = number[stream == i]
        assert mine.tolist() == list(range(len(mine)))


@pytest.mark.parametrize("rates", RATES)
def test_any_turn_is_there_at_once(rates: list[float]) -> None:
    scheduler = StrideScheduler(np.array(rates))
    stream, number = scheduler.at(0, 500)
    for first in range(0, 490, 7):
        for count in (1, 10):
            some, numbers = scheduler.at(first, count)
            assert np.array_equal(some, stream[first : first + count])
            assert np.array_equal(numbers, number[first : first + count])
    far, numbers = scheduler.at(10**12, 4)
    again, more = scheduler.at(10**12 - 2, 6)
    assert np.array_equal(far, again[2:]) and np.array_equal(numbers, more[2:])


def test_the_turns_are_the_same_everywhere() -> None:
    assert StrideScheduler(np.array([3.0, 1.0])).at(0, 8)[0].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]
    assert StrideScheduler(np.array([1.0, 1.0])).at(1, 3)[0].tolist() == [1, 0, 1]
