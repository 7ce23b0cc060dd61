"""Which clips are for validation, and that it stays so."""

from __future__ import annotations

import numpy as np
import pytest

from audiolm.batches.splits import cut_spans, spans_of, split_clips


def ids(store, spans) -> set[str]:
    return {store.record(int(clip))["id"] for clip in spans["clip"]}


def test_parts_share_nothing_and_miss_nothing(make_store, random_clips):
    store = make_store(random_clips(range(1, 401)))
    train, valid, _ = split_clips(store, 0.2)
    assert sorted([*train["clip"], *valid["clip"]]) == list(range(400))
    assert 50 < len(valid) < 110
    for spans in (train, valid):
        assert (spans["start"] == 0).all()
        assert np.array_equal(spans["frames"], store.frames[spans["clip"]])


def test_the_split_is_the_same_everywhere(make_store, random_clips):
    """A change of the hash would move clips between the parts of stores that exist."""
    store = make_store(random_clips([2] * 40))
    assert split_clips(store, 0.2)[1]["clip"].tolist() == [7, 15, 16, 17, 18, 33]


def test_a_clip_keeps_its_place_when_files_are_added(make_store, random_clips):
    clips = random_clips([2] * 300)
    some = {name: clips[name] for name in list(clips)[::3]}
    few, many = make_store(some), make_store(clips)
    for fraction in (0.05, 0.5):
        (train, valid, _), (more_train, more_valid, _) = (
            split_clips(few, fraction),
            split_clips(many, fraction),
        )
        assert ids(few, valid) <= ids(many, more_valid)
        assert ids(few, train) <= ids(many, more_train)
        assert ids(few, valid) == ids(many, more_valid) & set(some)


def test_a_larger_fraction_holds_out_more_of_the_same(make_store, random_clips):
    store = make_store(random_clips([2] * 200))
    small, large = (set(split_clips(store, f)[1]["clip"]) for f in (0.1, 0.3))
    assert small < large


def test_named_splits_go_before_the_hash(make_store, random_clips):
    clips = random_clips([2] * 90)
    names = list(clips)
    splits = dict.fromkeys(names[:30], "valid") | dict.fromkeys(names[30:60], "train")
    splits |= dict.fromkeys(names[60:65], "test")
    store = make_store(clips, splits)
    train, valid, test = (ids(store, spans) for spans in split_clips(store, 0.5))
    assert set(names[:30]) < valid and set(names[30:60]) < train
    assert test == set(names[60:65])
    assert train | valid == set(names) - test and not train & valid
    train, valid, _ = (ids(store, spans) for spans in split_clips(store, 0.0))
    assert valid == set(names[:30])


def test_small_collections_always_hold_something_out_and_train_on_something(
    make_store, random_clips
):
    for count in (2, 3, 5):
        store = make_store(random_clips([4] * count))
        hashes = store.index["id_hash"]
        train, valid, _ = split_clips(store, 1e-9)
        assert valid["clip"].tolist() == [int(np.argmin(hashes))] and len(train) == count - 1
        train, valid, _ = split_clips(store, 1 - 1e-9)
        assert train["clip"].tolist() == [int(np.argmax(hashes))] and len(valid) == count - 1
        assert len(split_clips(store, 0.0)[1]) == 0


@pytest.mark.parametrize(
    ("frames", "fraction", "validation"),
    [(100, 0.1, 10), (2, 0.01, 1), (2, 0.99, 1), (10, 0.97, 9)],
)
def test_of_a_single_clip_the_end_is_validation(
    make_store, random_clips, frames, fraction, validation
):
    train, valid, _ = split_clips(make_store(random_clips([frames])), fraction)
    assert train.tolist() == [(0, 0, frames - validation)]
    assert valid.tolist() == [(0, frames - validation, validation)]


def test_one_clip_beside_named_ones(make_store, random_clips):
    clips = random_clips([4, 4])
    for name, part in (("train", 1), ("valid", 0)):
        store = make_store(clips, {"000000.wav": name})
        for fraction in (1e-9, 0.5, 1 - 1e-9):
            spans = split_clips(store, fraction)[part]
            assert spans["clip"].tolist() == [1] and spans["frames"].tolist() == [4]


def test_what_cannot_be_split(make_store, random_clips):
    clips = random_clips([4, 4])
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="valid_fraction"):
            split_clips(make_store(clips), fraction)
    with pytest.raises(ValueError, match="single clip of 1 frame"):
        split_clips(make_store(random_clips([1])), 0.1)
    for name in ("valid", "test"):
        with pytest.raises(ValueError, match="nothing to train on"):
            split_clips(make_store(clips, dict.fromkeys(clips, name)), 0.1)
    everything = split_clips(make_store(clips, dict.fromkeys(clips, "train")), 0.0)
    assert [len(part) for part in everything] == [2, 0, 0]


