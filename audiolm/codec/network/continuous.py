"""EnCodec models that take a recording as one whole: 24 kHz and most of any size.

B batch, C audio channels, N audio samples, K codebooks, T codec frames, D width of the latents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from encodec.model import EncodecModel
from encodec.modules.lstm import SLSTM
from torch import Tensor, nn

from audiolm.codec.base import Margins
from audiolm.codec.network.chunks import context, stream
from audiolm.codec.network.layers import Dequantizer
from audiolm.codec.network.ragged import ragged_encode
from audiolm.codec.precision import full_precision

# An LSTM remembers without end. Ten minutes of speech (of music) in sections of 120 s, through a
# codec with two LSTM layers, had 99.96% (99.87%) of the codes of the whole with 2 s to the left,
# 99.996% (99.89%) with 5 s and 100% (99.90%) with 10 s; a margin costs its share of the section.
LSTM_SECONDS = 5.0

# What is decoded at a time of a stream: at first a frame, then twice as many each time, so that
# there is no gap at twice real time already; at last this long, since every chunk computes its
# context anew, and short ones are slow. Decoding ten seconds of single frames took 1.2 times as
# long as at once (0.2 s: 1.6 times) with the 24 kHz model, 2.0 (3.1) times with the bundled codec.
STREAM_SECONDS = 0.4


class Continuous:
    """Encode and decode without segments, in chunks of `chunk` frames where the input is longer."""

    def __init__(self, model: EncodecModel, n_q: int, chunk: int) -> None:
        self.model, self.n_q, self.chunk = model, n_q, chunk
        self.hop = int(model.encoder.hop_length)
        most = max(1, round(STREAM_SECONDS * model.sample_rate / self.hop))
        self.stream_sizes = [*(2**i for i in range((most - 1).bit_length())), most]

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
        long = [i for i, n in enumerate(frames) if n > self.chunk]
        codes = {i: torch.cat(list(self._encode_in_chunks(clips[i])), dim=1) for i in long}
        for group in _groups({i: n for i, n in enumerate(frames) if n <= self.chunk}, budget):
            with full_precision(clips[0].device):
                latents, lengths = ragged_encode(self.model.encoder, [clips[i] for i in group])
                found = self.model.quantizer.vq.encode(latents, n_q=self.n_q)  # (K, B, T)
            for b, (i, n) in enumerate(zip(group, lengths, strict=True)):
                codes[i] = found[:, b, :n]
        return [codes[i] for i in range(len(clips))]

    def _encode_in_chunks(self, clip: Tensor) -> Iterator[Tensor]:
        for latents in stream(self.model.encoder.model, [clip[None]], (self.chunk,)):
            with full_precision(latents.device):
                codes = self.model.quantizer.vq.encode(latents, n_q=self.n_q)
            yield codes[:, 0]

    def latents(self, clip: Tensor) -> Tensor:
        """Clip (C, n) to what is quantised of it, (D, T)."""
        chunks = stream(self.model.encoder.model, [clip[None]], (self.chunk,))
        with full_precision(clip.device):
            return torch.cat(list(chunks), dim=-1)[0]

    def decode_item(self, codes: Tensor) -> Tensor:
        """Codes (K, T) to a waveform (C, T * hop)."""
        chunks = torch.split(codes, self.chunk, dim=1)
        return torch.cat(list(self._decode(chunks, (self.chunk,))), dim=-1)

    def decode_stream(self, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        """Chunks of codes (K, t) to blocks of the waveform (C, n), as soon as they are final."""
        return self._decode(chunks, self.stream_sizes)

    def _decode(self, chunks: Iterable[Tensor], sizes: Sequence[int]) -> Iterator[Tensor]:
        # The codebooks' look-up too goes by chunks: by frames it takes about as long as the rest.
        layers = nn.Sequential(Dequantizer(self.model.quantizer), *self.model.decoder.model)
        for sound in stream(layers, (codes[None] for codes in chunks), sizes):
            yield sound[0]


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
