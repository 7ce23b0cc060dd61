"""What a sample begins with: a recording, a waveform or another sample, as codes.

Letters: C audio channels, N audio samples, K codebooks, P prompt frames.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from audiolm.audio import read_audio
from audiolm.codec import Codec
from audiolm.codec.base import check_clip
from audiolm.files import short
from audiolm.synthesis.request import Request, Waveform
from audiolm.synthesis.sample import Sample


def encode_prompt(request: Request, codec: Codec, context_frames: int) -> Tensor | None:
    """Codes (K, P) of the prompt, whole frames only: the last, padded one would be a seam.

    Raises:
        ValueError: for less than a frame, and more than the model's context or the duration.
        OSError, AudioError: a file that cannot be read.
    """
    if request.prompt is None:
        return None
    if isinstance(request.prompt, Sample):
        check_sample(request.prompt, codec)
        codes = _first_frames(request.prompt, request.prompt_duration)
        _check_length(codes.shape[1], request, codec, context_frames)
        return codes
    waveform = read_waveform(request.prompt, codec, request.prompt_duration)
    frames = waveform.shape[1] // codec.hop_length
    if frames < 1:
        name = request.prompt if isinstance(request.prompt, str | Path) else "given as a waveform"
        raise ValueError(
            f"the prompt {name} has {waveform.shape[1]} samples, less than one frame of "
            f"{codec.hop_length}; take a longer one"
        )
    _check_length(frames, request, codec, context_frames)
    return codec.encode(waveform[None, :, : frames * codec.hop_length])[0]


def read_waveform(
    audio: str | Path | Waveform, codec: Codec, duration: float | None = None
) -> Tensor:
    """(C, N) of a file, at the codec's rate and channels, or of a waveform that has these.

    Args:
        duration: seconds from the start; None for all.

    Raises:
        ValueError: a waveform of another shape, of no samples, or not of finite floats.
        OSError, AudioError: a file that cannot be read.
    """
    if isinstance(audio, str | Path):
        return read_audio(audio, codec.sample_rate, codec.channels, duration=duration)[0]
    if not isinstance(audio, Tensor | np.ndarray | list | tuple):
        raise ValueError(
            f"{type(audio).__name__} is no sound; give a file's path, a waveform "
            f"({codec.channels}, samples) at {codec.sample_rate} Hz, or a Sample"
        )
    try:
        # A view that runs backwards, or is in another machine's order of bytes, is none of torch's.
        waveform = torch.as_tensor(audio if isinstance(audio, Tensor) else _plain_array(audio))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"the {type(audio).__name__} holds no waveform ({short(str(error))}); give numbers of "
            f"shape ({codec.channels}, samples)"
        ) from error
    if waveform.ndim == 1:
        waveform = waveform[None]
    check_clip(waveform, codec.channels)
    end = None if duration is None else max(1, round(duration * codec.sample_rate))
    return waveform[..., :end]


def _plain_array(audio: object) -> np.ndarray[Any, Any]:
    """Numbers in rows, as NumPy lays them out by itself."""
    array = np.ascontiguousarray(audio)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check_sample(sample: Sample, codec: Codec) -> None:
    """Refuse the codes of a sample that another codec would decode: they mean other sounds here.

    Raises:
        ValueError: with both codecs, and what to pass instead.
    """
    then = (sample.settings.get("codec") or {}).get("fingerprint", codec.fingerprint)
    layout = (sample.codes.shape[0], sample.frame_rate)
    if (then, *layout) != (codec.fingerprint, codec.num_codebooks, codec.frame_rate):
        raise ValueError(
            f"the sample is of codec {then} ({layout[0]} codebooks, {layout[1]:g} frames/s), this "
            f"model's is {codec.fingerprint} ({codec.num_codebooks} codebooks, "
            f"{codec.frame_rate:g} frames/s); pass its waveform, at {codec.sample_rate} Hz"
        )


def _first_frames(sample: Sample, duration: float | None) -> Tensor:
    end = None if duration is None else max(1, int(duration * sample.frame_rate))
    return sample.codes[:, :end]


def _check_length(frames: int, request: Request, codec: Codec, context_frames: int) -> None:
    seconds, context = frames / codec.frame_rate, context_frames / codec.frame_rate
    if frames > context_frames or seconds > request.duration:
        raise ValueError(
            f"the prompt of {seconds:.2f} s must be no longer than the model's context of "
            f"{context:.2f} s and than duration={request.duration:g}, which includes it; pass "
            f"prompt_duration={min(context, request.duration) / 2:.2g}"
        )
