"""The plan has all there is to encode once, in batches of like length, in fair shares."""

from __future__ import annotations

import numpy as np
import pytest

from audiolm.datasets.checks.check import AUDIO
from audiolm.tokens.encoding.plan import Plan, make_plan, plan_batches
from audiolm.tokens.encoding.sections import Framing

FRAMING = Framing(8000, 1, 80, 1, 1, 1, length=500)


def some_audio(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    audio = np.zeros(count, AUDIO)
    audio["key"] = rng.integers(0, 2**63, count).astype(np.uint64) * 2
    audio["num_samples"] = rng.exponential(20_000, count).astype(np.int64) + 1
    audio["sample_rate"] = 8000
    return audio


def work(plan: Plan, owner: int | None = None) -> list[tuple[int, int]]:
    """(recording, section) of all items, or of a part's."""
    found = []
    for item, own in zip(plan.jobs, plan.owners, strict=True):
        if owner in (None, own):
            found += [(r, n) for r in item.recordings for n in item.sections or [0]]
    return sorted(found)


def test_batches_have_every_recording_once_are_bounded_and_of_similar_length():
    rng = np.random.default_rng(0)
    for _ in range(50):
        frames = rng.exponential(500, rng.integers(1, 1500)).astype(np.int64) + 1
        chosen = np.flatnonzero(rng.random(len(frames)) < 0.9)
        batches = list(plan_batches(frames, chosen, 2000))
        assert sorted(i for batch in batches for i in batch) == chosen.tolist()
        for batch in batches:
            assert len(batch) == 1 or frames[batch].sum() <= 2000
            assert (np.diff(frames[batch]) >= 0).all()


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7])
def test_parts_share_all_there_is_and_share_it_fairly(num_parts):
    for seed in range(5):
        plan = make_plan(some_audio(seed, 400), FRAMING, 20.0, num_parts)
        counts = [FRAMING.num_sections(int(n)) for n in plan.frames]
        everything = [(r, n) for r, count in enumerate(counts) for n in range(count)]
        assert work(plan) == everything
        shares = [work(plan, owner) for owner in range(num_parts)]
        assert sorted(pair for share in shares for pair in share) == everything
        done = [
            sum(int(min(FRAMING.length, plan.frames[r] - n * FRAMING.length)) for r, n in share)
            for share in shares
        ]
        assert max(done) - min(done) <= max(2000, plan.frames.sum() / num_parts / 8)


def test_one_long_recording_is_shared():
    audio = some_audio(0, 1)
    audio["num_samples"] = 8000 * 3600
    plan = make_plan(audio, FRAMING, 20.0, 2)
    assert [len(work(plan, owner)) for owner in (0, 1)] == [360, 360]
    # Each part reads whole runs, not every other section.
    assert len(plan.jobs) == 16 and {len(item.sections) for item in plan.jobs} == {45}


def test_the_plan_is_of_the_audio_alone():
    audio = some_audio(0, 50)
    plan = make_plan(audio, FRAMING, 20.0, 2)
    moved = audio.copy()
    moved["size"] = moved["mtime_ns"] = 77
    same = make_plan(moved, FRAMING, 20.0, 2)
    assert same.name == plan.name and same.jobs == plan.jobs
    for other in (
        make_plan(audio[1:], FRAMING, 20.0, 2),
        make_plan(audio, FRAMING._replace(length=400), 20.0, 2),
        make_plan(audio, FRAMING, 20.0, 3),
        make_plan(audio, FRAMING, 10.0, 2),
    ):
        assert other.name != plan.name


def test_duplicates_are_planned_once():
    audio = some_audio(0, 30)
    audio[20:] = audio[:10]
    plan = make_plan(audio, FRAMING, 20.0, 1)
    assert plan.clips.tolist() == list(range(20))
    assert plan.keys.tolist() == audio["key"][:20].tolist()
