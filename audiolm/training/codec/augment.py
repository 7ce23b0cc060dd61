"""Variations of a recording that make few voices count for more in a codec's training.

What is varied is the sound itself, so the codec has to give back the varied one.

C audio channels, N audio samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from audiolm.limits import HALF, SHARE

Samples = NDArray[np.float32]

AUGMENT: dict[str, float] = {
    "speed": 0.0,  # most change of pitch and pace, as a share: 0.1 is from 0.9 to 1.1 times
    "tilt": 0.0,  # largest coefficient of a first-order filter: 0.3 is -3 to 2 dB at the top
    "noise": 0.0,  # share of the segments that get noise, 20 to 40 dB below the recording
    "room": 0.0,  # share of the segments that get a room's echo of 0.1 to 0.4 s
}
NOISE_DB = (20.0, 40.0)  # below the recording's level
REVERBERATION = (0.1, 0.4)  # seconds in which an echo falls by 60 dB
ECHO_DB = (8.0, 20.0)  # of the echo's energy below the direct sound's


def check_augment(given: Mapping[str, Any] | None) -> dict[str, float]:
    """`given`, completed by `AUGMENT`.

    Raises:
        ValueError: an unknown key, or a value out of range.
    """
    options = AUGMENT | dict(given or {})
    unknown = sorted(set(options) - set(AUGMENT))
    if unknown:
        raise ValueError(f"data.augment.{unknown[0]} is unknown; the keys are {', '.join(AUGMENT)}")
    for name, value in options.items():
        (HALF if name == "speed" else SHARE).check(f"data.augment.{name}", value)
    return options


def change_speed(samples: Samples, sample_rate: int, factor: float, length: int) -> Samples:
    """(C, N) played `factor` times as fast, pitch included: (C, length).

    N should be `source_length(length, factor)`; what a shorter one lacks at its end is zeros.
    """
    changed = soxr.resample(samples.T, factor * sample_rate, sample_rate).T[:, :length]
    return np.pad(changed, ((0, 0), (0, length - changed.shape[1])))


def source_length(length: int, factor: float) -> int:
    """Samples that `change_speed` needs for `length`."""
    return math.ceil(length * factor) + 1


def tilt_spectrum(samples: Samples, coefficient: float) -> Samples:
    """(C, N) with its highs lowered (coefficient above 0) or raised, its level kept."""
    tilted = samples.copy()
    tilted[:, 1:] += np.float32(coefficient) * samples[:, :-1]
    return _at_level_of(tilted, samples)


def add_noise(samples: Samples, rms: float, rng: np.random.Generator) -> Samples:
    """(C, N) with noise of some colour, `NOISE_DB` below `rms`."""
    noise = rng.standard_normal(samples.shape, np.float32)
    noise = tilt_spectrum(noise, float(rng.uniform(-0.5, 0.95)))
    return samples + np.float32(rms * 10 ** (-rng.uniform(*NOISE_DB) / 20)) * noise


def add_room(samples: Samples, sample_rate: int, rng: np.random.Generator) -> Samples:
    """(C, N) in a room made of noise that dies away, its level kept.

    Source: Habets 2006, "Room impulse response generator", on Polack's statistical model.
    """
    seconds = rng.uniform(*REVERBERATION)
    echo = rng.standard_normal(max(1, round(seconds * sample_rate)), np.float32)
    echo *= np.exp(-6.9 * np.arange(len(echo)) / len(echo), dtype=np.float32)
    echo *= np.float32(10 ** (-rng.uniform(*ECHO_DB) / 20) / max(1e-6, float(np.linalg.norm(echo))))
    size = samples.shape[1] + len(echo)
    spectrum = np.fft.rfft(samples, size) * (1 + np.fft.rfft(echo, size))
    wet = np.fft.irfft(spectrum, size)[:, : samples.shape[1]].astype(np.float32)
    return _at_level_of(wet, samples)


def _at_level_of(samples: Samples, others: Samples) -> Samples:
    before, now = (float(np.sqrt(np.square(x).mean())) for x in (others, samples))
    return samples * np.float32(before / max(now, 1e-9))
