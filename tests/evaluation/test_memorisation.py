"""The audit against brute force, and a planted copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from audiolm.batches.splits import spans_of
from audiolm.evaluation.memorisation import longest_shared_runs


def brute_force(clip: np.ndarray, others: list[np.ndarray]) -> int:
    """Frames of the longest run of clip (K, T) that one of the others has."""
    best = 0
    for other in others:
        before = np.zeros(other.shape[1] + 1, int)
        for frame in clip.T:
            same = (other == frame[:, None]).all(axis=0)
            before[1:] = np.where(same, before[:-1] + 1, 0)
            best = max(best, int(before.max()))
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chunk", [3, 40, 10_000])
def test_it_is_the_longest(make_store: Any, seed: int, chunk: int) -> None:
    """Few codes, so that there are runs of all lengths; two stores, and clips of all lengths."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    stores, pieces = [], []
    for number in range(2):
        lengths = rng.integers(1, 60, 5)
        clips = {f"{number}{i}": rng.integers(0, size, (2, n)) for i, n in enumerate(lengths)}
        stores.append(make_store(clips, size=size))
        pieces.append(list(clips.values()))
    # Of the first store all but the first clip, of the second only a part of one.
    spans = [spans_of([1, 2, 3, 4], 0, stores[0].frames[1:]), spans_of([2], [0], [1])]
    others = [*pieces[0][1:], pieces[1][2][:, :1]]
    clips = [rng.integers(0, size, (2, n)) for n in (0, 1, 2, 17, 64)]
    clips.append(np.concatenate([clips[3], pieces[0][1]], axis=1))
    for k in (1, 2):
        found = longest_shared_runs(clips, stores, spans, k, chunk)
        for clip, run in zip(clips, found, strict=True):
            frames = brute_force(clip[:k], [other[:k] for other in others])
            assert frames == (run.frames if run else 0)
            if run:
                theirs = stores[run.store].read(run.clip, run.start, run.frames)
                assert np.array_equal(theirs[:k], clip[:k, run.at : run.at + run.frames])


def test_a_planted_copy_is_found_where_it_is(make_store: Any, random_clips: Any) -> None:
    clips = random_clips([5000, 800, 9000], num_codebooks=4)
    store = make_store(clips)
    sample = np.random.default_rng(9).integers(0, 300, (4, 500))
    sample[:, 100:190] = list(clips.values())[2][:, 7000:7090]
    sample[0, 190:200] = list(clips.values())[2][0, 7090:7100]  # the coarse line continues
    spans = [spans_of([0, 1, 2], 0, store.frames)]
    for k, frames in ((4, 90), (1, 100)):
        (run,) = longest_shared_runs([sample], [store], spans, k, chunk=1000)
        assert run is not None
        assert (run.frames, run.at, run.store, run.clip, run.start) == (frames, 100, 0, 2, 7000)


def test_runs_do_not_go_from_clip_to_clip(make_store: Any) -> None:
    store = make_store({"a": np.array([[1, 2]]), "b": np.array([[3, 4]])}, size=5)
    (run,) = longest_shared_runs(
        [np.array([[1, 2, 3, 4]])], [store], [spans_of([0, 1], 0, [2, 2])], 1
    )
    assert run is not None and run.frames == 2


def test_nothing_shared(make_store: Any) -> None:
    store = make_store({"a": np.zeros((1, 9), int)}, size=5)
    spans = [spans_of([0], 0, [9])]
    assert longest_shared_runs([np.ones((1, 4), int)], [store], spans, 1) == [None]
    assert longest_shared_runs([], [store], spans, 1) == []


def test_silence_is_a_long_run_and_no_long_search(make_store: Any) -> None:
    """Every run of the clip is at every position of the training set."""
    store = make_store({"a": np.zeros((2, 50_000), int)}, size=5)
    (run,) = longest_shared_runs(
        [np.zeros((2, 600), int)], [store], [spans_of([0], 0, [50_000])], 2, chunk=5000
    )
    assert run is not None and run.frames == 600


def test_the_number_of_codebooks_has_limits(make_store: Any, random_clips: Any) -> None:
    store = make_store(random_clips([9]))
    with pytest.raises(ValueError, match="num_codebooks=3 must be from 1 to 2"):
        longest_shared_runs([], [store], [spans_of([0], 0, [9])], 3)
