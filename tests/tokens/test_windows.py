"""What training and validation are served, and in which order."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from audiolm.tokens import (
    StepSampler,
    TrainingWindows,
    ValidationWindows,
    collate,
    split_clips,
)
from audiolm.tokens.splits import spans_of


def all_spans(store):
    return spans_of(np.arange(len(store)), 0, store.frames)


def numbered(lengths):
    """Codes that tell where they are from: frame t of clip i is (i, t)."""
    return {
        f"{i:03d}": np.stack([np.full(frames, i), np.arange(frames)])
        for i, frames in enumerate(lengths)
    }


@pytest.mark.parametrize("lengths", [[1], [7], [8], [9], [1, 7, 8, 9, 16, 17, 250]])
def test_crops_are_what_the_store_holds_and_padding_is_zero(make_store, lengths):
    store = make_store(numbered(lengths))
    windows = TrainingWindows(store, all_spans(store), 8, seed=1)
    assert len(windows) == sum(-(-n // 8) for n in lengths)
    for g in range(3 * len(windows)):
        codes, length = windows[g]
        assert codes.shape == (2, 8) and codes.dtype == torch.int64
        clip, start = int(codes[0, 0]), int(codes[1, 0])
        assert length == min(8, lengths[clip])
        assert codes[0, :length].tolist() == [clip] * length
        assert codes[1, :length].tolist() == list(range(start, start + length))
        assert start + length <= lengths[clip]
        assert (codes[:, length:] == 0).all()


def test_each_pass_takes_every_slot_once(make_store):
    lengths = [1, 7, 8, 9, 16, 17, 50]
    store = make_store(numbered(lengths))
    windows = TrainingWindows(store, all_spans(store), 8, seed=3)
    orders = []
    for epoch in range(3):
        clips = [int(windows[epoch * len(windows) + i].codes[0, 0]) for i in range(len(windows))]
        assert Counter(clips) == {i: -(-n // 8) for i, n in enumerate(lengths)}
        orders.append(tuple(clips))
    assert len(set(orders)) == 3


def test_starts_are_uniform_to_both_ends(make_store):
    store = make_store(numbered([12]))
    windows = TrainingWindows(store, all_spans(store), 8, seed=5)
    starts = Counter(int(windows[g].codes[1, 0]) for g in range(5000))
    assert set(starts) == set(range(5))
    assert all(abs(count - 1000) < 130 for count in starts.values())


def test_crops_stay_in_their_span(make_store):
    store = make_store(numbered([40]))
    windows = TrainingWindows(store, spans_of([0], [10], [13]), 8, seed=0)
    starts = {int(windows[g].codes[1, 0]) for g in range(300)}
    assert starts == set(range(10, 16))


def test_an_item_is_a_function_of_seed_and_number(make_store, random_clips):
    store = make_store(random_clips([5, 30, 100, 64]))
    spans = all_spans(store)
    forward = [TrainingWindows(store, spans, 16, seed=7)[g].codes for g in range(60)]
    windows = TrainingWindows(store, spans, 16, seed=7)
    for g in np.random.default_rng(0).permutation(60).tolist():
        assert torch.equal(windows[g].codes, forward[g])
    other = TrainingWindows(store, spans, 16, seed=8)
    assert not all(torch.equal(other[g].codes, forward[g]) for g in range(60))
    copy = pickle.loads(pickle.dumps(windows))
    assert torch.equal(copy[41].codes, forward[41])
    assert windows[2**40].length > 0  # far on, without the passes before


def test_the_order_is_the_same_everywhere(make_store):
    """A change would break every run that is to be resumed."""
    store = make_store(numbered([12, 5, 30]))
    windows = TrainingWindows(store, all_spans(store), 8, seed=11)
    first = [(int(windows[g].codes[0, 0]), int(windows[g].codes[1, 0])) for g in range(8)]
    assert first == [(2, 10), (0, 4), (2, 13), (2, 6), (1, 0), (2, 16), (0, 4), (0, 1)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_change_nothing(make_store, random_clips, num_workers):
    store = make_store(random_clips([5, 30, 100, 64]), num_shards=2)
    windows = TrainingWindows(store, all_spans(store), 16, seed=7)
    loader = DataLoader(
        windows,
        batch_sampler=StepSampler(3, num_batches=9),
        collate_fn=collate,
        num_workers=num_workers,
    )
    batches = list(loader)
    assert len(batches) == len(loader) == 9
    for n, batch in enumerate(batches):
        alone = collate([windows[n * 3 + j] for j in range(3)])
        assert torch.equal(batch["codes"], alone["codes"])
        assert torch.equal(batch["lengths"], alone["lengths"])
        assert batch["codes"].shape == (3, 2, 16) and batch["lengths"].dtype == torch.int64


def test_a_global_batch_does_not_depend_on_how_it_is_divided():
    def items(n: int, world_size: int) -> list[int]:
        samplers = [
            StepSampler(12 // world_size, rank, world_size, num_batches=5)
            for rank in range(world_size)
        ]
        return [item for sampler in samplers for item in list(sampler)[n]]

    for n in range(5):
        assert items(n, 1) == items(n, 2) == items(n, 4) == list(range(12 * n, 12 * n + 12))


def test_going_on_is_a_matter_of_the_start():
    whole = list(StepSampler(4, 1, 3, num_batches=10))
    for start in range(11):
        sampler = StepSampler(4, 1, 3, start_batch=start, num_batches=10)
        assert list(sampler) == whole[start:] and len(sampler) == 10
    assert whole[2] == [28, 29, 30, 31]


def test_validation_takes_every_code_once(make_store):
    rng = np.random.default_rng(0)
    for _ in range(20):
        lengths = rng.integers(1, 40, rng.integers(1, 12))
        window = int(rng.integers(1, 20))
        store = make_store(numbered(lengths))
        spans = all_spans(store)
        windows = ValidationWindows(store, spans, window)
        seen = [
            (int(codes[0, t]), int(codes[1, t])) for codes, length in windows for t in range(length)
        ]
        assert seen == [(i, t) for i, frames in enumerate(lengths) for t in range(frames)]
        for codes, length in windows:
            assert codes.shape == (2, window) and (codes[:, length:] == 0).all()


def test_validation_of_a_part_of_a_clip(make_store):
    store = make_store(numbered([100]))
    _, valid = split_clips(store, 0.2)
    windows = ValidationWindows(store, valid, 8)
    assert [length for _, length in windows] == [8, 8, 4]
    assert int(windows[2].codes[1, 3]) == 99


def test_wrong_numbers(make_store):
    store = make_store(numbered([4]))
    spans = all_spans(store)
    for make in (
        lambda: TrainingWindows(store, spans, 0, 0),
        lambda: TrainingWindows(store, spans[:0], 8, 0),
        lambda: TrainingWindows(store, spans, 8, -1),
        lambda: TrainingWindows(store, spans, 8, 2**64),
        lambda: ValidationWindows(store, spans, 0),
        lambda: ValidationWindows(store, spans[:0], 8),
        lambda: StepSampler(0, num_batches=1),
        lambda: StepSampler(1, 2, 2, num_batches=1),
        lambda: StepSampler(1, start_batch=2, num_batches=1),
    ):
        with pytest.raises(ValueError):
            make()
    TrainingWindows(store, spans, 8, 2**64 - 1)[0]
    with pytest.raises(IndexError):
        TrainingWindows(store, spans, 8, 0)[-1]
