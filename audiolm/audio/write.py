"""Waveforms to WAV files."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from torch import Tensor

from audiolm.audio.convert import check_rate, check_waveform
from audiolm.audio.errors import one_line
from audiolm.audio.replace import replacing
from audiolm.audio.sndfile import sndfile_name

log = logging.getLogger(__name__)

_BITS = {"PCM_16": 16, "PCM_24": 24}


def write_wav(
    path: Path | str, waveform: Tensor, sample_rate: int, subtype: str = "PCM_16"
) -> float:
    """Write ``waveform`` (C, N) as a WAV file and return the gain that was applied.

    Nothing is clipped: where the peak is over full scale (1.0), the whole waveform is divided by it
    and a warning tells the peak; else the gain is 1.0. Folders are made as needed; the file appears
    complete or not at all.

    Args:
        subtype: PCM_16 or PCM_24 (read back within one step of the input), or FLOAT (exactly).

    Raises:
        ValueError: NaN or Inf, no samples, not a float tensor (C, N), an unknown subtype.
        OSError: the file cannot be written.
    """
    check_rate(sample_rate)
    if subtype not in (*_BITS, "FLOAT"):
        raise ValueError(f"subtype is {subtype!r}: must be one of {', '.join((*_BITS, 'FLOAT'))}")
    waveform = waveform.detach().cpu()
    if waveform.is_floating_point():
        waveform = waveform.float()
    check_waveform(waveform)
    if waveform.numel() == 0:
        raise ValueError(f"waveform has shape {tuple(waveform.shape)}: there is nothing to write")
    bad = int((~waveform.isfinite()).sum())
    if bad:
        raise ValueError(f"waveform holds {bad} NaN or Inf samples: not written to {path}")

    peak = float(waveform.abs().max())
    gain = 1.0
    if peak > 1.0:
        gain = 1.0 / peak
        log.warning(
            "%s: the peak is %+.2f dBFS; scaled by %.4f to fit full scale",
            one_line(path),
            20 * math.log10(peak),
            gain,
        )
    samples: np.ndarray[Any, Any] = (waveform.double() * gain).numpy().T
    if subtype == "FLOAT":
        samples = samples.astype(np.float32)
    else:
        # Not libsndfile's own conversion: it writes 32767 times the value and reads 1/32768 of it,
        # which is up to 1.5 steps off and changes a 16-bit recording on its way through.
        steps = 2 ** (_BITS[subtype] - 1)
        integers = np.clip(np.rint(samples * steps), -steps, steps - 1).astype(np.int32)
        samples = integers << (32 - _BITS[subtype])
    with replacing(path) as temporary:
        try:
            soundfile.write(
                sndfile_name(temporary), samples, sample_rate, format="WAV", subtype=subtype
            )
        except soundfile.LibsndfileError as error:
            raise OSError(f"cannot write {one_line(path)}: {error.error_string}") from error
    return gain
