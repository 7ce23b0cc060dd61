"""Batches: full, of like lengths, in shares, and the same wherever one begins."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from torch.utils.data import DataLoader

from audiolm.batches.buckets import (
    StepSampler,
    TrainingBatches,
    divide_lengths,
    validation_batches,
    window_lengths,
)
from audiolm.batches.splits import spans_of
from audiolm.batches.windows import TrainingWindows, WindowReader

AUDIO = Path(__file__).resolve().parents[2].parent / "shared" / "audio"
WINDOW_FRAMES = 320  # 6.4 s at 50 frames a second


def delayed(frames: int) -> int:
    """Steps of the delay pattern with four codebooks."""
    return frames + 3


def spans(lengths):
    return spans_of(np.arange(len(lengths)), 0, lengths)


def batches_of(
    lengths, window_frames=WINDOW_FRAMES, full_windows=16, steps=delayed, seed=0, **more
):
    many = lengths if isinstance(lengths[0], list | np.ndarray) else [lengths]
    return TrainingBatches(
        [spans(x) for x in many], window_frames, full_windows, steps, seed, **more
    )


def digits(rng, count=1500):
    """Frames of short words: like 1,500 recorded digits, a median of 0.4 s with a long tail."""
    return np.clip(np.exp(rng.normal(3.0, 0.33, count)), 7, 114).astype(int)


def prompts(rng, count=568):
    """Frames of telephone prompts: most of one to three seconds, some of a minute."""
    return np.clip(np.exp(rng.normal(4.4, 0.9, count)), 10, 3700).astype(int)


def padding(batches, count):
    served = [batches[n]["frames"] for n in range(count)]
    return 1 - sum(x.sum() for x in served) / sum(len(x) * x.max() for x in served)


@pytest.mark.parametrize("lengths", [[320] * 669, [320, 500, 320, 3200, 641], [400]])
def test_full_windows_are_batched_in_their_order(lengths):
    """Batch n holds windows n * B ... of the one order there is."""
    windows = TrainingWindows(spans(lengths), WINDOW_FRAMES, seed=4)
    batches = batches_of(lengths, full_windows=8, seed=4)
    assert len(batches.buckets) == 1 and batches.padding == 0
    for n in (0, 1, 2, 83, 84, 500):
        taken = windows.take(8 * n, 8)
        for name in ("clip", "start", "frames"):
            assert np.array_equal(batches[n][name], taken[name])


@pytest.mark.parametrize("full_windows", [1, 8, 16, 32])
@pytest.mark.parametrize("make", [digits, prompts])
def test_short_clips_have_little_padding_and_fit_the_room(make, full_windows):
    lengths = make(np.random.default_rng(full_windows))
    batches = batches_of(lengths, full_windows=full_windows)
    assert padding(batches, 300) <= 0.1 and batches.padding <= 0.08
    for n in range(300):
        batch = batches[n]
        longest = int(batch["frames"].max())
        assert batch["frames"].tolist() == sorted(batch["frames"], reverse=True)
        assert len(batch) * longest <= full_windows * WINDOW_FRAMES
        assert len(batch) * delayed(longest) <= full_windows * delayed(WINDOW_FRAMES)
        assert len(batch) >= full_windows


@pytest.mark.parametrize("name", ["digits", "speech"])
def test_recordings_have_little_padding(name):
    files = [file for file in (AUDIO / name).rglob("*") if file.suffix in (".wav", ".flac")]
    if not files:
        pytest.skip(f"needs shared/audio/{name} beside the checkout")
    seconds = [soundfile.info(file).duration for file in files]
    lengths = np.ceil(np.array(seconds) * 50).astype(int)
    for full_windows in (8, 16, 32):
        batches = batches_of(lengths, full_windows=full_windows)
        assert padding(batches, 300) <= 0.1


def test_large_collections_fill_their_batches():
    for make in (digits, prompts):
        batches = batches_of(make(np.random.default_rng(0), 20_000), full_windows=16)
        room = 16 * WINDOW_FRAMES
        assert batches.mean_frames > 0.8 * room
        served = sum(int(batches[n]["frames"].sum()) for n in range(400)) / 400
        assert served == pytest.approx(batches.mean_frames, rel=0.02)


def test_every_clip_is_seen_as_often_as_it_is_long():
    """Whatever the buckets are: passes over all of them proceed side by side."""
    lengths = prompts(np.random.default_rng(1), 200)
    batches = batches_of(lengths, full_windows=4)
    count = round(20 / batches.passes[0])
    seen = np.zeros(200)
    for n in range(count):
        np.add.at(seen, batches[n]["clip"], 1)
    passes = seen / -(-lengths // WINDOW_FRAMES)
    assert np.abs(passes - 20).max() <= 2


def test_a_batch_repeats_nothing_that_it_need_not():
    """Few clips of a bucket make a smaller batch, not the same ones over and over."""
    lengths = [300] * 40 + [10] * 30
    batches = batches_of(lengths, full_windows=16)
    assert [(bucket.longest, bucket.rows) for bucket in batches.buckets] == [(300, 17), (10, 30)]
    short = next(b for b in (batches[n] for n in range(10)) if b["frames"][0] == 10)
    assert sorted(short["clip"].tolist()) == list(range(40, 70))


def test_a_batch_is_a_function_of_seed_and_number():
    lengths = prompts(np.random.default_rng(2))
    whole = [batches_of(lengths)[n] for n in range(60)]
    batches = batches_of(lengths)
    for n in np.random.default_rng(0).permutation(60).tolist():
        assert np.array_equal(batches[n], whole[n])
    other = batches_of(lengths, seed=1)
    assert not all(np.array_equal(other[n], whole[n]) for n in range(60))
    assert len(batches[2**36]) >= 16  # far on, without those before
    with pytest.raises(IndexError):
        batches[-1]


def test_the_batches_are_the_same_everywhere():
    """A change would break every run that is to be resumed."""
    batches = batches_of([5, 30, 8, 9, 31, 6, 32, 64], window_frames=32, full_windows=2, seed=9)
    assert [(bucket.longest, bucket.rows) for bucket in batches.buckets] == [(32, 2), (9, 4)]
    assert [batches[n]["clip"].tolist() for n in range(5)] == [
        [6, 1],
        [3, 2, 5, 0],
        [7, 4],
        [7, 1],
        [7, 6],
    ]


def test_parts_of_a_batch_have_the_same_work():
    batches = batches_of(prompts(np.random.default_rng(3)), full_windows=16)
    for n in range(100):
        for parts in (2, 8, 16):
            shares = [batches[n][part::parts]["frames"] for part in range(parts)]
            assert min(len(share) for share in shares) >= 16 // parts
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
            work = [int(share.max()) for share in shares]
            assert min(work) >= 0.7 * max(work)


def test_windows_that_cost_the_same_steps_are_of_one_bucket():
    """A pattern of fixed length takes as long for a short clip: no more of them fit."""
    batches = batches_of(digits(np.random.default_rng(0)), steps=lambda frames: 700)
    assert len(batches.buckets) == 1
    assert all(len(batches[n]) == 16 for n in range(20))


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.7, 0.3), (0.05, 0.95), (0.2, 0.5, 0.3)])
@pytest.mark.parametrize("windows", ["full", "short"])
def test_stores_have_their_shares_of_the_frames(shares, windows):
    rng = np.random.default_rng(5)
    lengths = [
        np.full(40 * 3**i, 400) if windows == "full" else prompts(rng, 100 * 3**i)
        for i in range(len(shares))
    ]
    batches = batches_of(lengths, shares=shares)
    window = np.concatenate([batches[n] for n in range(400)])
    assert set(np.concatenate([b["store"] for b in (batches[0], batches[1])])) == set(
        range(len(shares))
    )
    for first, last in ((0, 40), (100, 140), (0, 400)):
        some = np.concatenate([batches[n] for n in range(first, last)])
        frames = np.bincount(some["store"], some["frames"], len(shares))
        found = frames / frames.sum()
        # Of full windows exactly; of short clips, as exactly as a bucket's turn comes.
        close = 1 / len(some) if windows == "full" else 0.02
        assert np.abs(found - shares).max() <= close + 1e-9, (first, last)
    # Each store in passes of its own: every slot of it about as often. A batch of a bucket that is
    # rare in a small store goes over its few clips more than once.
    for store, part in enumerate(lengths):
        mine = window[window["store"] == store]
        seen = np.bincount(mine["clip"], minlength=len(part)) / -(-part // WINDOW_FRAMES)
        assert seen.max() - seen.min() <= 4
        assert seen.mean() == pytest.approx(400 * batches.passes[store], abs=0.7)


def test_a_mix_of_one_is_the_store_alone():
    lengths = prompts(np.random.default_rng(6))
    alone, mixed = batches_of(lengths), batches_of([lengths], shares=(1.0,))
    assert all(np.array_equal(alone[n], mixed[n]) for n in range(50))


def test_fewest_buckets_against_all_divisions():
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights = rng.integers(0, 4, 9).astype(float)
        weights[0] = 0
        weights[int(rng.integers(1, 9))] += 1
        present = np.flatnonzero(weights)
        frames = (weights * np.arange(9)).sum()
        least = {}
        for chosen in range(2 ** (len(present) - 1)):
            ends = [x for i, x in enumerate(present[:-1]) if chosen >> i & 1] + [present[-1]]
            padded = sum(weights[a + 1 : b + 1].sum() * b for a, b in pairwise([0, *ends]))
            least[len(ends)] = min(padded, least.get(len(ends), np.inf))
        bounds = divide_lengths(weights, 0.1)
        assert bounds == sorted(bounds, reverse=True) and bounds[0] == present[-1]
        padded = sum(weights[a + 1 : b + 1].sum() * b for b, a in pairwise([*bounds, 0]))
        assert padded == least[len(bounds)] and frames >= 0.9 * padded
        assert all(frames < 0.9 * x for count, x in least.items() if count < len(bounds))


def test_many_lengths_are_distinguished_coarsely():
    weights = np.ones(30_001)
    weights[:2000] = 0
    bounds = divide_lengths(weights, 0.08)
    assert bounds[0] == 30_000 and 10 < len(bounds) < 30


def test_lengths_of_a_pass():
    counts = window_lengths(np.array([1, 3, 8, 9, 16, 17]), 8)
    assert counts.tolist() == [0, 1, 0, 1, 0, 0, 0, 0, 1 + 2 + 2 + 3]


def test_validation_takes_every_frame_once_however_it_is_divided():
    rng = np.random.default_rng(0)
    for parts in (1, 2, 3):
        lengths = [rng.integers(1, 700, 30), rng.integers(1, 40, 100)]
        seen = []
        for part in range(parts):
            for batch in validation_batches(
                [spans(x) for x in lengths], 320, 4, delayed, part, parts
            ):
                assert len(batch) * delayed(int(batch["frames"][0])) <= 4 * delayed(320)
                assert (np.diff(batch["frames"]) <= 0).all()
                for store, clip, start, frames in batch.tolist():
                    assert 1 <= frames <= 320
                    seen += [(store, clip, t) for t in range(start, start + frames)]
        assert len(seen) == len(set(seen)) == sum(int(x.sum()) for x in lengths)


def test_validation_where_a_store_holds_nothing_out():
    (batch,) = validation_batches([spans([]), spans([5])], 8, 4, delayed)
    assert batch.tolist() == [(1, 0, 0, 5)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_change_nothing(make_store, random_clips, num_workers):
    store = make_store(random_clips([5, 30, 100, 64, 7, 9]), num_shards=2)
    batches = TrainingBatches([spans(store.frames)], 16, 3, delayed, seed=7)
    reader = WindowReader([store], 3, 16)
    sampler = StepSampler(batches.__getitem__, start_batch=2, num_batches=9)
    loader = DataLoader(reader, batch_size=None, sampler=sampler, num_workers=num_workers)
    served = list(loader)
    assert len(served) == 7 and len(loader) == 9
    for n, batch in enumerate(served, start=2):
        for key, value in reader[batches[n]].items():
            assert np.array_equal(value, batch[key])


def test_going_on_is_a_matter_of_the_start():
    whole = list(StepSampler(lambda n: n * n, num_batches=10))
    for start in range(11):
        sampler = StepSampler(lambda n: n * n, start_batch=start, num_batches=10)
        assert list(sampler) == whole[start:] and len(sampler) == 10


def test_wrong_numbers():
    for make in (
        lambda: batches_of([4], window_frames=0),
        lambda: batches_of([4], full_windows=0),
        lambda: batches_of([4], seed=-1),
        lambda: batches_of([4], seed=2**64),
        lambda: TrainingBatches([spans([])], 8, 1, delayed, 0),
        lambda: TrainingBatches([], 8, 1, delayed, 0),
        lambda: validation_batches([spans([])], 8, 1, delayed),
        lambda: validation_batches([spans([4])], 0, 1, delayed),
        lambda: StepSampler(lambda n: n, start_batch=2, num_batches=1),
    ):
        with pytest.raises(ValueError):
            make()
    assert Counter(batches_of([4], seed=2**64 - 1)[0]["clip"].tolist()) == {0: 16}
