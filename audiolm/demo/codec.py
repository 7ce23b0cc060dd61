"""The demo's codec: an EnCodec whose weights are set, not trained.

No trained weights can be shipped or downloaded here, and an untrained EnCodec decodes to noise.
So the networks are given weights that make them a lapped cosine transform (the MDCT of Princen
and Bradley 1986, of which most codecs for music are made), and the residual codebooks are fitted
by k-means to the demo set. It is an ordinary local EnCodec in every other respect. It knows the
demo's melodies and nothing else.

How a network with ELU between its convolutions can be linear: ELU(x) = x for x > 0, so every
channel is lifted above 0 by a bias, and the next layer takes the lift off again.

Letters: T codec frames, D latent width.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from encodec.model import EncodecModel
from torch import Tensor

from audiolm.audio import find_audio_files, read_audio
from audiolm.codec import EncodecCodec, build_model, load_local
from audiolm.demo.melodies import SAMPLE_RATE, make_melodies

HOP = 160  # samples: 50 frames/s at 8 kHz
BANDS = 120  # of the HOP bands of 25 Hz; the rest, above 3 kHz, is left out
LIFT = 64.0  # above every value that meets an ELU
FIT_MELODIES = 100
KMEANS_ITERATIONS = 12

SETTINGS: dict[str, Any] = {
    "sample_rate": SAMPLE_RATE,
    "channels": 1,
    "n_filters": 61,  # doubled by the one ratio: room for BANDS and one constant channel
    "dimension": BANDS,
    "ratios": [HOP],
    "n_residual_layers": 0,
    "true_skip": True,
    "compress": 2,
    "lstm": 0,
    "causal": False,
    "norm": "none",
    "n_q": 8,
    "bins": 256,
}


def demo_codec(folder: str | Path, melodies: str | Path) -> EncodecCodec:
    """The demo's codec from `folder`, made there at its first use (about half a minute).

    Args:
        folder: of the codec's files.
        melodies: folder of the demo set, made if it is not there.
    """
    folder = Path(folder)
    # Both files: a kill can leave one of them.
    if not all((folder / f"demo.{ending}").exists() for ending in ("safetensors", "json")):
        make_melodies(melodies)
        waveforms = [
            read_audio(path, SAMPLE_RATE, 1)[0]
            for path in find_audio_files(melodies)[:FIT_MELODIES]
        ]
        fit_codec(waveforms).save(folder, "demo")
    return load_local(folder / "demo")


def fit_codec(waveforms: list[Tensor]) -> EncodecCodec:
    """The transform, with codebooks fitted to clips (1, N) at SAMPLE_RATE."""
    model = build_model(SETTINGS)
    set_transform(model)
    with torch.inference_mode():
        latents = torch.cat([model.encoder(clip[None])[0].T for clip in waveforms])  # (T, D)
        codebooks = residual_kmeans(latents, SETTINGS["n_q"], SETTINGS["bins"])
    state = model.state_dict()
    for i, codebook in enumerate(codebooks):
        state[f"quantizer.vq.layers.{i}._codebook.embed"] = codebook
        state[f"quantizer.vq.layers.{i}._codebook.inited"] = torch.ones(1)
    return EncodecCodec(SETTINGS, state)


@torch.no_grad()
def set_transform(model: EncodecModel) -> None:
    """Make encoder and decoder the MDCT and its inverse, less the bands above BANDS."""
    basis = lapped_basis()  # (BANDS, 2 * HOP)
    for parameter in model.parameters():
        parameter.zero_()

    def convolution(network: Any, index: int) -> Any:
        wrapped = network.model[index]
        return wrapped.conv.conv if hasattr(wrapped, "conv") else wrapped.convtr.convtr

    first, analyse, last = (convolution(model.encoder, i) for i in (0, 2, 4))
    first.weight[0, 0, 3] = 1  # the middle of 7: pass the waveform on
    first.bias[0] = LIFT
    analyse.weight[:BANDS, 0] = basis
    analyse.bias[:BANDS] = LIFT - LIFT * basis.sum(dim=1)
    last.weight[:, :BANDS, 3] = torch.eye(BANDS)
    last.bias[:] = -LIFT

    first, synthesise, last = (convolution(model.decoder, i) for i in (0, 2, 4))
    first.weight[:BANDS, :, 3] = torch.eye(BANDS)
    first.bias[:] = LIFT
    synthesise.weight[:BANDS, 0] = basis
    # What the lift becomes varies over the frame, so no bias takes it off: a channel that is
    # always LIFT does.
    synthesise.weight[BANDS, 0] = -basis.sum(dim=0)
    synthesise.bias[0] = LIFT
    last.weight[0, 0, 3] = 1
    last.bias[0] = -LIFT


def lapped_basis() -> Tensor:
    """(BANDS, 2 * HOP): windowed cosines whose overlapped sum gives the signal back."""
    n = torch.arange(2 * HOP, dtype=torch.float64)
    band = torch.arange(BANDS, dtype=torch.float64)[:, None]
    window = (math.pi * (n + 0.5) / (2 * HOP)).sin()
    cosines = (math.pi / HOP * (n + 0.5 + HOP / 2) * (band + 0.5)).cos()
    return (math.sqrt(2 / HOP) * window * cosines).float()


def residual_kmeans(latents: Tensor, num_codebooks: int, bins: int) -> list[Tensor]:
    """Codebooks (bins, D), each fitted by k-means to what the ones before leave of (T, D)."""
    generator = torch.Generator().manual_seed(0)
    residual = latents.clone()
    codebooks = []
    for _ in range(num_codebooks):
        codebook = residual[torch.randperm(len(residual), generator=generator)[:bins]]
        for _ in range(KMEANS_ITERATIONS):
            nearest = torch.cdist(residual, codebook).argmin(dim=1)
            sums = torch.zeros_like(codebook).index_add_(0, nearest, residual)
            counts = torch.bincount(nearest, minlength=bins)[:, None]
            codebook = torch.where(counts > 0, sums / counts.clamp(min=1), codebook)
        residual = residual - codebook[torch.cdist(residual, codebook).argmin(dim=1)]
        codebooks.append(codebook)
    return codebooks
