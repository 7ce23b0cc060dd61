"""What training windows are taken, and what is read for them."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
import torch

from audiolm.batches.splits import spans_of
from audiolm.batches.windows import WINDOW, TrainingWindows, WindowReader


def spans(lengths):
    return spans_of(np.arange(len(lengths)), 0, lengths)


def numbered(lengths):
    """Codes that tell where they are from: frame t of clip i is (i, t)."""
    return {
        f"{i:03d}": np.stack([np.full(frames, i), np.arange(frames)])
        for i, frames in enumerate(lengths)
    }


@pytest.mark.parametrize("lengths", [[1], [7], [8], [9], [1, 7, 8, 9, 16, 17, 250]])
def test_crops_lie_in_their_clips(lengths):
    windows = TrainingWindows(spans(lengths), 8, seed=1)
    assert len(windows) == sum(-(-n // 8) for n in lengths)
    for clip, start, frames in windows.take(0, 3 * len(windows)).tolist():
        assert frames == min(8, lengths[clip])
        assert 0 <= start <= start + frames <= lengths[clip]


def test_each_pass_takes_every_slot_once():
    lengths = [1, 7, 8, 9, 16, 17, 50]
    windows = TrainingWindows(spans(lengths), 8, seed=3)
    passes = windows.take(0, 3 * len(windows))["clip"].reshape(3, -1).tolist()
    for clips in passes:
        assert Counter(clips) == {i: -(-n // 8) for i, n in enumerate(lengths)}
    assert len(set(map(tuple, passes))) == 3


def test_starts_are_uniform_to_both_ends():
    starts = Counter(TrainingWindows(spans([12]), 8, seed=5).take(0, 5000)["start"].tolist())
    assert set(starts) == set(range(5))
    assert all(abs(count - 1000) < 130 for count in starts.values())


def test_crops_stay_in_their_span():
    windows = TrainingWindows(spans_of([4], [10], [13]), 8, seed=0).take(0, 300)
    assert set(windows["start"].tolist()) == set(range(10, 16))
    assert set(windows["clip"].tolist()) == {4}


def test_windows_of_some_lengths_only():
    lengths = [3, 20, 5, 8, 7, 4, 9]
    for shortest, longest, clips in ((1, 4, [0, 5]), (5, 7, [2, 4]), (6, 8, [1, 3, 4, 6])):
        windows = TrainingWindows(spans(lengths), 8, 0, shortest, longest)
        assert sorted(set(windows.take(0, len(windows))["clip"].tolist())) == clips
        assert len(windows) == sum(-(-lengths[i] // 8) for i in clips)
    assert len(TrainingWindows(spans([3, 20]), 8, 0, 4, 7)) == 0


def test_a_window_is_a_function_of_seed_stream_and_number():
    made = lambda *others: TrainingWindows(spans([5, 30, 100, 64]), 16, *others)  # noqa: E731
    whole = made(7).take(0, 60)
    for first in np.random.default_rng(0).permutation(55).tolist():
        assert np.array_equal(made(7).take(first, 5), whole[first : first + 5])
    for other in (made(8), made(7, 1, None, 1)):
        assert not np.array_equal(other.take(0, 60), whole)
    assert len(made(7).take(2**40, 3)) == 3  # far on, without the passes before


def test_the_order_is_the_same_everywhere():
    """A change would break every run that is to be resumed."""
    windows = TrainingWindows(spans([12, 5, 30]), 8, seed=11).take(0, 8)
    assert windows["clip"].tolist() == [2, 0, 2, 2, 1, 2, 0, 0]
    assert windows["start"].tolist() == [10, 1, 19, 2, 0, 6, 3, 3]


def test_the_reader_gives_what_the_stores_hold(make_store):
    stores = [make_store(numbered([12, 5])), make_store(numbered([3, 40, 7]), num_shards=2)]
    reader = pickle.loads(pickle.dumps(WindowReader(stores, 4, 16)))
    windows = np.array([(1, 1, 30, 9), (0, 0, 4, 8), (1, 2, 0, 7), (0, 1, 4, 1)], WINDOW)
    batch = reader[windows]
    assert batch["codes"].shape == (4, 2, 9)  # padded to the longest, no further
    assert batch["codes"].dtype == batch["lengths"].dtype == torch.int64
    assert batch["lengths"].tolist() == [9, 8, 7, 1]
    assert batch["full"] == 4 * 2 * 16
    # Crops from the middle of a clip have no end; those that reach it do.
    assert batch["reaches_end"].tolist() == [False, True, True, True]
    assert batch["conditions"] == {}
    for (_, clip, start, frames), codes in zip(windows.tolist(), batch["codes"], strict=True):
        assert codes[0, :frames].tolist() == [clip] * frames
        assert codes[1, :frames].tolist() == list(range(start, start + frames))
        assert (codes[:, frames:] == 0).all()
