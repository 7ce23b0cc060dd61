"""Choosing, decoding and comparing clips; the table and the page of what was found."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from audiolm.batches.splits import spans_of
from audiolm.codec import EncodecCodec
from audiolm.evaluation.clips import choose_windows, code_usage, measure_clips, read_windows
from audiolm.evaluation.comparison import Comparison, describe_runs
from audiolm.evaluation.memorisation import SharedRun
from audiolm.evaluation.page import plot_page
from audiolm.evaluation.table import evaluation_table, flat_numbers

RATE = 800 / 12  # frames a second of the tiny codec


def random_codes(count: int, frames: int, seed: int, low: int = 0) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(low, 32, (4, frames), generator=rng) for _ in range(count)]


@pytest.fixture(scope="module")
def codec(make_tiny_codec: Callable[..., EncodecCodec]) -> EncodecCodec:
    return make_tiny_codec()


@pytest.fixture(scope="module")
def compared(codec: EncodecCodec) -> Comparison:
    validation, *training = (measure_clips(random_codes(6, 60, seed), codec) for seed in range(4))
    return Comparison(validation, training, codec)


def test_real_clips_are_near_and_others_far(codec: EncodecCodec, compared: Comparison) -> None:
    alike, unlike = (
        compared.metrics(measure_clips(codes, codec), 60, end_token=False)
        for codes in (random_codes(6, 60, seed=7), random_codes(6, 60, seed=7, low=28))
    )
    for name in ("latents", "log_mel"):
        assert alike["frechet"][name]["generated"] < 2 * alike["frechet"][name]["training"]
        assert unlike["frechet"][name]["generated"] > 2 * unlike["frechet"][name]["training"]
    sets = alike["frechet"]["latents"]["training_sets"]
    assert len(sets) == 3 and sorted(sets)[1] == alike["frechet"]["latents"]["training"]
    same = compared.metrics(compared.validation, 60, end_token=False)
    assert same["frechet"]["latents"]["generated"] == pytest.approx(0, abs=1e-6)
    assert unlike["codes_used"]["generated"] == [4 / 32] * 4
    assert alike["ended"] is None


def test_samples_that_end_and_samples_that_fail(codec: EncodecCodec, compared: Comparison) -> None:
    """One that ended at once, one short, one cut, one that is stuck on a code."""
    codes = [torch.empty(4, 0, dtype=torch.long), *random_codes(1, 30, 3), *random_codes(1, 60, 4)]
    codes.append(torch.full((4, 55), 7))
    metrics = compared.metrics(measure_clips(codes, codec), 60, end_token=True)
    assert metrics["ended"] == 0.75
    assert metrics["seconds"]["generated"]["median"] == pytest.approx((30 + 55) / 2 / RATE)
    assert metrics["loop"]["generated"] == pytest.approx(1 / 3)  # of those with sound
    assert metrics["num_clips"] == {"generated": 4, "validation": 6, "training": 6}
    nothing = compared.metrics(measure_clips(codes[:1], codec), 60, end_token=True)
    assert nothing["frechet"]["latents"]["generated"] is None
    assert nothing["loop"]["generated"] == 0


def test_too_few_frames_of_real_clips_leave_only_the_distance_out(codec: EncodecCodec) -> None:
    short = measure_clips(random_codes(1, 3, 0), codec)
    metrics = Comparison(short, [short], codec).metrics(short, 9, end_token=True)
    for distances in metrics["frechet"].values():
        assert distances == {"generated": None, "training": None, "training_sets": []}
    assert metrics["ended"] == 1.0 and metrics["seconds"]["generated"]["median"] > 0


def test_usage() -> None:
    codes = [torch.tensor([[0, 1, 2, 3], [5, 5, 5, 5]]), torch.tensor([[0, 1], [5, 5]])]
    used, perplexity = code_usage(codes, 8)
    assert used.tolist() == [0.5, 1 / 8]
    p = np.array([2, 2, 1, 1]) / 6
    assert perplexity == pytest.approx([math.exp(-(p * np.log(p)).sum()), 1])


def test_windows_are_of_different_clips(make_store: Any, random_clips: Any) -> None:
    store = make_store(random_clips([10 * (i + 1) for i in range(10)]))
    spans = spans_of(range(10), 0, store.frames)
    windows = choose_windows([spans], 5, 35)
    assert len(set(windows["clip"].tolist())) == 5
    assert windows["frames"].tolist() == [min(35, 10 * (c + 1)) for c in windows["clip"]]
    assert np.array_equal(windows, choose_windows([spans], 5, 35))
    for window, codes in zip(windows.tolist(), read_windows([store], windows), strict=True):
        assert np.array_equal(codes, store.codes(window[1])[:, : window[3]])


def test_few_long_clips_are_cut() -> None:
    windows = choose_windows([spans_of([0], [20], [80])], 3, 20)
    assert len(set(windows["start"].tolist())) == 3 and windows["frames"].tolist() == [20] * 3
    assert set(windows["start"].tolist()) < {20, 40, 60, 80}
    assert len(choose_windows([spans_of([0], [20], [80])], 9, 20)) == 4  # all there are
    assert len(choose_windows([spans_of([], 0, [])], 9, 20)) == 0


def test_windows_of_several_stores(make_store: Any, random_clips: Any) -> None:
    stores = [make_store(random_clips([9, 9])), make_store(random_clips([9, 9], seed=1))]
    spans = [spans_of([1], 0, [9]), spans_of([0, 1], 0, [9, 9])]
    windows = choose_windows(spans, 3, 5)
    clips = [(store, clip) for store, clip, _, _ in windows.tolist()]
    assert sorted(clips) == [(0, 1), (1, 0), (1, 1)]
    for (store, clip), codes in zip(clips, read_windows(stores, windows), strict=True):
        assert np.array_equal(codes, stores[store].read(clip, 0, 5))


@pytest.fixture
def metrics(codec: EncodecCodec, compared: Comparison, make_store: Any) -> dict[str, Any]:
    """As scripts/evaluate.py gathers them."""
    store = make_store({"one.wav": np.zeros((4, 90), int)}, size=32)
    generated = measure_clips(random_codes(2, 50, 5), codec)
    runs = [SharedRun(20, 5, 0, 0, 40), None]
    described = describe_runs(runs, generated, [store])
    bins = [{"codes": 50 * (i % 2), "confidence": i / 15, "right": i / 15} for i in range(15)]
    row = {"model": 1.0, "bigram": 1.5, "unigram": 2.0, "uniform": 3.4, "calibration_error": 0.01}
    return {
        "checkpoint": "best.ckpt",
        "step": 7,
        "stores": ["tokens"],
        "validation_codes": 4000,
        "validation_seconds": 15.0,
        "bits_per_second": 500.0,
        "codec_bits_per_second": 1333.3,
        "baselines_bits_per_second": {"bigram": 700.0, "unigram": 900.0, "uniform": 1333.3},
        "nats_per_code": [{"codebook": k, **row} for k in (0, 1, 2, 3, "mean")],
        "calibration": {"all": bins, "codebooks": [bins] * 4},
        "clips": {
            "most_seconds": 0.9,
            **compared.metrics(generated, 60, end_token=True),
            "clip_seconds": {k: [0.9, 0.8] for k in ("generated", "validation", "training")},
        },
        "memorisation": {
            name: {"generated": described, "validation": described}
            for name in ("all_codebooks", "codebook_0")
        },
        "published": {"dnsmos": {"generated": 3.1, "validation": 3.5, "training": 3.4}},
    }


def test_where_a_run_is_from(metrics: dict[str, Any]) -> None:
    shared, alone = metrics["memorisation"]["all_codebooks"]["generated"]
    assert shared["clip"] == "one.wav" and Path(shared["store"]).name.startswith("made")
    assert shared["seconds"] == pytest.approx(20 / RATE)
    assert shared["at_seconds"] == pytest.approx(5 / RATE)
    assert shared["clip_at_seconds"] == pytest.approx(40 / RATE)
    assert alone == {"seconds": 0.0, "of_seconds": pytest.approx(50 / RATE)}


def test_the_table_holds_what_was_found(metrics: dict[str, Any]) -> None:
    table = evaluation_table(metrics)
    for words in (
        "4,000 validation codes, 15.0 s, of tokens",
        "model 500; baselines: bigram 700, unigram 900, uniform 1333; codec 1333",
        "in 37.5% of the codec's bits",
        "2 samples of at most 0.9 s, beside clips of validation (6) and of training (3 x 6) after",
        "ended by itself",
        "sample 0 from 0.07 s on: one.wav from 0.60 s on",
        "dnsmos",
    ):
        assert words in table
    assert max(map(len, table.splitlines())) <= 110
    without = {k: v for k, v in metrics.items() if k not in ("clips", "memorisation", "published")}
    assert "samples" not in evaluation_table(without)


def test_numbers_for_a_tracker(metrics: dict[str, Any]) -> None:
    flat = flat_numbers(metrics, "evaluation")
    assert flat["evaluation/bits_per_second"] == 500
    assert flat["evaluation/nats_per_code/mean/bigram"] == 1.5
    assert flat["evaluation/nats_per_code/k2/model"] == 1.0
    assert flat["evaluation/clips/silence/limit"] >= 0
    assert "evaluation/clips/perplexity/generated/k3" in flat
    assert all(isinstance(value, int | float) for value in flat.values())


def test_the_page_is_plotted_whole_or_not(metrics: dict[str, Any], tmp_path: Path) -> None:
    import matplotlib.image

    plot_page(tmp_path / "all.png", metrics, "a $ title")
    alone = {k: v for k, v in metrics.items() if k not in ("clips", "memorisation")}
    plot_page(tmp_path / "likelihood.png", alone, "title")
    whole, part = (matplotlib.image.imread(tmp_path / f) for f in ("all.png", "likelihood.png"))
    assert whole.shape[0] == 3 * part.shape[0] and whole.std() > 0.05
    with pytest.raises(OSError):
        plot_page(tmp_path / "all.png" / "x.png", alone, "title")
