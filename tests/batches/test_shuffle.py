"""Shuffled passes: whole, different, and there at any position."""

from __future__ import annotations

import numpy as np
import pytest

from audiolm.batches import shuffle
from audiolm.batches.shuffle import PILE_SIZE, Shuffled, random_words


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 16, 17, 23, 24, 25, 100, 1000])
def test_each_pass_has_everything_once_in_an_order_of_its_own(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for pile_size in (8, 2000):
        monkeypatch.setattr(shuffle, "PILE_SIZE", pile_size)
        order = Shuffled(size, seed=3).at(np.arange(4 * size)).reshape(4, size)
        assert (np.sort(order, axis=1) == np.arange(size)).all()
        if size > 8:
            assert len({tuple(p) for p in order.tolist()}) == 4
        if size == 1000:
            for other in (Shuffled(size, seed=4), Shuffled(size, seed=3, stream=1)):
                assert not np.array_equal(other.at(np.arange(size)), order[0])


@pytest.mark.parametrize("pile_size", [8, 2000])
def test_any_place_is_there_at_once(monkeypatch: pytest.MonkeyPatch, pile_size: int) -> None:
    monkeypatch.setattr(shuffle, "PILE_SIZE", pile_size)
    whole = Shuffled(37, seed=5).at(np.arange(400))
    positions = np.random.default_rng(0).permutation(400)
    order = Shuffled(37, seed=5)
    assert np.array_equal(order.at(positions), whole[positions])
    for first in range(0, 400, 13):
        assert np.array_equal(order.at(np.arange(first, first + 5)), whole[first : first + 5])


def test_up_to_a_pile_it_is_the_order_of_random_words() -> None:
    """A change would break every run that is to be resumed, and published numbers."""
    for size, epoch in ((669, 0), (669, 8), (PILE_SIZE, 2)):
        key, counter = np.array([7, 0], np.uint64), np.array([0, epoch, 0, 0], np.uint64)
        words = np.random.Philox(key=key, counter=counter).random_raw(size)
        found = Shuffled(size, seed=7).at(np.arange(epoch * size, (epoch + 1) * size))
        assert np.array_equal(found, np.argsort(words, kind="stable"))
    assert Shuffled(10, seed=0).at(np.arange(10)).tolist() == [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]


def test_a_pile_is_an_even_sample_whatever_repeats_in_the_collection() -> None:
    """Also where every other thing is of another kind, and for the piles' number itself."""
    size = 4 * PILE_SIZE
    first = Shuffled(size, seed=1).at(np.arange(PILE_SIZE))
    assert abs(first.mean() / size - 0.5) < 0.005
    for period in (2, 4):
        shares = np.bincount(first % period) / len(first)
        assert np.abs(shares - 1 / period).max() < 0.01


def test_hundreds_of_millions_take_the_memory_of_a_pile() -> None:
    order = Shuffled(10**9, seed=0)
    there = order.at(np.arange(3 * 10**12, 3 * 10**12 + 100))
    assert len(set(there.tolist())) == 100 and there.max() < 10**9
    assert order._pile is not None and order._pile[2].nbytes <= 8 * PILE_SIZE


def test_random_words_start_anywhere() -> None:
    whole = random_words(2**64 - 1, 1, 50, (0, 2, 3))
    for first in range(20):
        assert np.array_equal(
            random_words(2**64 - 1, 1, 9, (0, 2, 3), first), whole[first : first + 9]
        )
