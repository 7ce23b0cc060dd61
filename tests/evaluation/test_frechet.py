"""The Fréchet distance, against its closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from audiolm.evaluation.frechet import Gaussian, fit_gaussian, frechet_distance


def random_gaussian(seed: int, size: int = 6) -> Gaussian:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    return Gaussian(rng.normal(size=size), root @ root.T)


def test_the_same_is_at_no_distance() -> None:
    for seed in range(5):
        one = random_gaussian(seed)
        assert frechet_distance(one, one) == pytest.approx(0, abs=1e-6)


def test_a_shift_of_the_mean_is_its_square() -> None:
    one = random_gaussian(0)
    moved = Gaussian(one.mean + np.array([3, 0, 4, 0, 0, 0]), one.covariance)
    assert frechet_distance(one, moved) == pytest.approx(25)
    assert frechet_distance(moved, one) == pytest.approx(25)


def test_of_independent_features_it_is_that_of_the_deviations() -> None:
    """Of N(0, s^2) and N(0, t^2) it is (s - t)^2; covariances that share their axes add it up."""
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    s, t = rng.uniform(0, 3, 4), rng.uniform(0, 3, 4)
    one, two = (Gaussian(np.zeros(4), (axes * d**2) @ axes.T) for d in (s, t))
    assert frechet_distance(one, two) == pytest.approx(((s - t) ** 2).sum())


def test_of_any_covariances_it_has_the_root_of_the_product() -> None:
    one, two = random_gaussian(2), random_gaussian(3)
    values = np.linalg.eigvals(one.covariance @ two.covariance)
    trace = np.trace(one.covariance + two.covariance) - 2 * np.sqrt(values.astype(complex)).sum()
    expected = ((one.mean - two.mean) ** 2).sum() + trace.real
    assert frechet_distance(one, two) == pytest.approx(expected)
    assert frechet_distance(two, one) == pytest.approx(expected)


def test_features_without_spread_are_no_trouble() -> None:
    flat = Gaussian(np.zeros(3), np.zeros((3, 3)))
    one = Gaussian(np.zeros(3), np.diag([1.0, 4.0, 0.0]))
    assert frechet_distance(flat, one) == pytest.approx(5)
    assert frechet_distance(flat, flat) == 0


def test_mean_and_covariance_are_of_all_frames_of_all_clips() -> None:
    frames = torch.randn(3, 900, generator=torch.Generator().manual_seed(0))
    clips: list[Tensor] = [frames[:, :1], frames[:, 1:200], frames[:, 200:]]
    found = fit_gaussian(clips)
    assert found.mean == pytest.approx(frames.double().mean(dim=1).numpy())
    assert found.covariance == pytest.approx(np.cov(frames.double().numpy()))


def test_many_frames_of_known_gaussians_come_close() -> None:
    rng = torch.Generator().manual_seed(0)
    one = fit_gaussian([torch.randn(5, 200_000, generator=rng)])
    two = fit_gaussian([2 * torch.randn(5, 200_000, generator=rng) + 1])
    assert frechet_distance(one, two) == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize("clips", [[], [torch.ones(4, 4)], [torch.ones(4, 2), torch.ones(4, 1)]])
def test_too_few_frames_in_one_line(clips: list[Tensor]) -> None:
    with pytest.raises(ValueError, match=r"\d frames are too few .*; raise num_samples") as error:
        fit_gaussian(clips)
    assert "\n" not in str(error.value)


def test_broken_features() -> None:
    with pytest.raises(FloatingPointError, match="NaN or Inf"):
        fit_gaussian([torch.full((2, 9), torch.nan)])
