"""The Fréchet distance between two sets of features, each taken for a Gaussian.

    |m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2))

0 for equal means and covariances; in squared units of the features. Few frames make it too large:
it means something only beside the same distance between as many real clips.

Sources: Heusel et al. 2017, "GANs Trained by a Two Time-Scale Update Rule" (of images), Kilgour et
al. 2019, "Fréchet Audio Distance".

Letters: D features, T frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Gaussian:
    """mean: (D,). covariance: (D, D). Both float64."""

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]


def fit_gaussian(features: Sequence[Tensor]) -> Gaussian:
    """Mean and covariance of the frames of all clips, features (D, T) of each.

    Raises:
        ValueError: for no more frames than features, of which a covariance would be singular.
        FloatingPointError: for features that are not finite.
    """
    frames = torch.cat(list(features), dim=1).double().cpu().numpy() if features else np.empty(0)
    if frames.ndim != 2 or frames.shape[1] <= frames.shape[0]:
        have, need = (0, 1) if frames.ndim != 2 else (frames.shape[1], frames.shape[0])
        raise ValueError(
            f"{have} frames are too few for the covariance of {need} features, which takes more "
            f"than {need}; raise num_samples, duration or data.valid_fraction, or pass "
            f"num_samples=0"
        )
    if not np.isfinite(frames).all():
        raise FloatingPointError("features hold NaN or Inf: no distance can be computed")
    return Gaussian(frames.mean(axis=1), np.cov(frames).reshape(len(frames), len(frames)))


def frechet_distance(one: Gaussian, two: Gaussian) -> float:
    """The squared distance, never below 0."""
    values, vectors = np.linalg.eigh(one.covariance)
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    # C1 C2 and R C2 R, R^2 = C1, have the same eigenvalues; the latter is symmetric, which takes
    # no complex numbers and no care for matrices that are close to singular.
    common = np.linalg.eigvalsh(root @ two.covariance @ root).clip(min=0)
    spread = np.trace(one.covariance) + np.trace(two.covariance) - 2 * np.sqrt(common).sum()
    return max(0.0, float(np.square(one.mean - two.mean).sum() + spread))
