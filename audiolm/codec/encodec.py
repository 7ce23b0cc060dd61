"""`EncodecCodec`: an EnCodec of any size behind the `Codec` contract.

B batch, C audio channels, N audio samples, K codebooks, T codec frames, V codes in a codebook,
D width of the encoder's latents.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from encodec.model import EncodecModel
from encodec.modules.conv import SConv1d, SConvTranspose1d
from torch import Tensor
from torch.nn.utils import remove_weight_norm

from audiolm.codec.base import check_clip, check_codes
from audiolm.codec.local import save_local
from audiolm.codec.network.continuous import Continuous
from audiolm.codec.network.dual_mono import DualMono
from audiolm.codec.network.layers import convolution, use_fast_elu
from audiolm.codec.network.segments import Segmented
from audiolm.codec.settings import check_settings
from audiolm.codec.weights import build_for, compute_fingerprint, load_weights
from audiolm.files import user_path

# Longer recordings go through the network in chunks of this length; batches hold as much in all.
# On a CPU larger activations fall out of the caches: the same work takes up to twice as long.
CHUNK_SECONDS = 10.0
BATCH_CHUNKS = {"cpu": 1}  # chunks' worth in a batch
BATCH_CHUNKS_ELSEWHERE = 16


class EncodecCodec:
    """An EnCodec for use: encodes and decodes, in float32, without gradients.

    Weight normalisation is folded into the weights, and ELU is a faster one; together they make the
    codec 1.4 to 1.8 times as fast on a CPU. The codec works where `to` put it (at first the CPU),
    takes waveforms and codes from anywhere, and returns them where it is.

    Args:
        settings: see `audiolm.codec.settings`.
        weights: named as in `encodec.EncodecModel`'s state dict; buffers that only training uses
            may be missing. They are copied.
        num_codebooks: how many codebooks to use, of the first ones; by default all. With segments
            the level is one of them.
        source: what `identity` says about where the codec is from: `kind`, and what that needs.

    Raises:
        ValueError: settings or weights are wrong, or do not belong together; one line.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        *,
        num_codebooks: int | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = check_settings(settings)
        model, self.weights = build_for(self.settings, weights)
        self._source = dict(source or {"kind": "local", "name": "unnamed"})
        self.fingerprint = compute_fingerprint(self.settings, self.weights)
        load_weights(model, self.weights)
        _fold_weight_norm(model)
        use_fast_elu(model)
        self._model = model.eval().requires_grad_(False)
        self.device = torch.device("cpu")

        self.sample_rate: int = self.settings["sample_rate"]
        passes = 2 if self.settings["dual_mono"] else 1
        self.channels: int = passes * self.settings["channels"]
        self.hop_length = int(model.encoder.hop_length)
        self.frame_rate = self.sample_rate / self.hop_length
        self.codebook_size: int = self.settings["bins"]

        segment: float | None = self.settings["segment"]
        level = 0 if segment is None else 1
        most = passes * self.settings["n_q"] + level
        self.num_codebooks = most if num_codebooks is None else num_codebooks
        whole = isinstance(self.num_codebooks, int) and self.num_codebooks % passes == 0
        if not whole or not passes + level <= self.num_codebooks <= most:
            raise ValueError(
                f"num_codebooks={num_codebooks}: this codec can use {passes + level} to {most}"
                + (" (the last is the level)" if level else "")
                + (", as many left as right" if passes == 2 else "")
            )
        self._chunk = max(1, round(CHUNK_SECONDS * self.frame_rate))
        n_q = self.num_codebooks - level
        self._network: Continuous | DualMono | Segmented
        if passes == 2:
            self._network = DualMono(Continuous(model, n_q // 2, self._chunk))
        elif segment is None:
            self._network = Continuous(model, n_q, self._chunk)
        else:
            self._network = Segmented(model, n_q, round(segment * self.frame_rate))
        self.margins = self._network.margins

    def to(self, device: torch.device | str) -> EncodecCodec:
        """Move the network to `device`; return self."""
        self._model.to(device)
        self.device = next(self._model.parameters()).device
        return self

    def encode(self, waveform: Tensor) -> Tensor:
        """Encode a batch of clips of one length.

        Args:
            waveform: (B, C, N), floating point, nominally in [-1, 1].

        Returns:
            Codes (B, K, T), int64, T = ceil(N / hop_length).

        Raises:
            ValueError: wrong shape or channels, no samples, or samples that are not finite.
        """
        self._check_batch(waveform)
        return torch.stack(self.encode_batch(list(waveform)))

    def encode_batch(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """Encode clips of unlike lengths; each gets the codes it would get alone.

        They go through the network in batches of bounded size, whatever their number. Rounding
        differs between batch sizes, so now and then a code that was a near tie falls otherwise.

        Args:
            waveforms: of shapes (C, n_i).

        Returns:
            Codes (K, ceil(n_i / hop_length)), int64, in the order of the clips.

        Raises:
            ValueError: as `encode`.
        """
        clips = [self._clip(w) for w in waveforms]
        chunks = BATCH_CHUNKS.get(self.device.type, BATCH_CHUNKS_ELSEWHERE)
        # Copies are ordinary tensors, which may take part in training; inference tensors may not.
        return [c.clone() for c in self._network.encode_clips(clips, chunks * self._chunk)]

    def latents(self, waveform: Tensor) -> Tensor:
        """What the encoder hands to the quantizer: features of the sound, one vector a frame.

        With segments (48 kHz) these are the latents of sound whose level was taken out, on the grid
        of the codes: the level is a codebook, and no part of them.

        Args:
            waveform: (B, C, N), as `encode` takes it.

        Returns:
            (B, D, T), float32, T = ceil(N / hop_length), D the codec's "dimension".

        Raises:
            ValueError: as `encode`.
        """
        self._check_batch(waveform)
        return torch.stack([self._network.latents(self._clip(clip)).clone() for clip in waveform])

    def decode(self, codes: Tensor, num_samples: int | None = None) -> Tensor:
        """Turn codes into sound.

        Items are decoded one by one and long ones in chunks, so that memory stays bounded and a
        sound does not depend on the batch it is in, not even by rounding.

        Args:
            codes: (B, K, T), whole numbers in [0, V).
            num_samples: what to trim to, 1 to T * hop_length (the default): the last frame of a
                recording is seldom full.

        Returns:
            Waveform (B, C, num_samples), float32; it can leave [-1, 1].

        Raises:
            ValueError: wrong shape or number of codebooks, codes out of range, or `num_samples` is.
        """
        check_codes(codes, self.num_codebooks, self.codebook_size)
        most = codes.shape[2] * self.hop_length
        wanted = most if num_samples is None else num_samples
        if not 1 <= wanted <= most:
            raise ValueError(
                f"num_samples={num_samples}: {codes.shape[2]} frames hold 1 to {most} samples"
            )
        items = codes.to(self.device, torch.int64)
        return torch.stack([self._network.decode_item(item)[:, :wanted] for item in items])

    def decode_stream(self, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        """Turn codes into sound while they come, each sample once later codes cannot change it.

        The blocks, joined, are `decode` of the chunks, joined, but for rounding (1e-6 of the peak);
        and they are the same, bit for bit, for any cutting into chunks and any batch. They are
        short at first, and grow to 0.4 s. With segments they are those, but for the part that the
        next one fades into. Memory is bounded, so that the stream may be endless.

        Args:
            chunks: (B, K, t), as `decode` takes them, B the same in all; read one by one, and no
                further than the next block needs. One of no frames (t = 0) is skipped.

        Yields:
            Blocks (B, C, n), float32, on the codec's device.

        Raises:
            ValueError: for a chunk, when it is read, as `decode`; or one of another B.
        """
        checked = self._checked(chunks)
        first = next(checked, None)
        if first is None:
            return
        # Item by item, as in `decode`; all are in step, so that the copies hold a chunk or two.
        copies = itertools.tee(itertools.chain([first], checked), len(first))
        for blocks in zip(*map(self._decode_item_stream, itertools.count(), copies), strict=True):
            yield torch.stack(blocks)

    def _decode_item_stream(self, item: int, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        return self._network.decode_stream(chunk[item] for chunk in chunks)

    def _checked(self, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        batch: int | None = None
        for chunk in chunks:
            if chunk.shape[1:] == (self.num_codebooks, 0):
                continue
            check_codes(chunk, self.num_codebooks, self.codebook_size)
            batch = batch or len(chunk)
            if len(chunk) != batch:
                raise ValueError(
                    f"codes of shape {tuple(chunk.shape)} after some of a batch of {batch}: "
                    "a stream keeps its batch"
                )
            yield chunk.to(self.device, torch.int64)

    def identity(self) -> dict[str, Any]:
        """Plain data that names this codec, for `load_codec`."""
        return {
            **self._source,
            "fingerprint": self.fingerprint,
            "sample_rate": self.sample_rate,
            "channels": self.channels,
            "frame_rate": self.frame_rate,
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
        }

    def save(self, folder: str | Path, stem: str = "codec") -> Path:
        """Write `stem`.safetensors and `stem`.json to `folder`; return the path of the weights."""
        return save_local(self.settings, self.weights, user_path(folder) / stem)

    def _check_batch(self, waveform: Tensor) -> None:
        if waveform.dim() != 3 or waveform.shape[0] == 0:
            raise ValueError(
                f"waveform of shape {tuple(waveform.shape)}: give (batch, {self.channels}, samples)"
            )

    def _clip(self, waveform: Tensor) -> Tensor:
        check_clip(waveform, self.channels)
        return waveform.detach().to(self.device, torch.float32)


def _fold_weight_norm(model: EncodecModel) -> None:
    """Multiply direction and length of each normalised weight once, instead of at every call."""
    for layer in model.modules():
        if isinstance(layer, SConv1d | SConvTranspose1d) and hasattr(
            convolution(layer), "weight_g"
        ):
            remove_weight_norm(convolution(layer))
