"""The baselines, against their definitions."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from audiolm.batches.splits import cut_spans, spans_of
from audiolm.tokens import (
    baselines,
    count_codes,
    mix_counts,
    unigram_cross_entropy,
    unigram_entropy,
)
from audiolm.tokens.baselines import bigram_baselines


def test_every_code_of_the_spans_is_counted(make_store, random_clips):
    lengths = [1, 5, 9000, 300]
    clips = random_clips(lengths, num_codebooks=3, size=17)
    store = make_store(clips, size=17)
    found = count_codes(store, spans_of([0, 2, 3], [0, 100, 0], [1, 8000, 300]))
    arrays = list(clips.values())
    joined = np.concatenate([arrays[0], arrays[2][:, 100:8100], arrays[3]], axis=1)
    expected = [np.bincount(row, minlength=17) for row in joined]
    assert np.array_equal(found.counts, expected)
    assert (found.frames, found.sampled) == (8301, False)


def test_many_short_clips(make_store, random_clips):
    clips = random_clips([40] * 2000, num_codebooks=1, size=5)
    store = make_store(clips, size=5)
    found = count_codes(store, spans_of(np.arange(2000), 0, store.frames))
    assert np.array_equal(found.counts[0], np.bincount(np.concatenate([*clips.values()], 1)[0]))


def test_a_sample_is_spread_over_everything(make_store):
    """Clip i holds code i alone: each is seen about as often as it is long."""
    store = make_store({f"{i}": np.full((1, 20_000), i) for i in range(8)}, size=8)
    found = count_codes(store, spans_of(np.arange(8), 0, store.frames), max_frames=40_000)
    assert found.sampled and 30_000 < found.frames <= 45_000
    assert found.counts.sum() == found.frames and (found.counts > 0).all()
    tiny = count_codes(store, spans_of(np.arange(8), 0, store.frames), max_frames=1)
    assert tiny.frames == 4096


def test_entropy():
    counts = np.array([[1, 1, 1, 1], [4, 0, 0, 0], [2, 2, 0, 0]])
    assert unigram_entropy(counts) == pytest.approx([math.log(4), 0, math.log(2)])


def test_cross_entropy():
    train = np.array([[7, 0, 1]])
    valid = np.array([[2, 1, 0]])
    expected = -(2 * math.log(8 / 11) + math.log(1 / 11)) / 3
    assert unigram_cross_entropy(train, valid) == pytest.approx([expected])
    # With plenty of the same codes it becomes the entropy, from above.
    rng = np.random.default_rng(0)
    plenty = rng.integers(1, 10**6, (2, 50))
    assert unigram_cross_entropy(plenty, plenty) == pytest.approx(unigram_entropy(plenty), rel=1e-6)
    assert (unigram_cross_entropy(plenty, plenty) >= unigram_entropy(plenty)).all()


def test_chunks_do_not_change_the_count(make_store, random_clips):
    store = make_store(random_clips([500, 70]))
    spans = spans_of([0, 1], 0, store.frames)
    whole, cut = count_codes(store, spans), count_codes(store, cut_spans(spans, 7))
    assert np.array_equal(whole.counts, cut.counts)


def test_mixed_counts():
    one, two = np.array([[6, 2], [0, 8]]), np.array([[0, 2], [1, 1]])
    assert np.array_equal(mix_counts([one], [1.0]), one)  # exactly
    mixed = mix_counts([one, two], [0.3, 0.7])
    assert mixed == pytest.approx(np.array([[2.25, 7.75], [3.5, 6.5]]))


# ---- Uniform, unigram and bigram tables, against brute force

V = 5


def tokens(clip: np.ndarray, k: int, end_token: bool) -> list[int]:
    """Codebook k of a clip, behind V for nothing, and with V behind it for the end."""
    return [V, *clip[k].tolist(), *([V] if end_token and k == 0 else [])]


def by_hand(
    train: list[np.ndarray], valid: list[np.ndarray], k: int, end_token: bool
) -> list[float]:
    """Nats per code of codebook k under each baseline."""
    outcomes = range(V + 1 if end_token and k == 0 else V)
    pairs: Counter[tuple[int, int]] = Counter()
    for clip in train:
        line = tokens(clip, k, end_token)
        pairs.update(pairwise(line))
    alone = {b: 1 + sum(n for (_, after), n in pairs.items() if after == b) for b in outcomes}
    alone = {b: n / sum(alone.values()) for b, n in alone.items()}
    once, twice = (sum(n == m for n in pairs.values()) for m in (1, 2))
    d = once / (once + 2 * twice) if once else 0.5

    def bigram(a: int, b: int) -> float:
        row = {after: n for (before, after), n in pairs.items() if before == a}
        if not row:
            return alone[b]
        total = sum(row.values())
        return max(row.get(b, 0) - d, 0) / total + d * len(row) / total * alone[b]

    for a in range(V + 1):  # a distribution, whatever came before
        assert sum(bigram(a, b) for b in outcomes) == pytest.approx(1)
    nats = np.zeros(3)
    count = 0
    for clip in valid:
        line = tokens(clip, k, end_token)
        for a, b in pairwise(line):
            nats -= np.log([1 / len(outcomes), alone[b], bigram(a, b)])
            count += 1
    found: list[float] = (nats / count).tolist()
    return found


@pytest.mark.parametrize("end_token", [False, True])
@pytest.mark.parametrize("cells", [1, 2**24])  # one codebook at a time, and all
def test_they_are_what_tables_by_hand_give(
    make_store: Any, end_token: bool, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "CELLS", cells)
    rng = np.random.default_rng(0)
    lengths = [40, 7, 1, 60, 13, 25, 2]
    # Unlike frequencies, and codes that training never has.
    clips = [
        rng.integers(0, V - (i < 5), (3, n)) // rng.integers(1, 3) for i, n in enumerate(lengths)
    ]
    store = make_store({f"{i}": clip for i, clip in enumerate(clips)}, size=V)
    train, valid = spans_of(range(5), 0, store.frames[:5]), spans_of([5, 6], 0, store.frames[5:])
    found = bigram_baselines([store], [train], [valid], end_token=end_token)
    for k in range(3):
        mine = [found.uniform[k], found.unigram[k], found.bigram[k]]
        assert mine == pytest.approx(by_hand(clips[:5], clips[5:], k, end_token))


def test_a_part_of_a_clip_begins_with_nothing_and_has_no_end(make_store: Any) -> None:
    clip = np.random.default_rng(0).integers(0, V, (1, 100))
    store = make_store({"a": clip}, size=V)
    found = bigram_baselines(
        [store], [spans_of([0], [0], [80])], [spans_of([0], [80], [15])], end_token=False
    )
    mine = [found.uniform[0], found.unigram[0], found.bigram[0]]
    assert mine == pytest.approx(by_hand([clip[:, :80]], [clip[:, 80:95]], 0, False))


def test_the_bigram_knows_what_follows_what(make_store: Any) -> None:
    """A cycle through the codes: nothing to guess but the first."""
    cycle = np.arange(2000)[None] % V
    store = make_store({"a": cycle, "b": cycle[:, :200]}, size=V)
    found = bigram_baselines([store], [spans_of([0], 0, [2000])], [spans_of([1], 0, [200])])
    assert found.unigram[0] == pytest.approx(math.log(V), rel=1e-3)
    assert found.bigram[0] < 0.02


def test_long_clips_are_counted_in_pieces(make_store: Any) -> None:
    """Longer than a chunk: the pair across its border counts too."""
    rng = np.random.default_rng(0)
    clips = [rng.integers(0, V, (1, n)) for n in (9000, 5000)]
    store = make_store({"a": clips[0], "b": clips[1]}, size=V)
    found = bigram_baselines(
        [store], [spans_of([0], 0, [9000])], [spans_of([1], 0, [5000])], end_token=True
    )
    assert found.bigram[0] == pytest.approx(by_hand(clips[:1], clips[1:], 0, True)[2])


def test_stores_weigh_what_their_shares_say(make_store: Any) -> None:
    """Training codes 0 in one store and 1 in the other; the validation set is a clip of 0."""
    stores = [
        make_store({"a": np.zeros((1, 1000), int), "b": np.zeros((1, 10), int)}, size=2),
        make_store({"a": np.ones((1, 200), int)}, size=2),
    ]
    spans = [spans_of([0], 0, [1000]), spans_of([0], 0, [200])]
    validation = [spans_of([1], 0, [10]), spans_of([], 0, [])]
    found = bigram_baselines(stores, spans, validation, shares=(0.25, 0.75))
    counts = np.array([[0.25 * 1200, 0.75 * 1200]])
    assert found.unigram == pytest.approx(unigram_cross_entropy(counts, np.array([[10, 0]])))


def test_nothing_validation(make_store: Any) -> None:
    store = make_store({"a": np.zeros((1, 9), int)}, size=2)
    with pytest.raises(ValueError, match="there is no validation set"):
        bigram_baselines([store], [spans_of([0], 0, [9])], [spans_of([], 0, [])])
