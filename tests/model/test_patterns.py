"""Patterns: diagrams, the formula, and a round trip."""

import pytest
import torch

from audiolm.model.patterns import (
    PATTERNS,
    deinterleave,
    interleave,
    make_pattern,
    num_steps,
    occupied_cells,
)

# The diagrams of the module's docstring.
DIAGRAMS = {
    "parallel": ["0123", "0123", "0123"],
    "delay": ["0123..", ".0123.", "..0123"],
    "flatten": ["0..1..2..3..", ".0..1..2..3.", "..0..1..2..3"],
    "coarse_first": ["0123.....", "....0123.", ".....0123"],
}


@pytest.mark.parametrize("name", PATTERNS)
def test_diagram(name: str) -> None:
    codes = torch.arange(4).expand(1, 3, 4)
    steps = interleave(codes, make_pattern(name, 3).positions(4), special=9)
    diagram = ["".join("." if c == 9 else str(int(c)) for c in row) for row in steps[0]]
    assert diagram == DIAGRAMS[name]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("codebooks, frames", [(1, 1), (1, 5), (2, 1), (4, 9), (8, 3)])
def test_round_trip_and_cells(name: str, codebooks: int, frames: int) -> None:
    pattern = make_pattern(name, codebooks)
    positions = pattern.positions(frames)
    assert pattern.num_steps(frames) == num_steps(positions)
    codes = torch.randint(0, 50, (3, codebooks, frames))
    steps = interleave(codes, positions, special=50)
    assert steps.shape == (3, codebooks, num_steps(positions))
    assert torch.equal(deinterleave(steps, positions), codes)
    # The special id stands where no code does, and nowhere else.
    assert torch.equal(steps[0] != 50, occupied_cells(positions))
    assert int(occupied_cells(positions).sum()) == codebooks * frames


@pytest.mark.parametrize("name", PATTERNS)
def test_a_code_comes_after_what_it_builds_on(name: str) -> None:
    positions = make_pattern(name, 4).positions(6)
    assert (positions.diff(dim=1) > 0).all()  # earlier frames of its codebook
    assert (positions.diff(dim=0) >= 0).all()  # coarser codes of its frame
    if name != "parallel":
        assert (positions.diff(dim=0) > 0).all()
    assert torch.equal(positions.max(dim=0).values, positions[-1])


@pytest.mark.parametrize("name", PATTERNS)
def test_only_a_fixed_length_pattern_depends_on_the_length(name: str) -> None:
    pattern = make_pattern(name, 3)
    same = torch.equal(pattern.positions(9)[:, :5], pattern.positions(5))
    assert same != pattern.fixed_length


def test_unknown_pattern() -> None:
    with pytest.raises(ValueError, match="'delai' is unknown; choose one of parallel, delay"):
        make_pattern("delai", 4)


def test_an_unknown_name_is_a_short_line_however_long_it_is() -> None:
    for name in ("dealy", "x" * 10**5):
        with pytest.raises(ValueError, match=r"pattern=.* is unknown; choose one of") as error:
            make_pattern(name, 2)
        assert len(str(error.value)) < 200


def test_delays_of_ones_own() -> None:
    pattern = make_pattern([0, 0, 1, 1], 4)
    assert make_pattern([0, 1, 2], 3) == make_pattern("delay", 3)
    codes = torch.arange(3).expand(1, 4, 3)
    steps = interleave(codes, pattern.positions(3), special=9)
    assert steps[0].tolist() == [[0, 1, 2, 9], [0, 1, 2, 9], [9, 0, 1, 2], [9, 0, 1, 2]]
    assert torch.equal(deinterleave(steps, pattern.positions(3)), codes)


@pytest.mark.parametrize(
    ("delays", "message"),
    [
        ([0, 1], "are 2 for 3 codebooks"),
        ([1, 1, 2], "begin with 0 and never fall"),
        ([0, 2, 1], "begin with 0 and never fall"),
        ([0, 0.5, 1], "must be whole numbers"),
        ([], "are 0 for 3 codebooks"),
        ([0] * 10**5, "are 100000 for 3 codebooks"),
    ],
)
def test_wrong_delays(delays: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make_pattern(delays, 3)
    assert len(str(error.value)) < 200
