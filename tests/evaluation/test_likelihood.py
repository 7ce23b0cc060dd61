"""Validation metrics: by brute force on a model so small that every clip can be written down."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from audiolm.evaluation.likelihood import BINS, Likelihood
from audiolm.model.language_model import AudioLM
from audiolm.model.loss import lay_out
from audiolm.model.patterns import interleave, make_pattern, num_steps

K, V = 2, 3


def every_clip(frames: int) -> Tensor:
    """(V ** (K * T), K, T)."""
    cells = itertools.product(range(V), repeat=K * frames)
    return torch.tensor(list(cells)).view(-1, K, frames)


def tiny_model(positions: Tensor, end_token: bool = False) -> AudioLM:
    torch.manual_seed(0)
    model = AudioLM(K, V, num_steps(positions), 8, 1, 2, end_token=end_token)
    torch.nn.init.normal_(model.heads.weight, std=1.0)  # far from uniform
    return model.eval().requires_grad_(False)


def nats_by_hand(model: AudioLM, positions: Tensor, steps: Tensor) -> list[float]:
    """Of each codebook of steps (K, S): cell by cell, from the steps before it alone."""
    nats = [0.0] * K
    for k, line in enumerate(positions.tolist()):
        for s in line:
            p = model(steps[None, :, : s + 1])[0, k, s].double().softmax(dim=-1)
            nats[k] -= math.log(float(p[steps[k, s]]))
    return nats


@pytest.mark.parametrize("pattern", ["parallel", "delay", "flatten", "coarse_first"])
@pytest.mark.parametrize("frames", [1, 2, 3])
def test_probabilities_of_all_clips_add_up_and_are_the_models(pattern: str, frames: int) -> None:
    positions = make_pattern(pattern, K).positions(frames)
    model = tiny_model(positions)
    clips = every_clip(frames)
    steps = interleave(clips, positions, model.special)
    mask = steps != model.special
    logits = model(steps)
    probabilities, per_codebook = [], np.zeros(K)
    for row in range(len(clips)):
        alone = Likelihood(K)
        alone.add(logits[row : row + 1], steps[row : row + 1], mask[row : row + 1])
        if frames < 3 or row % 100 == 0:
            assert alone.nats == pytest.approx(nats_by_hand(model, positions, steps[row]), rel=1e-4)
        probabilities.append(math.exp(-alone.nats.sum()))
        per_codebook += alone.nats
        assert alone.counts.sum(axis=1).tolist() == [frames, frames]
    assert sum(probabilities) == pytest.approx(1, rel=1e-5)
    together = Likelihood(K)
    for some in torch.arange(len(clips)).split(100):  # batches of unlike size weigh alike
        together.add(logits[some], steps[some], mask[some])
    assert together.nats == pytest.approx(per_codebook, rel=1e-5)
    assert together.nats_per_code == pytest.approx(per_codebook / len(clips) / frames, rel=1e-5)
    assert together.mean_nats == pytest.approx(
        per_codebook.sum() / len(clips) / frames / K, rel=1e-5
    )
    seconds = len(clips) * frames / 50
    assert together.bits_per_second(seconds) == pytest.approx(
        together.mean_nats * K * 50 / math.log(2)
    )


@pytest.mark.parametrize("pattern", ["parallel", "delay", "flatten"])
def test_with_ends_the_clips_of_all_lengths_add_up(pattern: str) -> None:
    """Clips of no frame, of one and of two, and all that have three frames or more."""
    laid_out = make_pattern(pattern, K)
    model = tiny_model(laid_out.positions(4), end_token=True)
    total = 0.0
    for frames, reaches_end in ((1, True), (2, True), (3, False)):
        clips = every_clip(frames)
        steps, mask = lay_out(
            clips,
            torch.full((len(clips),), frames),
            torch.full((len(clips),), reaches_end),
            laid_out,
            3,
            model.special,
        )
        logits = model(steps)
        together = Likelihood(K)
        together.add(logits, steps, mask)
        counts = len(clips) * np.array([frames + reaches_end, frames])
        assert together.counts.sum(axis=1).tolist() == counts.tolist()
        for row in range(len(clips)):
            alone = Likelihood(K)
            alone.add(logits[row : row + 1], steps[row : row + 1], mask[row : row + 1])
            total += math.exp(-alone.nats.sum())
    at_once = float(model(steps)[0, 0, 0].softmax(dim=-1)[V])
    assert total + at_once == pytest.approx(1, rel=1e-5)


def sample(logits: Tensor, seed: int) -> Tensor:
    """Ids (B, K, S), each from its own distribution."""
    rng = torch.Generator().manual_seed(seed)
    flat = logits.softmax(dim=-1).reshape(-1, logits.shape[-1])
    return torch.multinomial(flat, 1, generator=rng).view(logits.shape[:-1])


def test_a_model_that_says_how_sure_it_may_be_is_calibrated() -> None:
    logits = 3 * torch.randn(1, 2, 200_000, 5, generator=torch.Generator().manual_seed(0))
    steps = sample(logits, 1)
    mask = torch.ones_like(steps, dtype=torch.bool)
    calibrated, sure = Likelihood(2), Likelihood(2)
    calibrated.add(logits, steps, mask)
    sure.add(3 * logits, steps, mask)
    errors, error = calibrated.calibration_error()
    assert error < 0.005 and (errors < 0.007).all()
    errors, error = sure.calibration_error()
    assert error > 0.1 and (errors > 0.1).all()
    # Too sure: where confidence is high, fewer are right.
    assert sure.right[0, -1] < 0.95 * sure.confidence[0, -1]
    share = calibrated.right[0, 8] / calibrated.counts[0, 8]
    assert 8 / BINS < calibrated.confidence[0, 8] / calibrated.counts[0, 8] <= 9 / BINS
    assert share == pytest.approx(8.5 / BINS, abs=0.02)


def test_opposite_errors_of_codebooks_cancel_in_their_total_only() -> None:
    """Confidence 0.7 in both; right always and in 40%."""
    logits = torch.tensor([0.7, 0.3]).log().expand(1, 2, 100, 2)
    steps = torch.zeros(1, 2, 100, dtype=torch.long)
    steps[0, 1, 40:] = 1
    found = Likelihood(2)
    found.add(logits, steps, torch.ones_like(steps, dtype=torch.bool))
    errors, error = found.calibration_error()
    assert errors == pytest.approx([0.3, 0.3], abs=1e-6) and error == pytest.approx(0, abs=1e-6)


def test_cells_outside_the_mask_count_nothing() -> None:
    logits = torch.randn(2, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    steps = sample(logits, 2)
    mask = torch.rand(2, 2, 5, generator=torch.Generator().manual_seed(3)) < 0.5
    some, other = Likelihood(2), Likelihood(2)
    some.add(logits, steps, mask)
    other.add(logits, steps.masked_fill(~mask, 99), mask)  # no id of a code
    assert np.array_equal(some.nats, other.nats)
    assert some.counts.sum(axis=1).tolist() == mask.sum(dim=(0, 2)).tolist()


def test_what_cannot_be_is_never_right_and_a_broken_model_is_named() -> None:
    logits = torch.zeros(1, 1, 3, 4)
    logits[..., 3] = -math.inf  # the end token, where it cannot follow
    steps = torch.zeros(1, 1, 3, dtype=torch.long)
    mask = torch.ones_like(steps, dtype=torch.bool)
    found = Likelihood(1)
    found.add(logits, steps, mask)
    assert found.mean_nats == pytest.approx(math.log(3))
    for bad in (logits + math.nan, logits.roll(1, -1)):  # the latter excludes what came
        with pytest.raises(FloatingPointError, match="take an earlier checkpoint"):
            Likelihood(1).add(bad, steps, mask)
