"""EnCodec models that take a recording as one whole: 24 kHz and most of any size.

B batch, C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from encodec.model import EncodecModel
from encodec.modules.lstm import SLSTM
from torch import Tensor, nn

from audiolm.codec.base import Margins
from audiolm.codec.pieces import context, stream
from audiolm.codec.precision import full_precision
from audiolm.codec.ragged import ragged_encode

# An LSTM remembers without end. Ten minutes of speech (of music) in stretches of 120 s, through a
# codec with two LSTM layers, had 99.96% (99.87%) of the codes of the whole with 2 s to the left,
# 99.996% (99.89%) with 5 s and 100% (99.90%) with 10 s; a margin costs its share of the stretch.
LSTM_SECONDS = 5.0


class Continuous:
    """Encode and decode without segments, in pieces of `piece` frames where the input is longer."""

    def __init__(self, model: EncodecModel, n_q: int, piece: int) -> None:
        self.model, self.n_q, self.piece = model, n_q, piece
        self.hop = int(model.encoder.hop_length)

    @property
    def margins(self) -> Margins:
        """As far as the convolutions see, and behind an LSTM `LSTM_SECONDS` more."""
        layers = self.model.encoder.model
        others = nn.Sequential(*(layer for layer in layers if not isinstance(layer, SLSTM)))
        left, right = context(others)
        if len(others) < len(layers):
            left += round(LSTM_SECONDS * self.model.sample_rate / self.hop)
        return Margins(1, left, right)

    def encode_clips(self, clips: Sequence[Tensor], budget: int) -> list[Tensor]:
        """Clips (C, n_i) to codes (K, t_i), at most `budget` frames (with padding) at a time."""
        frames = [-(-clip.shape[1] // self.hop) for clip in clips]
        long = [i for i, n in enumerate(frames) if n > self.piece]
        codes = {i: torch.cat(list(self._encode_in_pieces(clips[i])), dim=1) for i in long}
        for group in _groups({i: n for i, n in enumerate(frames) if n <= self.piece}, budget):
            with full_precision(clips[0].device):
                latents, lengths = ragged_encode(self.model.encoder, [clips[i] for i in group])
                found = self.model.quantizer.vq.encode(latents, n_q=self.n_q)  # (K, B, T)
            for b, (i, n) in enumerate(zip(group, lengths, strict=True)):
                codes[i] = found[:, b, :n]
        return [codes[i] for i in range(len(clips))]

    def _encode_in_pieces(self, clip: Tensor) -> Iterator[Tensor]:
        for latents in stream(self.model.encoder.model, [clip[None]], self.piece):
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
