"""A codec of any size without trained weights: what it costs does not depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from audiolm.audio import resample
from audiolm.codec import EncodecCodec, build_model
from audiolm.demo.melodies import SAMPLE_RATE, sample_melody, synthesise
from audiolm.training.codec.initialise import initialise_on_data
from audiolm.training.codec.quantizer import initialise_codebooks

MELODIES = 8


@torch.no_grad()
def random_codec(settings: Mapping[str, Any], num_codebooks: int, seed: int = 0) -> EncodecCodec:
    """The codec of these settings with random weights and with codebooks that fit its latents.

    Its codes vary with the sound and its near ties are as rare as a trained codec's, so that the
    codes of two ways to compute it can be compared.

    settings: see `audiolm.codec.settings`, of one channel. num_codebooks: K, which are all that it
    has.
    """
    settings = {**settings, "n_q": num_codebooks}
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = build_model(settings).eval()
    melodies = torch.cat([synthesise(sample_melody(seed, i)) for i in range(MELODIES)], dim=1)
    sound = resample(melodies, SAMPLE_RATE, settings["sample_rate"])
    # Noise, so that the codebooks have something to tell apart.
    sound += 0.02 * torch.randn(sound.shape, generator=torch.Generator().manual_seed(seed))
    initialise_on_data(model, sound[None, :, : 2 * settings["sample_rate"]])
    latents = [
        model.encoder(piece[None])
        for piece in torch.split(sound, 2 * settings["sample_rate"], dim=1)
    ]
    vectors = torch.cat(latents, dim=2)[0].T
    initialise_codebooks(model.quantizer, vectors, seed)
    return EncodecCodec(settings, model.state_dict(), source={"kind": "local", "name": "random"})
