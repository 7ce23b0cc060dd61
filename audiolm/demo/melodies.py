"""The demo set: short melodies of plucked notes, made by code from a seed.

A melody is a walk of one or two degrees up or down a pentatonic scale, in notes of equal length
and unequal loudness. Each melody has an instrument of its own, from dull to bright.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from audiolm.audio import write_wav

SAMPLE_RATE = 8000  # Hz
NOTE_DURATION = 0.2  # seconds
NOTES = 24  # a melody
PENTATONIC = (0, 2, 4, 7, 9)  # semitones above the tonic
TONIC = 220.0  # Hz
DEGREES = 10  # two octaves


def make_melodies(folder: str | Path, num_melodies: int = 400, seed: int = 0) -> None:
    """Write `num_melodies` WAV files of NOTES * NOTE_DURATION seconds into `folder`.

    The same seed gives the same samples. Files that are there already are kept as they are.
    """
    folder = Path(folder)
    for i in range(num_melodies):
        path = folder / f"melody_{i:04d}.wav"
        if not path.exists():
            samples = melody(np.random.default_rng([seed, i]))
            write_wav(path, torch.from_numpy(samples)[None], SAMPLE_RATE)


def melody(rng: np.random.Generator) -> NDArray[np.float32]:
    """One melody, (N,) at SAMPLE_RATE."""
    damping = rng.uniform(2, 6)
    degree = int(rng.integers(DEGREES))
    notes = []
    for _ in range(NOTES):
        notes.append(rng.uniform(0.4, 1.0) * pluck(frequency(degree), damping))
        moves = [d for d in (-2, -1, 1, 2) if 0 <= degree + d < DEGREES]
        degree += int(rng.choice(moves))
    return np.concatenate(notes).astype(np.float32)


def frequency(degree: int) -> float:
    """Hz of a degree of the scale, 0 being the tonic."""
    octave, step = divmod(degree, len(PENTATONIC))
    return float(TONIC * 2 ** (octave + PENTATONIC[step] / 12))


def pluck(hertz: float, damping: float) -> NDArray[np.float64]:
    """One note, (N,): six harmonics that die away at `damping` times their number, nepers/s."""
    time = np.arange(round(NOTE_DURATION * SAMPLE_RATE)) / SAMPLE_RATE
    note = np.zeros_like(time)
    for harmonic in range(1, 7):
        if harmonic * hertz < 0.45 * SAMPLE_RATE:
            decay = np.exp(-time * damping * harmonic)
            note += decay * np.sin(2 * np.pi * harmonic * hertz * time) / harmonic
    fade = np.minimum(1, np.minimum(time, time[::-1]) / 0.005)  # 5 ms, against clicks
    return 0.4 * fade * note
