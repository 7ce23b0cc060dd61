"""Batches as a training gets them: the same for every way to divide, read ahead and resume."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from audiolm.batches.windows import WindowBatch
from audiolm.benchmarks.large_store import make_large_store
from audiolm.codec import EncodecCodec
from audiolm.tokens import Mix, TokenStore, count_codes, unigram_cross_entropy
from audiolm.training import TokenData, describe_plan, measure_baselines

from ..conftest import CONTEXT, MODEL, make_data, make_module, make_trainer


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory, tiny_codec: EncodecCodec) -> Mix:
    """Two stores of random codes, clips of 3 to 17 frames and of 10 to 60."""
    folder = tmp_path_factory.mktemp("stores")
    for name, seconds in (("short", (0.06, 0.34)), ("long", (0.2, 1.2))):
        make_large_store(folder / name, 0.006, *seconds, tiny_codec.identity())
    return Mix([TokenStore(folder / "short"), TokenStore(folder / "long")], [3, 1])


def serve(
    data: TokenData,
    first: int = 0,
    last: int = 12,
    rank: int = 0,
    ranks: int = 1,
    accumulate: int = 1,
) -> list[Any]:
    """Batches of the steps first .. last - 1 in one process of several."""
    data.trainer = SimpleNamespace(  # type: ignore[assignment]
        global_rank=rank,
        world_size=ranks,
        accumulate_grad_batches=accumulate,
        global_step=first,
        max_steps=last,
        overfit_batches=0,
    )
    return list(data.train_dataloader())


def windows(batch: Any) -> list[tuple[tuple[int, ...], ...]]:
    """The batch's clips, without padding, in an order of their own."""
    rows = zip(batch["codes"], batch["lengths"].tolist(), strict=True)
    return sorted(tuple(map(tuple, codes[:, :length].tolist())) for codes, length in rows)


def mixed_data(mix: Mix, **overrides: Any) -> TokenData:
    return TokenData(mix, **({"context_frames": CONTEXT, "batch_size": 4} | overrides))


def equal(one: Any, two: Any) -> bool:
    return bool(
        torch.equal(one["codes"], two["codes"]) and torch.equal(one["lengths"], two["lengths"])
    )


def test_batches_from_a_step_on_are_those_of_the_whole_run(mix: Mix) -> None:
    for accumulate in (1, 2):
        whole = serve(mixed_data(mix), accumulate=accumulate)
        assert len(whole) == 12 * accumulate
        for first in (1, 5, 11):
            rest = serve(mixed_data(mix), first, accumulate=accumulate)
            expected = whole[first * accumulate :]
            assert all(equal(a, b) for a, b in zip(rest, expected, strict=True))
    other = serve(mixed_data(mix, seed=1))
    assert not any(equal(a, b) for a, b in zip(other, serve(mixed_data(mix)), strict=True))


def test_workers_change_nothing(mix: Mix) -> None:
    alone, ahead = (serve(mixed_data(mix, num_workers=workers)) for workers in (0, 2))
    assert all(equal(a, b) for a, b in zip(alone, ahead, strict=True))
    assert len({batch["codes"].shape for batch in alone}) > 1


@pytest.mark.parametrize("ranks, accumulate, size", [(2, 1, 8), (1, 2, 8), (2, 4, 2), (16, 1, 1)])
def test_a_step_is_the_same_however_it_is_divided(
    mix: Mix, ranks: int, accumulate: int, size: int
) -> None:
    whole = serve(mixed_data(mix, batch_size=16))
    parts = [
        serve(mixed_data(mix, batch_size=size), rank=rank, ranks=ranks, accumulate=accumulate)
        for rank in range(ranks)
    ]
    for step, batch in enumerate(whole):
        batches_of_ranks = [
            part[step * accumulate + turn] for part in parts for turn in range(accumulate)
        ]
        assert all(len(one["lengths"]) for one in batches_of_ranks)
        assert sorted(window for one in batches_of_ranks for window in windows(one)) == windows(
            batch
        )
        # What the loss is divided by is that of the whole, once each is averaged.
        assert all(one["full"] * ranks * accumulate == batch["full"] for one in batches_of_ranks)


