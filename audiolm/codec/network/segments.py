"""EnCodec models that work in normalised segments, as the pretrained 48 kHz stereo one does.

Such a model takes one second at a time, divides it by its level (root mean square) and normalises
over the whole second inside (group normalisation). The `encodec` package cuts a segment every
0.99 s, that is every 148.5 frames, and keeps the level beside the codes. Laid end to end, its codes
do not keep time (3 s give 455 frames, not 450), and codes without levels have lost how loud the
sound was. A language model needs one even grid that holds everything. Ours, in frames of the
48 kHz model (150 a second, a segment of 150):

- Segments begin every 148 frames, so that they overlap by 2. Where they do, each gives the frame
  that is not at its edge; then the codes of all lie on one grid, T = ceil(N / hop) exactly:

      segment 0     0 1 2 ... 147 148 (149)
      segment 1             (148) 149 150 ... 295 296 (297)
      segment 2                                 (296) 297 298 ...      (dropped)

- The level is one more codebook, the last: in steps of 0.5 dB from -160 dB (silence) to +95.5 dB
  relative to full scale, as codes 0 to 511, the same for all frames that the segment gives. So K is
  one more than the network's codebooks, and `codes[:, :-1]` are the network's own.
- Decoding takes the frames [148 s, 148 s + 150) for segment s, scales the sound of each frame by
  the median level of the 0.1 s around it, and fades linearly from one segment to the next over the
  2 frames that they share. So codes from a crop or from a model, whose segments need not begin
  where decoding's do, keep their loudness, and a single level that a model has sampled wrong is not
  audible. (A median moves no step from one level to the next.)

The last segment ends where the recording ends, however short (at least two frames and a sample, if
it is not the only one); the package does the same.

C audio channels, N audio samples, K codebooks, T codec frames, D width of the latents.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from encodec.model import EncodecModel
from torch import Tensor
from torch.nn import functional

from audiolm.codec.base import Margins
from audiolm.codec.network.chunks import Buffer
from audiolm.codec.precision import full_precision

OVERLAP = 2  # frames
MEDIAN_REACH = 7  # frames
LEVEL_STEPS = 512
LEVEL_STEP_DB = 0.5
LEVEL_FLOOR_DB = -160.0  # the 1e-8 that the level of silence is given


def level_to_code(level: Tensor) -> Tensor:
    """Root mean squares, at least 1e-8 (any shape), to steps 0 to 511 of 0.5 dB, int64."""
    steps = (20 * torch.log10(level) - LEVEL_FLOOR_DB) / LEVEL_STEP_DB
    return steps.round().clamp(0, LEVEL_STEPS - 1).long()


def code_to_level(code: Tensor) -> Tensor:
    """Steps to root mean squares, float32; codes above 511, which a model may sample, are 511."""
    decibel = code.clamp(0, LEVEL_STEPS - 1) * LEVEL_STEP_DB + LEVEL_FLOOR_DB
    return torch.pow(10.0, decibel / 20)


def running_median(codes: Tensor) -> Tensor:
    """Levels (T,) to the median of the 2 * MEDIAN_REACH + 1 around each, int64."""
    padded = functional.pad(codes[None].float(), (MEDIAN_REACH, MEDIAN_REACH), mode="replicate")
    return padded[0].unfold(0, 2 * MEDIAN_REACH + 1, 1).median(dim=-1).values.long()


class _Segment(NamedTuple):
    samples: Tensor  # (C, n)
    first: bool
    last: bool

    def own(self, codes: Tensor) -> Tensor:
        """Of the segment's codes (K, t), or latents, those that are not at an edge it shares."""
        return codes[:, 0 if self.first else 1 : None if self.last else -1]


