from __future__ import annotations

from pathlib import Path

import pytest

from audiolm.evaluation.speech.bigrams import BEGIN, END, write_bigrams

SENTENCES = [s.split() for s in ("press one", "press two", "one", "press star", "")]


def read_arpa(path: Path) -> tuple[dict[str, tuple[float, float]], dict[tuple[str, str], float]]:
    """{word: (probability, back-off weight)} and {(before, word): probability}."""
    words, pairs = {}, {}
    for line in path.read_text().splitlines():
        parts = line.split()
        if line.startswith(("\\", "ngram")) or not parts:
            continue
        numbers = [10 ** float(part) for part in (parts[0], *parts[2:]) if part[0] in "-0123456789"]
        if len(parts) == 3 and len(numbers) == 1:
            pairs[parts[1], parts[2]] = numbers[0]
        else:
            words[parts[1]] = (numbers[0], numbers[1] if len(numbers) > 1 else 1.0)
    return words, pairs


def test_probabilities_by_hand(tmp_path: Path) -> None:
    write_bigrams(SENTENCES, tmp_path / "lm")
    words, pairs = read_arpa(tmp_path / "lm")
    # Ends 4, press 3, one 2, two and star 1, each once more: 16 in all.
    singles = {END: 5, "press": 4, "one": 3, "two": 2, "star": 2}
    assert {w: p for w, (p, _) in words.items() if w != BEGIN} == pytest.approx(
        {w: count / 16 for w, count in singles.items()}, rel=1e-4
    )
    assert words[BEGIN][0] < 1e-90
    assert pairs[BEGIN, "press"] == pytest.approx(2.5 / 4, rel=1e-4)
    assert pairs["press", "two"] == pytest.approx(0.5 / 3, rel=1e-4)
    assert ("two", "press") not in pairs


def test_what_may_follow_adds_up_to_one(tmp_path: Path) -> None:
    write_bigrams(SENTENCES, tmp_path / "lm")
    words, pairs = read_arpa(tmp_path / "lm")
    for before in set(words) - {END}:
        back_off = words[before][1]
        chances = [pairs.get((before, w), back_off * words[w][0]) for w in words if w != BEGIN]
        assert sum(chances) == pytest.approx(1, rel=1e-4)


def test_no_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no words"):
        write_bigrams([[], []], tmp_path / "lm")
