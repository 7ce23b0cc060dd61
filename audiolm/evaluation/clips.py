"""Clips of one kind (generated, validation, training), and what is measured of each kind alone.

All are taken as codes and decoded by the same codec, so that the codec's own faults are in all of
them alike.

Letters: B samples, C audio channels, N audio samples, K codebooks, T codec frames, V codes in a
codebook, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from audiolm.batches.splits import cut_spans
from audiolm.batches.windows import WINDOW
from audiolm.codec import EncodecCodec
from audiolm.spectrogram import log_mel_spectrogram
from audiolm.synthesis.detectors import longest_loop, longest_silence
from audiolm.tokens.store import TokenStore

MELS = 64


@dataclass(frozen=True)
class Clips:
    """Clips, and what is measured of each.

    Attributes:
        codes: (K, T) of each, on the CPU; T may be 0 for samples that ended at once.
        waveforms: (C, N) of those with frames.
        frame_rate: codec frames per second.
        silences: seconds of the longest silence in each that has frames.
        loops: seconds of the longest loop of codebook 0 in each that has frames.
    """

    codes: list[Tensor]
    waveforms: list[Tensor]
    frame_rate: float
    silences: NDArray[np.float64]
    loops: NDArray[np.float64]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """How long each is."""
        return np.array([codes.shape[1] for codes in self.codes]) / self.frame_rate


def measure_clips(codes: Sequence[Tensor], codec: EncodecCodec) -> Clips:
    """Decode codes (K, T) of unlike lengths, and look for silence and loops."""
    full = [c for c in codes if c.shape[1]]
    waveforms = [codec.decode(c[None])[0].cpu() for c in full]
    return Clips(
        [c.cpu() for c in codes],
        waveforms,
        codec.frame_rate,
        np.array([longest_silence(w, codec.sample_rate).duration for w in waveforms]),
        np.array([longest_loop(c.cpu(), codec.frame_rate).duration for c in full]),
    )


def latent_features(clips: Clips, codec: EncodecCodec) -> list[Tensor]:
    """The codec encoder's latents (D, T) of the sound of each clip."""
    return [codec.latents(waveform[None])[0].cpu() for waveform in clips.waveforms]


def log_mel_features(clips: Clips, codec: EncodecCodec) -> list[Tensor]:
    """Mel spectrograms (mels, T) of each clip, in decibels."""
    return [log_mel_spectrogram(w, codec.sample_rate, MELS) for w in clips.waveforms]


def code_usage(
    codes: Sequence[Tensor], codebook_size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Share of the codes that occur (K,), and the perplexity of their frequencies (K,).

    The perplexity, exp of the entropy, is how many codes would do if all were as frequent: 1 to V.
    Both grow with the number of frames.
    """
    joined = torch.cat(list(codes), dim=1)
    counts = np.stack([torch.bincount(k, minlength=codebook_size).numpy() for k in joined])
    shares = counts / max(1, joined.shape[1])
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    return (counts > 0).mean(axis=1), np.exp(-(shares * logs).sum(axis=1))


def choose_windows(
    spans: Sequence[NDArray[Any]], num_windows: int, num_frames: int
) -> NDArray[Any]:
    """At most so many windows of at most `num_frames`, at random: a `WINDOW` array.

    The beginnings of as many clips; where there are fewer clips, all that they can be cut into. The
    same for the same clips. Not every n-th one: clips often alternate, between speakers say.

    spans: `SPAN` arrays, of each store.
    """
    if sum(map(len, spans)) < num_windows:
        spans = [cut_spans(of_store, num_frames) for of_store in spans]
    windows = np.empty(sum(map(len, spans)), WINDOW)
    windows["store"] = np.repeat(np.arange(len(spans)), [len(s) for s in spans])
    for name in ("clip", "start", "frames"):
        windows[name] = np.concatenate([of_store[name] for of_store in spans])
    windows["frames"] = np.minimum(windows["frames"], num_frames)
    chosen: NDArray[Any] = windows[np.random.default_rng(0).permutation(len(windows))[:num_windows]]
    return chosen


def read_windows(stores: Sequence[TokenStore], windows: NDArray[Any]) -> list[Tensor]:
    """The codes (K, T) of the windows."""
    return [
        torch.from_numpy(stores[store].read(clip, start, frames).astype(np.int64))
        for store, clip, start, frames in windows.tolist()
    ]
