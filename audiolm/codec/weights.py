"""The weights of an EnCodec as a plain dict of tensors: checked, completed, named by a fingerprint.

The names are those of `encodec.EncodecModel`'s state dict.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from encodec.model import EncodecModel
from torch import Tensor

from audiolm.codec.settings import OPTIONAL, build_model, fewest_numbers
from audiolm.files import short

# Buffers of the quantizer that only training uses.
TRAINING_ONLY = (".inited", ".cluster_size", ".embed_avg")

# So many numbers (100 MB) more than there are weights are built, to name the layer that differs.
SPARE = 25_000_000


def build_for(
    settings: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> tuple[EncodecModel, dict[str, Tensor]]:
    """Build the network that `settings` describe, for `weights` that belong to it.

    Its weights are random as yet; the memory that it takes is bounded by that of `weights`,
    whatever the settings say.

    Returns:
        the network, and the weights as of `inference_weights`.

    Raises:
        ValueError: from `inference_weights`, or the settings ask for a network of another size.
    """
    wanted = fewest_numbers(settings)
    tensors = {k: w for k, w in weights.items() if isinstance(w, Tensor)}
    held = sum(w.numel() for k, w in tensors.items() if not k.endswith(TRAINING_ONLY))
    if wanted > held + SPARE:
        raise ValueError(
            f"codec settings ask for a network of {wanted:,} numbers, the weights are {held:,}: "
            "weights and settings do not belong together"
        )
    model = build_model(settings)
    return model, inference_weights(weights, model)


def inference_weights(weights: Mapping[str, Tensor], model: EncodecModel) -> dict[str, Tensor]:
    """Check `weights` against `model` and return them as float32 on the CPU, in copies.

    Buffers that only training uses are omitted.

    Raises:
        ValueError: a name is missing or unexpected, a shape differs, a value is not finite, or the
            codebooks were never trained; one line.
    """
    expected = {k: v for k, v in model.state_dict().items() if not k.endswith(TRAINING_ONLY)}
    given = {k: v for k, v in weights.items() if not k.endswith(TRAINING_ONLY)}
    for what, names in (
        ("lack", expected.keys() - given),
        ("have unexpected", given.keys() - expected),
    ):
        if names:
            first = short(min(names), 80)
            raise ValueError(
                f"codec weights {what} {first} ({len(names)} such of {len(expected)}): "
                "weights and settings do not belong together"
            )
    for key, tensor in given.items():
        if not isinstance(tensor, Tensor) or tensor.shape != expected[key].shape:
            raise ValueError(
                f"codec weights: {key} is {tuple(getattr(tensor, 'shape', ()))}, the settings ask "
                f"for {tuple(expected[key].shape)}: weights and settings do not belong together"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"codec weights: {key} holds NaN or infinity: take another file")
    for key, tensor in weights.items():
        if key.endswith(".inited") and not bool(tensor.all()):
            raise ValueError(
                f"codec weights: {key} is 0, this codebook was never initialised: "
                "train the codec's quantizer before it is used"
            )
    return {
        key: given[key].detach().to("cpu", torch.float32, copy=True).contiguous()
        for key in sorted(given)
    }


def load_weights(model: EncodecModel, weights: Mapping[str, Tensor]) -> None:
    """Put `inference_weights` into `model`, and mark its codebooks as initialised.

    Without the mark the first forward pass would run k-means over them.
    """
    state = model.state_dict()
    for key in state:
        if key.endswith(".embed_avg"):
            state[key] = weights[key.removesuffix("_avg")]
        elif key.endswith((".inited", ".cluster_size")):
            state[key] = torch.ones_like(state[key])
        else:
            state[key] = weights[key]
    model.load_state_dict(state)


def compute_fingerprint(settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """Sixteen hex digits that name a codec: SHA-256 of its settings and weights.

    `settings` are checked ones, `weights` those of `inference_weights`: so neither the precision
    they were stored in, nor the device, nor the number of codebooks in use matters. Optional
    settings at their default do not count, so that a new one leaves old fingerprints alone.
    """
    counted = {k: v for k, v in settings.items() if k not in OPTIONAL or v != OPTIONAL[k]}
    digest = hashlib.sha256(json.dumps(counted, sort_keys=True, separators=(",", ":")).encode())
    for key in sorted(weights):
        tensor = weights[key]
        digest.update(f"{key}{tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().astype("<f4", copy=False).tobytes())
    return digest.hexdigest()[:16]