def test_validation_takes_every_validation_frame_once(mix: Mix) -> None:
    expected = None
    for ranks, size in ((1, 4), (1, 64), (2, 4), (3, 1)):
        seen = []
        for rank in range(ranks):
            data = mixed_data(mix, batch_size=size, valid_fraction=0.2)
            serve(data, 0, 1, rank, ranks)
            for batch in data.val_dataloader():
                seen += windows(batch)
        assert sum(len(window[0]) for window in seen) == data.valid_frames
        expected = expected or sorted(seen)
        assert sorted(seen) == expected


def batch_of(codes: torch.Tensor, lengths: torch.Tensor, full: int) -> WindowBatch:
    """For a model without end token and conditions."""
    ends = torch.zeros(len(codes), dtype=torch.bool)
    return {
        "codes": codes,
        "lengths": lengths,
        "reaches_end": ends,
        "conditions": {},
        "full": full,
    }


def test_a_row_knows_nothing_of_its_neighbours(tiny_codec: EncodecCodec, store: TokenStore) -> None:
    """Nor of the padding after it."""
    for pattern in ("delay", "flatten", "coarse_first"):
        module = make_module(tiny_codec, pattern=pattern).eval()
        data = make_data(store, pattern=pattern, batch_size=8)
        checked = 0
        for batch in serve(data, 0, 6):
            nats, counts = module.predict(batch).nats()
            alone = []
            for codes, length in zip(batch["codes"], batch["lengths"], strict=True):
                row = batch_of(codes[None, :, :length], length[None], 1)
                alone.append(module.predict(row).nats())
                checked += int(length) < batch["codes"].shape[2]
            torch.testing.assert_close(sum(x[0] for x in alone), nats, rtol=1e-5, atol=1e-4)
            assert torch.equal(sum(x[1] for x in alone), counts)  # type: ignore[arg-type]
        assert checked


def test_a_row_has_the_same_logits_beside_any_other(tiny_codec: EncodecCodec) -> None:
    model = make_module(tiny_codec).eval().model
    steps = torch.randint(0, 32, (3, 3, CONTEXT + 2), generator=torch.Generator().manual_seed(0))
    logits = model(steps)
    changed = steps.clone()
    changed[0], changed[2, :, 5:] = 7, model.special
    again = model(changed)
    torch.testing.assert_close(again[1], logits[1])
    torch.testing.assert_close(again[2, :, :5], logits[2, :, :5])
    assert not torch.allclose(again[0], logits[0])


