"""EnCodec models that take a recording as one whole: 24 kHz and most of any size.

B batch, C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from encodec.model import EncodecModel
from torch import Tensor

from audiolm.codec.pieces import stream
from audiolm.codec.precision import full_precision
from audiolm.codec.ragged import ragged_encode


class Continuous:
    """Encode and decode without segments, in pieces of `piece` frames where the input is longer."""

    def __init__(self, model: EncodecModel, n_q: int, piece: int) -> None:
        self.model, self.n_q, self.piece = model, n_q, piece
        self.hop = int(model.encoder.hop_length)

    def encode_clips(self, clips: Sequence[Tensor], budget: int) -> list[Tensor]:
        """Clips (C, n_i) to codes (K, t_i), at most `budget` frames (with padding) at a time."""
        frames = [-(-clip.shape[1] // self.hop) for clip in clips]
        long = [i for i, n in enumerate(frames) if n > self.piece]
        codes = {i: torch.cat(list(self.encode_blocks([clips[i]])), dim=1) for i in long}
        for group in _groups({i: n for i, n in enumerate(frames) if n <= self.piece}, budget):
            with full_precision(clips[0].device):
                latents, lengths = ragged_encode(self.model.encoder, [clips[i] for i in group])
                found = self.model.quantizer.vq.encode(latents, n_q=self.n_q)  # (K, B, T)
            for b, (i, n) in enumerate(zip(group, lengths, strict=True)):
                codes[i] = found[:, b, :n]
        return [codes[i] for i in range(len(clips))]

    def encode_blocks(self, blocks: Iterable[Tensor]) -> Iterator[Tensor]:
        """Blocks (C, n) of one recording to codes (K, t)."""
        for latents in stream(self.model.encoder.model, (b[None] for b in blocks), self.piece):
            with full_precision(latents.device):
                codes = self.model.quantizer.vq.encode(latents, n_q=self.n_q)
            yield codes[:, 0]

    def decode_item(self, codes: Tensor) -> Tensor:
        """Codes (K, T) to a waveform (C, T * hop)."""
        parts = list(stream(self.model.decoder.model, self._dequantized(codes), self.piece))
        return torch.cat(parts, dim=-1)[0]

    def _dequantized(self, codes: Tensor) -> Iterator[Tensor]:
        for begin in range(0, codes.shape[1], self.piece):
            part = codes[:, None, begin : begin + self.piece]
            with full_precision(codes.device):
                latents = self.model.quantizer.decode(part)  # (1, dimension, t)
            yield latents


def _groups(frames: Mapping[int, int], budget: int) -> Iterator[list[int]]:
    """Keys in batches of like lengths, longest first, whose padded size fits the budget."""
    group: list[int] = []
    for key in sorted(frames, key=lambda k: -frames[k]):
        if group and (len(group) + 1) * frames[group[0]] > budget:
            yield group
            group = []
        group.append(key)
    if group:
        yield group