def test_train_without_valid_is_split_by_the_hash(make_store, random_clips):
    clips = random_clips([4] * 40)
    names = list(clips)
    named = dict.fromkeys(names[:30], "train") | dict.fromkeys(names[30:], "test")
    split = split_clips(make_store(clips, named), 0.3)
    assert [len(part) for part in split] == [30 - len(split.valid), len(split.valid), 10]
    assert 0 < len(split.valid) < 20
    as_unnamed = split_clips(make_store(clips, dict.fromkeys(names[30:], "test")), 0.3)
    assert all(np.array_equal(a, b) for a, b in zip(split, as_unnamed, strict=True))


def grouped(names, groups):
    """Clips dealt out to groups in turn."""
    return {name: f"group {i % groups}" for i, name in enumerate(names)}


def test_a_group_is_in_one_part_and_stays_there(make_store, random_clips):
    clips = random_clips([2] * 400)
    groups = grouped(clips, 60)
    many = make_store(clips, groups=groups)
    few = make_store({name: clips[name] for name in list(clips)[:70]}, groups=groups)
    for fraction in (0.05, 0.3, 0.8):
        split = split_clips(many, fraction)
        hashes = [set(many.index["split_hash"][part["clip"]]) for part in split]
        assert not hashes[0] & hashes[1] and len(hashes[0] | hashes[1]) == 60
        # Clips that were there before stay: neither more of a group nor more groups move them.
        for before, after in zip(split_clips(few, fraction), split, strict=True):
            assert ids(few, before) <= ids(many, after)


def test_the_parts_of_groups_are_the_same_everywhere(make_store, random_clips):
    clips = random_clips([2] * 40)
    store = make_store(clips, groups=grouped(clips, 10))
    assert sorted({int(c) % 10 for c in split_clips(store, 0.2).valid["clip"]}) == [0, 5, 7]


def test_in_small_collections_whole_groups_move(make_store, random_clips):
    clips = random_clips([4] * 6)
    store = make_store(clips, groups=grouped(clips, 3))
    hashes = store.index["split_hash"]
    train, valid, _ = split_clips(store, 1e-9)
    assert set(hashes[valid["clip"]]) == {hashes.min()} and len(valid) == 2 and len(train) == 4
    train, valid, _ = split_clips(store, 1 - 1e-9)
    assert set(hashes[train["clip"]]) == {hashes.max()} and len(train) == 2 and len(valid) == 4


def test_a_single_group_cannot_be_split(make_store, random_clips):
    clips = random_clips([4] * 3)
    alike = make_store(clips, groups=grouped(clips, 1))
    for fraction in (1e-9, 0.5, 1 - 1e-9):
        with pytest.raises(ValueError, match="its 3 clips are of one group"):
            split_clips(alike, fraction)
    assert [len(part) for part in split_clips(alike, 0.0)] == [3, 0, 0]
    # Beside another one that is named, it is a part.
    named = make_store(clips, {"000000.wav": "train"}, {"000001.wav": "a", "000002.wav": "a"})
    for fraction in (1e-9, 0.5, 1 - 1e-9):
        assert split_clips(named, fraction).valid["clip"].tolist() == [1, 2]


def test_the_rest_of_a_group_follows_the_clip_that_is_named(make_store, random_clips):
    clips = random_clips([2] * 200)
    groups = grouped(clips, 20)
    splits = {"000003.wav": "test", "000044.wav": "valid", "000165.wav": "train"}
    store = make_store(clips, splits, groups)
    split = split_clips(store, 0.3)
    for part, group in zip(split, (5, 4, 3), strict=True):
        assert set(range(group, 200, 20)) <= set(part["clip"].tolist())
    assert len(split.test) == 10
    assert sum(map(len, split)) == 200


def test_a_group_named_for_two_splits_is_refused(make_store, random_clips):
    clips = random_clips([2] * 6)
    splits = {"000000.wav": "train", "000003.wav": "valid"}
    store = make_store(clips, splits, grouped(clips, 3))
    with pytest.raises(ValueError, match=r"000000.wav is named train and 000003.wav valid"):
        split_clips(store, 0.1)
    split_clips(make_store(clips, splits), 0.1)


def test_cut_spans():
    spans = spans_of([3, 5, 9], [10, 0, 2], [7, 1, 6])
    assert cut_spans(spans, 3).tolist() == [
        (3, 10, 3),
        (3, 13, 3),
        (3, 16, 1),
        (5, 0, 1),
        (9, 2, 3),
        (9, 5, 3),
    ]
    assert cut_spans(spans, 100).tolist() == spans.tolist()
    assert len(cut_spans(spans[:0], 3)) == 0
