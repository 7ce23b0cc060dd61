"""Stereo by a mono network: the left and the right are each encoded alone, as MusicGen's stereo is.

Codebook k of the left is codebook 2 k, that of the right 2 k + 1:

    left    0 . 1 . 2 . 3 .
    right   . 0 . 1 . 2 . 3     so the first 2 n codebooks are the first n of both

K codebooks, T codec frames, D width of the latents.

Source: Copet et al. 2023, "Simple and Controllable Music Generation", section 2.2 and its code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from audiolm.codec.base import Margins
from audiolm.codec.network.continuous import Continuous


class DualMono:
    """Encode and decode two channels by the network of one."""

    def __init__(self, mono: Continuous) -> None:
        self.mono = mono

    @property
    def margins(self) -> Margins:
        """Those of one channel."""
        return self.mono.margins

    def encode_clips(self, clips: Sequence[Tensor], budget: int) -> list[Tensor]:
        """Clips (2, n_i) to codes (K, t_i), at most `budget` frames of a channel at a time."""
        channels = [channel[None] for clip in clips for channel in clip]
        codes = self.mono.encode_clips(channels, budget)
        pairs = zip(codes[0::2], codes[1::2], strict=True)
        return [torch.stack(pair, dim=1).flatten(0, 1) for pair in pairs]

    def latents(self, clip: Tensor) -> Tensor:
        """Clip (2, n) to what is quantised of it, (2 D, T): the left's, then the right's."""
        return torch.cat([self.mono.latents(channel[None]) for channel in clip])

    def decode_item(self, codes: Tensor) -> Tensor:
        """Codes (K, T) to a waveform (2, T * hop)."""
        return torch.cat([self.mono.decode_item(codes[side::2]) for side in (0, 1)])

    def decode_stream(self, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        """Chunks of codes (K, t) to blocks of the waveform (2, n), as soon as they are final."""
        # Both channels are in step, so that the copies hold a chunk or two.
        left, right = itertools.tee(chunks)
        sides = (
            self.mono.decode_stream(chunk[0::2] for chunk in left),
            self.mono.decode_stream(chunk[1::2] for chunk in right),
        )
        for blocks in zip(*sides, strict=True):
            yield torch.cat(blocks)
