"""What several test modules share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from encodec.model import EncodecModel
from encodec.modules.conv import SConv1d

from audiolm.codec import EncodecCodec, build_model
from audiolm.codec.weights import load_weights

# Fixtures: whoever has others of these names has them nearer.
from .stores import (
    check_clips_here,
    codec,
    contents,
    make_codec,
    make_store,
    prepare,
    random_clips,
    recordings,
    write_recording,
)

__all__ = [
    "check_clips_here",
    "codec",
    "contents",
    "make_codec",
    "make_store",
    "prepare",
    "random_clips",
    "recordings",
    "write_recording",
]

if "PYTEST_XDIST_WORKER" in os.environ:
    # As many processes as cores: more threads than one each, in those that tests start too, would
    # wait for each other.
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"

TINY = {
    "sample_rate": 800,
    "channels": 1,
    "n_filters": 4,
    "dimension": 8,
    "ratios": [2, 3, 2],
    "n_residual_layers": 1,
    "true_skip": True,
    "compress": 2,
    "lstm": 0,
    "causal": False,
    "norm": "weight_norm",
    "n_q": 4,
    "bins": 32,
}


def _tiny_model(seed: int, settings: dict[str, Any]) -> EncodecModel:
    """A network of random weights whose codes vary with its input, as a trained one's do."""
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(seed)
        model = build_model(settings).eval()
        for layer in model.modules():
            if isinstance(layer, SConv1d):
                torch.nn.init.zeros_(layer.conv.conv.bias)
        noise = torch.randn(8, settings["channels"], 40 * int(model.encoder.hop_length))
        latents = model.encoder(noise)
        bins = settings["bins"]
        residual = latents.transpose(1, 2).reshape(-1, settings["dimension"])
        for level in model.quantizer.vq.layers:
            book = level._codebook
            book.embed.copy_(residual[torch.randint(len(residual), (bins,))])
            book.inited.fill_(1)
            residual = residual - book.decode(book.encode(residual))
    return model


@pytest.fixture(scope="session")
def make_tiny_codec() -> Callable[..., EncodecCodec]:
    """`make_tiny_codec(num_codebooks=None, seed=0, **settings)`: random, hop 12, K 4, V 32."""

    def make(num_codebooks: int | None = None, seed: int = 0, **settings: Any) -> EncodecCodec:
        full = {**TINY, **settings}
        return EncodecCodec(full, _tiny_model(seed, full).state_dict(), num_codebooks=num_codebooks)

    return make


@pytest.fixture(scope="session")
def package_model() -> Callable[[EncodecCodec], EncodecModel]:
    """`package_model(codec)`: the encodec package's own model of the same weights, not folded."""

    def make(codec: EncodecCodec) -> EncodecModel:
        model = build_model(codec.settings).eval().requires_grad_(False)
        load_weights(model, codec.weights)
        return model

    return make
