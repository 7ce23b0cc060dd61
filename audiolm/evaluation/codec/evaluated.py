"""The codec that is evaluated: from its folder or from a checkpoint of its training.

B batch, C audio channels, N audio samples, K codebooks, T codec frames, V codes in a codebook,
D width of the latents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from audiolm.codec import load_local
from audiolm.codec.encodec import CHUNK_SECONDS, EncodecCodec
from audiolm.codec.local import read_pair
from audiolm.codec.network.chunks import stream
from audiolm.codec.settings import build_model
from audiolm.codec.weights import TRAINING_ONLY, load_weights
from audiolm.model.checkpoint import read_checkpoint

MOST_KBPS = 3.2
"""kbit/s that the codebooks evaluated by default use at most."""


class Evaluated(Protocol):
    """What evaluation needs of a codec. `audiolm.codec.Codec` has it, and `Autoencoder`."""

    sample_rate: int
    channels: int
    frame_rate: float
    num_codebooks: int
    codebook_size: int

    def encode_batch(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """Clips (C, n_i) to codes (K, t_i); to latents (D, t_i) where K is 0."""

    def decode(self, codes: Tensor, num_samples: int | None = None) -> Tensor:
        """Codes (B, K, T), or latents (B, D, T) where K is 0, to a waveform (B, C, num_samples)."""


class Autoencoder:
    """A codec's encoder and decoder with nothing between them: K = 0, latents instead of codes.

    Raises:
        ValueError: the codec works in segments, whose level is a codebook.
    """

    num_codebooks = 0

    def __init__(self, codec: EncodecCodec) -> None:
        if codec.settings["segment"] is not None:
            raise ValueError("a codec with segments is not evaluated without codebooks")
        self._codec, self.settings = codec, codec.settings
        model = build_model(codec.settings)
        load_weights(model, codec.weights)
        self._decoder = model.decoder.model.eval().requires_grad_(False)
        self.sample_rate, self.channels = codec.sample_rate, codec.channels
        self.frame_rate, self.codebook_size = codec.frame_rate, codec.codebook_size

    def encode_batch(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """Clips (C, n_i) to latents (D, t_i)."""
        return [self._codec.latents(waveform[None])[0] for waveform in waveforms]

    def decode(self, codes: Tensor, num_samples: int | None = None) -> Tensor:
        """Latents (B, D, T) to a waveform (B, C, num_samples)."""
        piece = max(1, round(CHUNK_SECONDS * self.frame_rate))
        pieces = list(stream(self._decoder, torch.split(codes, piece, dim=2), (piece,)))
        return torch.cat(pieces, dim=-1)[..., :num_samples]

    def identity(self) -> dict[str, Any]:
        """As that of a codec."""
        return self._codec.identity() | {"num_codebooks": 0}


def kbps_of(codec: Evaluated) -> float:
    """kbit/s of its codes; 0 where there are none."""
    return codec.num_codebooks * math.log2(codec.codebook_size) * codec.frame_rate / 1000


def load_evaluated(
    path: Path, counts: Sequence[int] | None = None
) -> list[EncodecCodec | Autoencoder]:
    """The codec in `path` once for each number of codebooks, by which they are sorted.

    Args:
        path: a codec's folder or files, or a checkpoint (.ckpt) that train_codec.py wrote.
        counts: numbers of codebooks, 0 for none. By default all that `MOST_KBPS` allows and half
            of them; 0 where the codebooks are not fitted yet.

    Raises:
        ValueError, OSError: there is no codec, it cannot be read, or it lacks the codebooks.
    """
    settings, weights, fitted = _read(path)
    if counts is None:
        counts = _usual_counts(settings) if fitted else [0]
    if not fitted and any(counts):
        raise ValueError(
            f"{path}: its codebooks are not fitted yet; evaluate it without: --num-codebooks 0"
        )
    source = {"kind": "local", "name": path.stem}

    def load(count: int) -> EncodecCodec | Autoencoder:
        codec = EncodecCodec(settings, weights, num_codebooks=count or None, source=source)
        return codec if count else Autoencoder(codec)

    try:
        return [load(count) for count in sorted(set(counts))]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _usual_counts(settings: Mapping[str, Any]) -> list[int]:
    """All codebooks that `MOST_KBPS` allows, and half of them."""
    each = math.log2(settings["bins"]) * settings["sample_rate"] / math.prod(settings["ratios"])
    most = max(1, min(settings["n_q"], math.floor(1000 * MOST_KBPS / each + 1e-9)))
    return [max(1, most // 2), most]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], bool]:
    """Settings, weights, and whether the codebooks are fitted."""
    if path.suffix != ".ckpt":
        load_local(path)  # checks the fingerprint
        pair = read_pair(path)
        return pair.settings, pair.weights, True
    checkpoint = read_checkpoint(path)
    if "audiolm_codec_format" not in checkpoint:
        raise ValueError(f"{path} is no checkpoint of a codec; take one that train_codec.py wrote")
    # Where training kept an average of the weights, that is the codec to use.
    state = checkpoint.get("ema_state_dict", checkpoint["state_dict"])
    weights = {
        name.removeprefix("model."): weight
        for name, weight in state.items()
        if name.startswith("model.")
    }
    fitted = all(bool(w.all()) for name, w in weights.items() if name.endswith(".inited"))
    if not fitted:
        weights = {k: w for k, w in weights.items() if not k.endswith(TRAINING_ONLY)}
    return dict(checkpoint["hyper_parameters"]["settings"]), weights, fitted
