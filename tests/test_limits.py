"""Numbers of a user: of whatever type, and refused in one line where they are none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from audiolm.limits import COUNT, DURATION, SEED, SHARE_BELOW_1, Limits


@pytest.mark.parametrize("given", [3, np.int64(3), np.uint8(3), np.array(3), torch.tensor(3)])
def test_whole_numbers_of_any_library_become_pythons(given: object) -> None:
    assert COUNT.check("n", given) == 3 and type(COUNT.check("n", given)) is int
    assert Limits().check("x", given) == 3


@pytest.mark.parametrize("given", [0.5, np.float32(0.5), np.float16(0.5), torch.tensor(0.5)])
def test_numbers_of_any_library_become_pythons(given: object) -> None:
    assert SHARE_BELOW_1.check("x", given) == 0.5 and type(Limits().check("x", given)) is float


@pytest.mark.parametrize(
    "given",
    [None, True, np.bool_(True), "3", b"3", [3], (3,), {}, np.zeros(3), torch.ones(1), 1j, object],
    ids=str,
)
def test_what_is_not_a_number_is_refused(given: object) -> None:
    for limits in (Limits(), COUNT):
        with pytest.raises(ValueError, match=r"^n=.* must be a .*number"):
            limits.check("n", given)


@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf, 10**400, -(10**400)], ids=str)
def test_only_finite_numbers_pass(given: float) -> None:
    with pytest.raises(ValueError, match="must be a number"):
        SHARE_BELOW_1.check("x", given)
    if not isinstance(given, int):
        with pytest.raises(ValueError, match=r"must be a number, and finite; try 1$"):
            Limits().check("x", given, "try 1")
    assert DURATION.check("duration", math.inf) == math.inf


def test_limits_in_words() -> None:
    assert str(COUNT) == "a whole number from 1 to 1,000,000,000"
    assert str(SEED) == "a whole number from 0 to 4,294,967,295"
    assert str(SHARE_BELOW_1) == "a number from 0 to below 1"
    assert str(Limits(0, 1, above=True)) == "a number above 0, at most 1"
    assert str(Limits(0, above=True)) == "a number above 0, and finite"
    assert str(Limits(high=0)) == "a number at most 0"
    for limits, outside in ((SEED, -1), (SEED, 2**32), (SHARE_BELOW_1, 1), (COUNT, 2.0)):
        with pytest.raises(ValueError, match=f"x={outside} must be {limits}"):
            limits.check("x", outside)
