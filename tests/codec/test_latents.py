"""The encoder's latents: quantised, they are the codes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from audiolm.codec import EncodecCodec

SEGMENTED = {"channels": 2, "segment": 0.3, "norm": "time_group_norm", "bins": 512}


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def quantised(codec: EncodecCodec, latents: Tensor) -> Tensor:
    codes: Tensor = codec._model.quantizer.vq.encode(latents)  # (K, B, T)
    return codes.transpose(0, 1)


@pytest.mark.parametrize("settings", [{}, {"causal": True, "lstm": 1}, {"norm": "none"}])
@pytest.mark.parametrize("samples", [1, 12, 500, 12_001])  # the last in two chunks
def test_quantised_they_are_the_codes(make_tiny_codec, settings, samples: int) -> None:
    codec = make_tiny_codec(**settings)
    x = noise(2, 1, samples)
    latents = codec.latents(x)
    assert latents.shape == (2, 8, -(-samples // 12)) and latents.dtype == torch.float32
    assert (quantised(codec, latents) == codec.encode(x)).float().mean() > 0.999  # near ties


def test_with_segments_they_lie_on_the_grid_of_the_codes(make_tiny_codec) -> None:
    codec = make_tiny_codec(**SEGMENTED)
    for samples in (5, 180, 500, 1000):
        x = 0.1 * noise(1, 2, samples)
        latents = codec.latents(x)
        codes = codec.encode(x)
        assert latents.shape[2] == codes.shape[2]
        assert (quantised(codec, latents) == codes[:, :-1]).float().mean() > 0.999
        torch.testing.assert_close(codec.latents(10 * x), latents, rtol=1e-3, atol=1e-4)


def test_what_cannot_be_encoded_has_none(make_tiny_codec) -> None:
    codec = make_tiny_codec()
    with pytest.raises(ValueError, match=r"give \(batch, 1, samples\)"):
        codec.latents(noise(1, 12))
    with pytest.raises(ValueError, match="NaN or infinite"):
        codec.latents(torch.full((1, 1, 24), float("nan")))
