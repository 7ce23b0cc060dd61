"""Rounded weights: less memory to read a step, and the same numbers whichever engine reads them.

A step of decoding reads every matrix once for a few rows of input, so the bytes of the matrices
are its time. A rounded model is an ordinary one whose matrices hold numbers that also fit in fewer
bits: what rounding costs is that model's loss, and an engine that packs the numbers computes the
same function.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from audiolm.model.language_model import AudioLM

WEIGHTS = ("float32", "bfloat16", "int8")
"""Types that matrices can be rounded to."""


def quantise_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (rows, columns) as int8 numbers of that shape and a float32 scale a row.

    Row r is integers[r] * scales[r] but for rounding, with 127 for its largest number. A matrix
    that is such a product already comes apart into the same integers.

    Source: Dettmers et al. 2022, "LLM.int8()", section 2.1 (absmax, a scale a row).
    """
    scales = matrix.abs().amax(dim=1).float() / 127
    # A row of zeros has no scale: any serves, but a division by 0 would make it NaN.
    divisors = torch.where(scales == 0, torch.ones_like(scales), scales)
    integers = (matrix / divisors[:, None]).round_().clamp_(-127, 127).to(torch.int8)
    return integers, divisors


def round_weights(model: AudioLM, weights: str) -> AudioLM:
    """A copy of the model whose matrices hold numbers of type `weights`, stored in float32.

    Rounded are attention's and the feed-forward's matrices and the heads, not the embedding and
    the norms, of which a step reads little. "float32" rounds nothing, and is the model itself.

    Args:
        model: in float32.
        weights: "float32", "bfloat16" or "int8" (see `quantise_rows`).

    Raises:
        ValueError: for an unknown type.
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights={weights!r} is unknown; choose one of {', '.join(WEIGHTS)}")
    if weights == "float32":
        return model
    with torch.inference_mode(False), torch.no_grad():  # a copy that can be used anywhere
        copy = deepcopy(model)
        for module in copy.modules():
            if isinstance(module, nn.Linear):
                if weights == "bfloat16":
                    rounded = module.weight.bfloat16()
                else:
                    integers, scales = quantise_rows(module.weight)
                    rounded = integers * scales[:, None]
                module.weight.copy_(rounded)
    return copy
