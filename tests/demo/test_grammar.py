"""The grammar: its pieces are legal, all there are, and as likely as each other."""

import math
from itertools import product

import numpy as np
import pytest

from audiolm.demo.grammar import GRAMMAR, KEYS, Grammar, Piece, to_midi

SMALL = Grammar(degrees=4, tonics=(0, 2), keys=2, bar=2, form="AABACA")


def test_numbers_below_the_count_are_all_pieces_and_each_once() -> None:
    """Against trying every sequence of notes there is."""
    degrees = range(SMALL.degrees)
    bars = [bar for bar in product(degrees, repeat=SMALL.bar) if SMALL.is_transition(*bar)]
    legal = {
        piece
        for a, b, c in product(bars, repeat=3)
        if SMALL.is_piece(piece := (*a, *a, *b, *a, *c, *a))
    }
    pieces = [SMALL.piece(number) for number in range(SMALL.count)]
    assert set(pieces) == {Piece(key, degrees) for key in range(2) for degrees in legal}
    assert len(pieces) == SMALL.count == 2 * len(legal) > 100


def test_bits_by_bar_are_those_of_the_pieces() -> None:
    """Against -log p, counted over the list of all pieces."""
    pieces = [SMALL.piece(number) for number in range(SMALL.count)]
    assert sum(SMALL.bits_by_bar) == pytest.approx(SMALL.bits) == math.log2(len(pieces))
    known = 0.0
    for i, bits in enumerate(SMALL.bits_by_bar):
        begins = [(piece.key, piece.degrees[: SMALL.bar * (i + 1)]) for piece in pieces]
        counts = np.unique([hash(begin) for begin in begins], return_counts=True)[1]
        shares = counts / len(pieces)
        assert bits == pytest.approx(-(shares * np.log2(shares)).sum() - known, abs=1e-9)
        known += bits


def test_sampled_pieces_keep_the_rules() -> None:
    rng = np.random.default_rng(0)
    pieces = [GRAMMAR.sample(rng) for _ in range(300)]
    assert GRAMMAR.notes == 32
    for piece in pieces:
        assert GRAMMAR.is_piece(piece.degrees)
        bars = [piece.degrees[i : i + 4] for i in range(0, 32, 4)]
        assert bars[0] == bars[1] == bars[3] == bars[4] == bars[5] == bars[7]
        assert bars[0][0] in (0, 5)
        assert {abs(a - b) for a, b in zip(piece.degrees, piece.degrees[1:], strict=False)} <= {
            1,
            2,
        }
    assert {piece.key for piece in pieces} == {0, 1, 2}
    assert {degree for piece in pieces for degree in piece.degrees} == set(range(10))


def test_whatever_breaks_a_rule_is_no_piece() -> None:
    piece = GRAMMAR.piece(123456).degrees
    assert GRAMMAR.is_piece(piece)
    assert not GRAMMAR.is_piece(piece[:-1])
    assert not GRAMMAR.is_piece([degree + 1 for degree in piece])  # starts beside the tonic
    for i in range(32):
        assert not GRAMMAR.is_piece((*piece[:i], piece[i - 1], *piece[i + 1 :]))


def test_entropy_of_the_demo_set() -> None:
    """Numbers that the README states."""
    assert GRAMMAR.count == 1_261_050
    assert GRAMMAR.bits == pytest.approx(20.266, abs=1e-3)
    assert GRAMMAR.bits_by_bar == pytest.approx((6.969, 0, 6.648, 0, 0, 0, 6.648, 0), abs=1e-3)
    # Ten degrees: 9 pairs one apart, 8 two apart, both ways.
    assert GRAMMAR.chance_of_transition == pytest.approx(2 * (9 + 8) / 100)


def test_degrees_and_midi_are_inverse_and_keys_differ() -> None:
    scales = [{to_midi(key, degree) for degree in range(10)} for key in range(3)]
    for key, scale in enumerate(scales):
        assert [GRAMMAR.to_degree(key, to_midi(key, degree)) for degree in range(10)] == [
            *range(10)
        ]
        assert to_midi(key, 5) == KEYS[key] + 12
        assert sum(GRAMMAR.to_degree(key, midi) is None for midi in range(128)) == 118
        assert GRAMMAR.to_degree(key, None) is None
        assert all(len(scale & other) <= 2 for other in scales if other is not scale)
