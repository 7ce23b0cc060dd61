"""How probable a model finds validation codes, and whether it is as often right as it is sure.

Letters: B batch, K codebooks, S sequence steps, V' outputs of a codebook: its V codes and, where
the model has one, the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BINS = 15
"""Of confidence, equally wide, as in Guo et al. 2017."""
CHUNK = 2**22
"""Logits whose softmax is computed at a time."""


class Likelihood:
    """Sums over batches, of which every metric is a quotient: so every code weighs the same.

    A code is right where it is the model's most probable one, and the probability of that one is
    the model's confidence. In a bin of like confidence the share of right codes should be it.

    Source of the calibration: Guo et al. 2017, "On Calibration of Modern Neural Networks".

    Attributes:
        nats: (K,) float64, summed.
        counts: (K, BINS) int64, codes by confidence: bin i is that of (i / BINS, (i + 1) / BINS].
        confidence: (K, BINS) float64, summed.
        right: (K, BINS) int64, how many.
    """

    def __init__(self, num_codebooks: int) -> None:
        self.nats = np.zeros(num_codebooks)
        self.counts = np.zeros((num_codebooks, BINS), np.int64)
        self.confidence = np.zeros((num_codebooks, BINS))
        self.right = np.zeros((num_codebooks, BINS), np.int64)

    def add(self, logits: Tensor, steps: Tensor, mask: Tensor) -> None:
        """Count a batch.

        Args:
            logits: (B, K, S, V'), aligned with `steps`; -inf for what cannot be.
            steps: (B, K, S) ids.
            mask: (B, K, S) boolean, the cells that count.

        Raises:
            FloatingPointError: for a loss that is not finite.
        """
        for k in range(logits.shape[1]):
            cells = mask[:, k]
            rows, targets = logits[:, k][cells], steps[:, k][cells]
            size = max(1, CHUNK // logits.shape[3])
            for some, own in zip(torch.split(rows, size), torch.split(targets, size), strict=True):
                self._add(k, some.float().log_softmax(dim=-1), own)
        if not np.isfinite(self.nats).all():
            raise FloatingPointError(
                f"the validation loss is {self.nats.sum()}: the checkpoint's weights are not "
                f"finite, or a code has no probability at all; take an earlier checkpoint"
            )

    def _add(self, k: int, log_p: Tensor, targets: Tensor) -> None:
        self.nats[k] -= float(log_p.gather(1, targets[:, None]).double().sum())
        best, codes = log_p.max(dim=-1)
        confidence = best.exp().double().clamp(max=1.0)
        bins = ((confidence * BINS).ceil().long() - 1).clamp(0, BINS - 1)
        right = (codes == targets).double()
        for table, weights in ((self.confidence, confidence), (self.right, right)):
            sums = torch.bincount(bins, weights, minlength=BINS).cpu().numpy()
            table[k] += sums.astype(table.dtype)
        self.counts[k] += torch.bincount(bins, minlength=BINS).cpu().numpy()

    @property
    def nats_per_code(self) -> NDArray[np.float64]:
        """(K,)."""
        means: NDArray[np.float64] = self.nats / self.counts.sum(axis=1)
        return means

    @property
    def mean_nats(self) -> float:
        """Per code, of all codebooks; each code weighs the same."""
        return float(self.nats.sum() / self.counts.sum())

    def bits_per_second(self, seconds: float) -> float:
        """What coding so much audio, all of what was counted, would take under the model."""
        return float(self.nats.sum()) / math.log(2) / seconds

    def calibration_error(self) -> tuple[NDArray[np.float64], float]:
        """Expected calibration error (ECE), of each codebook (K,) and of all codes together.

        The mean distance of the share that is right from the confidence, in the bins of each, or
        in bins of all; the latter is not a mean of the former.
        """
        distances = np.abs(self.right - self.confidence).sum(axis=1)
        together = np.abs((self.right - self.confidence).sum(axis=0)).sum()
        return distances / self.counts.sum(axis=1), float(together / self.counts.sum())

    def reliability(self) -> dict[str, Any]:
        """The bins as plain data: of all codes together ("all"), and of each of "codebooks".

        Of each bin: how many "codes", their mean "confidence", and the share that is "right".
        """
        return {
            "all": _bins(self.counts.sum(axis=0), self.confidence.sum(axis=0), self.right.sum(0)),
            "codebooks": [
                _bins(*tables)
                for tables in zip(self.counts, self.confidence, self.right, strict=True)
            ],
        }


def _bins(
    counts: NDArray[np.int64], confidence: NDArray[np.float64], right: NDArray[np.int64]
) -> list[dict[str, float]]:
    return [
        {"codes": n, "confidence": sure / max(1, n), "right": hits / max(1, n)}
        for n, sure, hits in zip(counts.tolist(), confidence.tolist(), right.tolist(), strict=True)
    ]
