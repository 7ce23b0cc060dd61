"""What every codec of this project is: waveform in, codes out, and back.

B batch, C audio channels, N audio samples, K codebooks, T codec frames, V codes in a codebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Margins(NamedTuple):
    """How frames [begin, end) of a long recording are encoded as they would be within the whole.

    `begin` and the first frame that is encoded are multiples of `grid`; `left` frames before
    `begin` and `right` frames from `end` on are encoded along, and dropped (where the recording
    begins or ends sooner, all that there are).
    """

    grid: int
    left: int
    right: int


class Codec(Protocol):
    """A waveform (B, C, N) to codes (B, K, T) and back, T = ceil(N / hop_length).

    Several threads may encode at the same time.

    Codes are int64 in [0, codebook_size). All numbers describe the codec as it is used, that is
    with the number of codebooks that was chosen.
    """

    @property
    def device(self) -> torch.device:
        """Where it works and where its results are; see `to`."""

    @property
    def sample_rate(self) -> int:
        """Samples a second (Hz)."""

    @property
    def channels(self) -> int:
        """C: 1 mono, 2 stereo."""

    @property
    def hop_length(self) -> int:
        """Samples a frame."""

    @property
    def frame_rate(self) -> float:
        """Frames a second: sample_rate / hop_length, not rounded."""

    @property
    def num_codebooks(self) -> int:
        """K."""

    @property
    def codebook_size(self) -> int:
        """V."""

    @property
    def margins(self) -> Margins:
        """What a section of a long recording needs of its neighbours."""

    @property
    def fingerprint(self) -> str:
        """The same for the same settings and weights, whatever the device or K."""

    def encode(self, waveform: Tensor) -> Tensor:
        """Waveform (B, C, N) to codes (B, K, T)."""

    def encode_batch(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """Clips (C, n_i) of unlike lengths to codes (K, t_i), each as if it were alone."""

    def decode(self, codes: Tensor, num_samples: int | None = None) -> Tensor:
        """Codes (B, K, T) to a waveform (B, C, num_samples), by default all T * hop_length."""

    def decode_stream(self, chunks: Iterable[Tensor]) -> Iterator[Tensor]:
        """Chunks of codes (B, K, t) to blocks of sound (B, C, n), as soon as they are final."""

    def to(self, device: torch.device | str) -> Codec:
        """Move to the device where it is to work and where its results are; return itself."""

    def identity(self) -> dict[str, Any]:
        """Plain data that a checkpoint and a store keep to name the codec (see `load_codec`)."""


def check_clip(clip: Tensor, channels: int) -> None:
    """Refuse what cannot be encoded: clip must be (C, N), floating point, finite, not empty.

    Raises:
        ValueError: one line with the value, the limit and the remedy.
    """
    if clip.dim() != 2 or clip.shape[0] != channels:
        remedy = "mix it down to mono first" if channels == 1 else f"give it {channels} channels"
        if clip.dim() != 2:
            remedy = "give one clip alone"
        elif clip.shape[1] == channels and clip.shape[0] > channels:
            remedy = "transpose it, as by waveform.T"  # as soundfile and SciPy read it
        raise ValueError(
            f"waveform of shape {tuple(clip.shape)}: this codec takes ({channels}, samples); "
            f"{remedy}"
        )
    if not clip.is_floating_point():
        raise ValueError(f"waveform of {clip.dtype}: give floating point samples in [-1, 1]")
    if clip.shape[1] == 0:
        raise ValueError("waveform of 0 samples: give at least one sample")
    if not bool(torch.isfinite(clip).all()):
        bad = int((~torch.isfinite(clip)).sum())
        raise ValueError(
            f"waveform with {bad} samples that are NaN or infinite: every sample must be finite, "
            "repair or leave out this recording"
        )


def check_codes(codes: Tensor, num_codebooks: int, codebook_size: int) -> None:
    """Refuse codes that the decoder's table look-ups could not serve; must be (B, K, T).

    On a GPU an index out of range kills the process's CUDA context, so it is caught before.

    Raises:
        ValueError: one line with the value, the limit and the remedy.
    """
    if codes.dim() != 3 or codes.shape[1] != num_codebooks:
        raise ValueError(
            f"codes of shape {tuple(codes.shape)}: give (batch, {num_codebooks}, frames), as many "
            "codebooks as the codec has"
        )
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise ValueError(f"codes of {codes.dtype}: give whole numbers (int64)")
    if codes.shape[0] == 0 or codes.shape[2] == 0:
        raise ValueError(f"codes of shape {tuple(codes.shape)}: give at least one item and frame")
    low, high = (int(x) for x in torch.aminmax(codes.long()))
    if low < 0 or high >= codebook_size:
        raise ValueError(
            f"codes from {low} to {high}: they must lie in [0, {codebook_size}); "
            "cells without a code (special tokens) must be cut off before decoding"
        )
