"""Waveforms as FLAC in memory: lossless at half the size of WAV, and every browser plays it.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import io

import numpy as np
import soundfile
from torch import Tensor

from audiolm.audio.write import pcm_16


def flac_bytes(waveform: Tensor, sample_rate: int) -> bytes:
    """The waveform (C, N) as a FLAC file of 16 bits; the same waveform gives the same bytes.

    Raises:
        ValueError: as `pcm_16`; more channels or a higher rate than FLAC has.
    """
    samples = np.frombuffer(pcm_16(waveform).data, "<i2").reshape(-1, waveform.shape[0])
    file = io.BytesIO()
    try:
        soundfile.write(file, samples, sample_rate, format="FLAC", subtype="PCM_16")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"{waveform.shape[0]} channels at {sample_rate} Hz do not go into FLAC: "
            f"{error.error_string}"
        ) from error
    return file.getvalue()