def test_every_code_weighs_the_same_in_whatever_batch(
    tiny_codec: EncodecCodec, store: TokenStore
) -> None:
    """The gradient of a code does not depend on how full its batch is, or how it is divided."""
    module = make_module(tiny_codec, model={**MODEL, "dropout": 0.0})
    module.log = lambda *args, **kwargs: None  # type: ignore[method-assign]
    (batch,) = serve(make_data(store, batch_size=8), 0, 1)
    codes, lengths = batch["codes"], batch["lengths"]

    def gradient(rows: list[slice], full: int) -> torch.Tensor:
        module.zero_grad()
        for some in rows:
            part = batch_of(codes[some], lengths[some], full)
            (module.training_step(part, 0) / len(rows)).backward()
        grad = module.model.heads.weight.grad
        assert grad is not None
        return grad.clone()

    whole = gradient([slice(None)], batch["full"])
    parts = gradient([slice(0, 1), slice(1, 3), slice(3, None)], batch["full"] // 3)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-7)


def test_a_pattern_of_fixed_length_gets_no_more_clips_than_full_windows(mix: Mix) -> None:
    for batch in serve(mixed_data(mix, pattern="coarse_first")):
        assert len(batch["lengths"]) == 4
    assert any(len(batch["lengths"]) > 4 for batch in serve(mixed_data(mix)))


def test_a_mix_is_served_in_its_shares(mix: Mix) -> None:
    batches = mixed_data(mix).training_batches()
    served = np.concatenate([batches[n] for n in range(500)])
    frames = np.bincount(served["store"], served["frames"])
    assert frames / frames.sum() == pytest.approx(mix.shares, abs=0.005)


def test_baselines_of_a_mix_are_those_of_what_is_trained_on(tmp_path: Path) -> None:
    """Weights change the table that is learnt; all validation codes count the same."""
    stores = []
    for name, hours in (("a", 0.02), ("b", 0.01)):
        make_large_store(tmp_path / name, hours, 0.2, 0.2, {"fingerprint": "random"})
        stores.append(TokenStore(tmp_path / name))
    data = TokenData(Mix(stores, [0.9, 0.1]), CONTEXT, valid_fraction=0.5)
    train, valid = (
        [
            count_codes(store, getattr(split, part)).counts
            for store, split in zip(stores, data.splits, strict=True)
        ]
        for part in ("train", "valid")
    )
    frames = [int(counts[0].sum()) for counts in train]
    mixed = sum(w * c / n for w, c, n in zip((0.9, 0.1), train, frames, strict=True)) * sum(frames)
    expected = unigram_cross_entropy(mixed, valid[0] + valid[1])
    assert measure_baselines(data).unigram == pytest.approx(expected, abs=1e-4)


def test_baselines_of_one_store_are_exact(store: TokenStore) -> None:
    data = make_data(store)
    (split,) = data.splits
    train, valid = (count_codes(store, part).counts for part in (split.train, split.valid))
    found = measure_baselines(data).unigram.tolist()
    assert found == unigram_cross_entropy(train, valid).tolist()


def plan(data: TokenData, codec: EncodecCodec, folder: Path) -> list[str]:
    trainer = make_trainer(folder, max_steps=100)
    text = describe_plan(make_module(codec), data, measure_baselines(data), trainer)
    return text.splitlines()


def test_the_plan_of_a_mix_names_each_store(
    mix: Mix, tiny_codec: EncodecCodec, tmp_path: Path
) -> None:
    lines = plan(mixed_data(mix, valid_fraction=0.2), tiny_codec, tmp_path)
    stores = [line for line in lines if line.startswith("  store ")]
    for store, share, line in zip(mix.stores, ("75.0%", "25.0%"), stores, strict=True):
        assert f"{store.path}: {share} of the frames trained on, " in line
        assert line.endswith(" passes")
    assert sum(line.startswith("  train ") for line in lines) == 2
    assert sum(line.startswith("  validation ") for line in lines) == 2
    (run,) = (line for line in lines if line.startswith("  run "))
    assert run.startswith("  run         100 steps, 32-true")
    (buckets,) = (line for line in lines if line.startswith("  batches "))
    assert "length buckets" in buckets and "padding" in buckets


def test_the_plan_of_a_store(store: TokenStore, tiny_codec: EncodecCodec, tmp_path: Path) -> None:
    lines = plan(make_data(store), tiny_codec, tmp_path)
    assert not any(line.startswith(("  store ", "  test ")) for line in lines)
    assert any(" passes over the training clips" in line for line in lines)
    assert not any("groups" in line for line in lines)


def test_the_plan_counts_groups_and_names_test_clips(
    mix: Mix, tiny_codec: EncodecCodec, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(mix.stores[1].path, folder)
    (file,) = folder.glob("index-*.npy")
    index = np.load(file)
    index["split_hash"] = np.arange(len(index)) % 7 * np.uint64(2**61)
    index["split"] = np.where(np.arange(len(index)) % 7 == 3, 3, 0)
    np.save(file, index)
    data = TokenData(TokenStore(folder), CONTEXT, valid_fraction=0.2)
    lines = plan(data, tiny_codec, tmp_path)
    for name, groups, end in (
        ("train", 4, "codes"),
        ("validation", 2, "codes"),
        ("test", 1, "used"),
    ):
        (line,) = (line for line in lines if line.startswith(f"  {name} "))
        assert f" clips of {groups} group" in line and line.endswith(end)


def test_a_store_trains_from_nothing_but_its_folder(
    mix: Mix, tiny_codec: EncodecCodec, tmp_path: Path
) -> None:
    """Lightning's own loop takes the batches as they are, mixed and of any shape."""
    codec = tiny_codec.identity() | {"num_codebooks": 2, "codebook_size": 256}
    module = make_module(SimpleNamespace(identity=lambda: codec))  # type: ignore[arg-type]
    trainer = make_trainer(tmp_path, max_steps=6, val_check_interval=3)
    trainer.fit(module, mixed_data(mix))
    assert trainer.global_step == 6
    assert float(trainer.callback_metrics["valid/nats_per_code"]) > 0
