"""The scores: real pieces get all, faults cost what they should, chance gets what is known."""

import math
import random

import pytest
import torch

from audiolm.demo.grammar import GRAMMAR, Piece, to_midi
from audiolm.demo.melodies import SAMPLE_RATE, sample_melody, synthesise
from audiolm.demo.scores import Scores, Tally, score_clips, score_pitches

# Written out, so that each test can be followed by hand.
A, B, C = (5, 6, 8, 6), (7, 8, 9, 7), (4, 3, 2, 4)
DEGREES = A + A + B + A + A + A + C + A
PITCHES = Piece(1, DEGREES).pitches
PERFECT = Scores(Tally(32, 32), Tally(31, 31), Tally(6, 6), Tally(5, 5), Tally(1, 1))


def test_a_piece_is_perfect() -> None:
    assert GRAMMAR.is_piece(DEGREES)
    assert score_pitches(PITCHES) == PERFECT


def test_sound_is_scored_as_its_notes() -> None:
    clips = [synthesise(sample_melody(2, i)) for i in range(6)]
    scores = score_clips([clips[0][0], *clips[1:]], SAMPLE_RATE)
    assert scores.clips == (6, 6) and scores.notes == (192, 192)
    shares = (scores.legal_notes, scores.legal_transitions, scores.tonic_starts)
    assert (*shares, scores.repeated_bars, scores.whole_pieces) == (1, 1, 1, 1, 1)
    cut = score_clips([clip[:, : 5 * SAMPLE_RATE] for clip in clips], SAMPLE_RATE)
    assert cut == Scores(
        Tally(150, 150), Tally(144, 144), Tally(30, 30), Tally(24, 24), Tally(6, 6)
    )


@pytest.mark.parametrize("wrong", [None, PITCHES[9] + 1])
def test_a_wrong_note_costs_itself_and_both_transitions(wrong: int | None) -> None:
    """Note 9, the second of bar B: no refrain is touched."""
    scores = score_pitches([*PITCHES[:9], wrong, *PITCHES[10:]])
    assert scores == Scores(Tally(31, 32), Tally(29, 31), Tally(6, 6), Tally(5, 5), Tally(0, 1))


def test_a_leap_costs_transitions_alone() -> None:
    """Degree 2 for 8 in bar B: legal, but far from its neighbours 7 and 9."""
    scores = score_pitches([*PITCHES[:9], to_midi(1, 2), *PITCHES[10:]])
    assert scores == Scores(Tally(32, 32), Tally(29, 31), Tally(6, 6), Tally(5, 5), Tally(0, 1))


def test_a_changed_refrain_costs_its_repetition_alone() -> None:
    """5 6 7 6 for 5 6 8 6 in the fourth bar."""
    scores = score_pitches([*PITCHES[:14], to_midi(1, 7), *PITCHES[15:]])
    assert scores == Scores(Tally(32, 32), Tally(31, 31), Tally(6, 6), Tally(4, 5), Tally(0, 1))


def test_a_refrain_beside_the_tonic_costs_its_start() -> None:
    """All one degree up: every transition and repetition holds."""
    shifted = Piece(1, tuple(degree - 1 for degree in DEGREES)).pitches
    scores = score_pitches(shifted)
    assert scores.starts == (0, 6)
    assert (scores.notes, scores.transitions, scores.repeats) == ((32, 32), (31, 31), (5, 5))


def test_silence_and_noise_score_nothing() -> None:
    noise = 0.1 * torch.randn(SAMPLE_RATE, generator=torch.Generator().manual_seed(0))
    for clip in (torch.zeros(5 * SAMPLE_RATE), noise):
        scores = score_clips([clip], SAMPLE_RATE)
        assert scores.notes.total > 0
        assert scores.legal_notes == scores.legal_transitions == scores.whole_pieces == 0
    assert score_pitches([None] * 32).repeats == (0, 5)  # silence repeats nothing


def test_notes_sampled_at_random_score_the_baseline() -> None:
    rng = random.Random(0)
    total = Scores()
    for _ in range(400):
        key = rng.randrange(3)
        total += score_pitches([to_midi(key, rng.randrange(10)) for _ in range(32)])
    assert total.legal_notes == 1
    assert total.legal_transitions == pytest.approx(GRAMMAR.chance_of_transition, abs=0.02)
    assert total.tonic_starts == pytest.approx(2 / 10, abs=0.04)
    assert total.repeated_bars < 0.01 and total.whole_pieces == 0


def test_shuffled_pieces_keep_their_notes_and_lose_their_transitions() -> None:
    """By hand: of the pairs of the notes of a piece, so many are one or two degrees apart."""
    rng = random.Random(0)
    pairs = [(a, b) for i, a in enumerate(DEGREES) for j, b in enumerate(DEGREES) if i != j]
    expected = sum(1 <= abs(a - b) <= 2 for a, b in pairs) / len(pairs)
    total = Scores()
    for _ in range(300):
        total += score_pitches(rng.sample(PITCHES, len(PITCHES)))
    assert total.legal_notes == 1
    assert total.legal_transitions == pytest.approx(expected, abs=0.02)
    assert expected < 0.7


def test_semitones_sampled_at_random_are_mostly_illegal() -> None:
    rng = random.Random(0)
    total = Scores()
    for _ in range(300):
        total += score_pitches([rng.randrange(45, 75) for _ in range(25)])
    # The best of three keys: above the 10 of 30 that one key holds.
    assert 1 / 3 < total.legal_notes < 0.5
    assert total.legal_transitions < 0.1


def test_a_clip_may_start_within_a_piece_and_go_on_beyond_it() -> None:
    scores = score_pitches(PITCHES[10:], first_note=10)
    assert scores == Scores(Tally(22, 22), Tally(21, 21), Tally(4, 4), Tally(3, 3), Tally(1, 1))
    # What follows is another piece, in its own key.
    other = Piece(2, DEGREES).pitches
    scores = score_pitches(PITCHES[10:] + other[:5], first_note=10)
    assert scores == Scores(Tally(27, 27), Tally(25, 25), Tally(6, 6), Tally(3, 3), Tally(1, 1))
    assert score_pitches(PITCHES[10:]).starts.right < 4  # out of step


def test_of_nothing_there_are_no_shares() -> None:
    scores = score_pitches([])
    assert math.isnan(scores.legal_notes) and scores.clips == (0, 1)
    assert math.isnan(score_clips([], SAMPLE_RATE).whole_pieces)


def test_text_is_one_line_with_all_counts() -> None:
    text = str(score_pitches([*PITCHES[:9], None, *PITCHES[10:]]))
    assert text == (
        "legal notes 0.969 (31/32), legal transitions 0.935 (29/31), tonic starts 1.000 (6/6), "
        "repeated bars 1.000 (5/5), whole pieces 0.000 (0/1)"
    )
