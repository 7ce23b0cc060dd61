"""How well clips keep to the grammar of the demo set, as far as a pitch tracker can tell.

A clip is a piece, or its beginning, note by note from its first sample on; what a clip holds beyond
a piece is taken as the next one. The key is the one of the three that makes the most notes legal
(of those, the most transitions). Then are counted:

    legal notes         slots that hold a note of the scale; silence and noise are none
    legal transitions   pairs of neighbours that are both legal, and one or two degrees apart
    tonic starts        refrain bars that start on a tonic
    repeated bars       refrain bars after the first that equal it, all notes legal
    whole pieces        clips in which all of these are right

What a clip does not hold is not counted: in 5 s there are 25 notes, 24 transitions, and 5 refrain
bars, of which 4 repeat the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from audiolm.demo.grammar import GRAMMAR
from audiolm.demo.tracker import track_pitches


class Tally(NamedTuple):
    """How many were right, of how many."""

    right: int = 0
    total: int = 0

    @property
    def share(self) -> float:
        """NaN where there were none."""
        return self.right / self.total if self.total else math.nan


_NONE = Tally()


@dataclass(frozen=True)
class Scores:
    """Shares of clips or of the notes in them, 0 to 1; `+` joins those of several clips."""

    notes: Tally = _NONE
    transitions: Tally = _NONE
    starts: Tally = _NONE
    repeats: Tally = _NONE
    clips: Tally = _NONE

    @property
    def legal_notes(self) -> float:
        return self.notes.share

    @property
    def legal_transitions(self) -> float:
        return self.transitions.share

    @property
    def tonic_starts(self) -> float:
        return self.starts.share

    @property
    def repeated_bars(self) -> float:
        return self.repeats.share

    @property
    def whole_pieces(self) -> float:
        return self.clips.share

    def __add__(self, other: Scores) -> Scores:
        joined = {}
        for field in fields(self):
            mine, others = getattr(self, field.name), getattr(other, field.name)
            joined[field.name] = Tally(mine.right + others.right, mine.total + others.total)
        return Scores(**joined)

    def __str__(self) -> str:
        """One line."""
        return ", ".join(
            f"{name} {tally.share:.3f} ({tally.right}/{tally.total})"
            for name, tally in (
                ("legal notes", self.notes),
                ("legal transitions", self.transitions),
                ("tonic starts", self.starts),
                ("repeated bars", self.repeats),
                ("whole pieces", self.clips),
            )
        )


def score_clips(clips: Iterable[Tensor], sample_rate: int) -> Scores:
    """The scores of clips (N,) or (1, N) together. Raises as `track_pitches` does."""
    return sum((score_pitches(track_pitches(clip, sample_rate)) for clip in clips), Scores())


def score_pitches(pitches: Sequence[int | None], first_note: int = 0) -> Scores:
    """The scores of one clip, given as MIDI note numbers; None where no pitch was found.

    first_note: the note of a piece, from 0, that the clip begins with: to score what was added to
    a prompt of so many notes without the prompt.
    """
    counts = Scores()
    start = 0
    while start < len(pitches):
        length = GRAMMAR.notes - first_note % GRAMMAR.notes
        counts += _score_piece(pitches[start : start + length], first_note % GRAMMAR.notes)
        start, first_note = start + length, 0
    tallies = (counts.notes, counts.transitions, counts.starts, counts.repeats)
    whole = len(pitches) > 0 and all(tally.right == tally.total for tally in tallies)
    return replace(counts, clips=Tally(int(whole), 1))


def _score_piece(pitches: Sequence[int | None], first_note: int) -> Scores:
    """All but `clips`, in the best key, for a piece from `first_note` on or its beginning."""
    candidates = [
        _score_degrees([GRAMMAR.to_degree(key, pitch) for pitch in pitches], first_note)
        for key in range(GRAMMAR.keys)
    ]
    return max(candidates, key=lambda scores: (scores.notes.right, scores.transitions.right))


def _score_degrees(degrees: Sequence[int | None], first_note: int) -> Scores:
    transitions = [GRAMMAR.is_transition(a, b) for a, b in pairwise(degrees)]
    begins = [GRAMMAR.bar * bar - first_note for bar in GRAMMAR.refrains]
    starts = [degrees[i] in GRAMMAR.tonics for i in begins if 0 <= i < len(degrees)]
    bars = [degrees[i : i + GRAMMAR.bar] for i in begins if 0 <= i <= len(degrees) - GRAMMAR.bar]
    repeats = [None not in bar and bar == bars[0] for bar in bars[1:]]
    return Scores(
        notes=_tally([degree is not None for degree in degrees]),
        transitions=_tally(transitions),
        starts=_tally(starts),
        repeats=_tally(repeats),
    )


def _tally(right: Sequence[bool]) -> Tally:
    return Tally(sum(right), len(right))
