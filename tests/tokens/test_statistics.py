"""The yardsticks, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from audiolm.tokens import (
    count_codes,
    cut_spans,
    mix_counts,
    unigram_cross_entropy,
    unigram_entropy,
)
from audiolm.tokens.splits import spans_of


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


def test_pieces_do_not_change_the_count(make_store, random_clips):
    store = make_store(random_clips([500, 70]))
    spans = spans_of([0, 1], 0, store.frames)
    whole, cut = count_codes(store, spans), count_codes(store, cut_spans(spans, 7))
    assert np.array_equal(whole.counts, cut.counts)


def test_mixed_counts():
    one, two = np.array([[6, 2], [0, 8]]), np.array([[0, 2], [1, 1]])
    assert np.array_equal(mix_counts([one], [1.0]), one)  # exactly
    mixed = mix_counts([one, two], [0.3, 0.7])
    assert mixed == pytest.approx(np.array([[2.25, 7.75], [3.5, 6.5]]))