class Segmented:
    """Encode and decode in overlapping, normalised segments of `length` frames."""

    def __init__(self, model: EncodecModel, n_q: int, length: int) -> None:
        self.model, self.n_q = model, n_q
        self.hop = int(model.encoder.hop_length)
        self.length, self.stride = length, length - OVERLAP

    @property
    def margins(self) -> Margins:
        """On the grid of segments, one of them to the left, and a whole one at the end."""
        return Margins(self.stride, self.stride, OVERLAP)

    def encode_clips(self, clips: Sequence[Tensor], budget: int) -> list[Tensor]:
        """Clips (C, n_i) to codes (K, t_i), at most `budget` frames (or one segment) at a time."""
        cut = [list(self._cut(clip)) for clip in clips]
        codes = iter(self._encode(list(itertools.chain(*cut)), budget))
        return [torch.cat(list(itertools.islice(codes, len(own))), dim=1) for own in cut]

    def _cut(self, clip: Tensor) -> Iterator[_Segment]:
        length, stride = self.length * self.hop, self.stride * self.hop
        begin = 0
        # Strictly more: what just fills a segment may be the last of the recording.
        while clip.shape[1] - begin > length:
            yield _Segment(clip[:, begin : begin + length], begin == 0, last=False)
            begin += stride
        yield _Segment(clip[:, begin:], begin == 0, last=True)

    def _encode(self, segments: Sequence[_Segment], budget: int) -> list[Tensor]:
        """Segments to their own codes (K, t). Only equal lengths share a batch (see the top)."""
        codes: dict[int, Tensor] = {}
        lengths = [s.samples.shape[1] for s in segments]
        for _, same in itertools.groupby(
            sorted(range(len(segments)), key=lambda i: lengths[i]), key=lambda i: lengths[i]
        ):
            indices = list(same)
            size = max(1, budget // self.length)
            for group in (indices[i : i + size] for i in range(0, len(indices), size)):
                found = self._network_codes(torch.stack([segments[i].samples for i in group]))
                codes |= {i: segments[i].own(c) for i, c in zip(group, found, strict=True)}
        return [codes[i] for i in range(len(segments))]

    def _network_codes(self, x: Tensor) -> Tensor:
        """Segments (B, C, n) to all their codes (B, K, t), edges and level included."""
        with full_precision(x.device):
            latents, level = self._network_latents(x)
            codes = self.model.quantizer.vq.encode(latents, n_q=self.n_q).transpose(0, 1)
            levels = level_to_code(level).expand(-1, -1, codes.shape[2])
            return torch.cat([codes, levels], dim=1)

    def _network_latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Segments (B, C, n) to latents (B, D, t) of each at level 1, and the levels (B, 1, 1)."""
        mono = x.mean(dim=1, keepdim=True)
        level = 1e-8 + mono.pow(2).mean(dim=2, keepdim=True).sqrt()
        return self.model.encoder(x / level), level

    def latents(self, clip: Tensor) -> Tensor:
        """Clip (C, n) to what is quantised of it, (D, T); how loud it is, is not in there."""
        with full_precision(clip.device):
            segments = list(self._cut(clip))
            found = [self._network_latents(segment.samples[None])[0][0] for segment in segments]
        return torch.cat([s.own(x) for s, x in zip(segments, found, strict=True)], dim=1)

    def decode_item(self, codes: Tensor) -> Tensor:
        """Codes (K, T) to a waveform (C, T * hop)."""
        return torch.cat(list(self.decode_stream([codes])), dim=1)

    def decode_stream(self, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        """Chunks of codes (K, t) to blocks of the waveform (C, n), as soon as they are final.

        That is a segment at a time, less the end that the next fades into.
        """
        buffer = Buffer()
        shared: Tensor | None = None  # the end of the last segment, in which the next fades in
        for codes in chunks:
            buffer.push(codes)
            while buffer.size >= self.length:
                sound = self._decode_segment(buffer.head(self.length), shared)
                fade = OVERLAP * self.hop
                sound, shared = sound[:, :-fade], sound[:, -fade:]
                yield sound
                buffer.drop(self.stride)
        # What is left is a short last segment, or no more than what the last one gave already.
        if shared is None or buffer.size > OVERLAP:
            yield self._decode_segment(buffer.head(buffer.size), shared)
        else:
            yield shared

    def _decode_segment(self, codes: Tensor, shared: Tensor | None) -> Tensor:
        """A segment's codes (K, t) to its waveform (C, n), faded in over what is `shared`."""
        with full_precision(codes.device):
            sound: Tensor = self.model.decoder(self.model.quantizer.decode(codes[:-1, None]))[0]
            sound = sound * code_to_level(running_median(codes[-1])).repeat_interleave(self.hop)
            if shared is None:
                return sound
            fade = shared.shape[1]
            rising = (torch.arange(fade, device=codes.device) + 0.5) / fade
            mixed = shared * (1 - rising) + sound[:, :fade] * rising
            return torch.cat([mixed, sound[:, fade:]], dim=1)
