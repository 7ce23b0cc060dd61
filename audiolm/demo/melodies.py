"""The demo set: short pieces of plucked and struck notes, made by code from a seed.

Everything that varies comes in a few kinds, all equally likely: the piece (see `grammar`), its
timbre, which beats of the bar are strong, how loud it is. Nothing else is random, no phase and no
noise. So the entropy of the set is known to the bit (`BITS_A_PIECE`), and it bounds from above what
the codes of a piece hold, whatever the codec.

Each note fills its slot and no more: equal bars of a piece are equal samples.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from audiolm.audio import AUDIO_SUFFIXES, write_wav
from audiolm.demo.grammar import GRAMMAR, Piece
from audiolm.files import replacing, user_path

VERSION = 3  # goes up when the same seed gives other samples
SAMPLE_RATE = 16000  # Hz
NOTE_DURATION = 0.2  # seconds: whole frames at 50, 75 and 100 frames/s
NOTE_SAMPLES = round(NOTE_DURATION * SAMPLE_RATE)
PIECE_DURATION = GRAMMAR.notes * NOTE_DURATION  # seconds

GAINS = (-4.0, -8.0)  # dBFS, the peak of the strong notes
ACCENTS = (
    # dB of the notes of a bar
    (0.0, -4.0, -4.0, -4.0),
    (0.0, 0.0, 0.0, 0.0),
)


@dataclass(frozen=True)
class Timbre:
    """partials: frequency as a multiple of the note's, amplitude, decay in nepers/s."""

    name: str
    partials: tuple[tuple[float, float, float], ...]


# Partial n of a string that is plucked at a fifth of its length has the amplitude
# sin(n pi / 5) / n**1.3 and decays the faster the higher it is. Struck bars: a marimba's is cut so
# that its partials are 1 : 4 : 10, a glockenspiel's is plain. (Fletcher and Rossing, "The Physics
# of Musical Instruments", chapters 2 and 19.)
TIMBRES = (
    Timbre(
        "string",
        tuple(
            (float(n), abs(math.sin(n * math.pi / 5)) / n**1.3, 2.5 * (1 + 0.3 * n))
            for n in range(1, 17)
            if n % 5
        ),
    ),
    Timbre("wooden bar", ((1.0, 1.0, 7.0), (4.0, 0.3, 18.0), (10.0, 0.1, 40.0))),
    Timbre(
        "metal bar",
        ((1.0, 1.0, 4.0), (2.756, 0.35, 8.0), (5.404, 0.2, 14.0), (8.933, 0.1, 20.0)),
    ),
)

NUM_MELODIES = GRAMMAR.count * len(TIMBRES) * len(ACCENTS) * len(GAINS)
"""How many the set is sampled from; each is as likely as any other."""
BITS_A_PIECE = math.log2(NUM_MELODIES)
"""Of all that varies. GRAMMAR.bits are those of the notes alone."""


@dataclass(frozen=True)
class Melody:
    """A piece and how it is played: indices into TIMBRES, ACCENTS and GAINS."""

    piece: Piece
    timbre: int
    accents: int
    gain: int


def sample_melody(seed: int, index: int) -> Melody:
    """What melody `index` of the set of this seed is."""
    number = int(np.random.default_rng([seed, index]).integers(NUM_MELODIES))
    number, timbre = divmod(number, len(TIMBRES))
    number, accents = divmod(number, len(ACCENTS))
    number, gain = divmod(number, len(GAINS))
    return Melody(GRAMMAR.piece(number), timbre, accents, gain)


def synthesise(melody: Melody) -> Tensor:
    """The melody as sound, (1, N) float32 at SAMPLE_RATE."""
    accents = ACCENTS[melody.accents]
    notes = [
        10 ** ((GAINS[melody.gain] + accents[i % GRAMMAR.bar]) / 20) * note(melody.timbre, pitch)
        for i, pitch in enumerate(melody.piece.pitches)
    ]
    return torch.from_numpy(np.concatenate(notes).astype(np.float32))[None]


@cache
def note(timbre: int, midi: int) -> NDArray[np.float64]:
    """One note, (NOTE_SAMPLES,), of peak 1."""
    time = np.arange(NOTE_SAMPLES) / SAMPLE_RATE
    hertz = to_hertz(midi)
    sound = np.zeros(NOTE_SAMPLES)
    for ratio, amplitude, decay in TIMBRES[timbre].partials:
        if ratio * hertz < 0.45 * SAMPLE_RATE:
            sound += amplitude * np.exp(-decay * time) * np.sin(2 * np.pi * ratio * hertz * time)
    # Against clicks; the first sample of the next note is 0 too.
    sound *= np.minimum(1, time / 0.002) * np.minimum(1, (NOTE_DURATION - time) / 0.015)
    sound /= np.abs(sound).max()
    sound.flags.writeable = False  # it is shared
    return sound


def to_hertz(midi: float) -> float:
    """Frequency of a MIDI note number, A4 = 69 at 440 Hz."""
    return float(440 * 2 ** ((midi - 69) / 12))


def make_melodies(folder: str | Path, num_melodies: int = 700, seed: int = 0) -> None:
    """Write the melodies 0 .. num_melodies - 1 of a seed into `folder`, 16-bit WAV of 6.4 s each.

    Files that are there already are kept, so that an interrupted run resumes. Beside them lie
    `melodies.json`, which tells what the folder holds, and, once all is written, `metadata.csv`:
    what each melody is, in the layout of an audio folder of the Hugging Face datasets package.

    Raises:
        ValueError: `folder` holds another set, or audio files that are not of this one.
        OSError: a file cannot be written.
    """
    folder = user_path(folder)
    _claim(folder, {"version": VERSION, "seed": seed, "num_melodies": num_melodies})
    melodies = {_name(i): sample_melody(seed, i) for i in range(num_melodies)}
    bar = tqdm(melodies.items(), "making melodies", leave=False, delay=1, disable=None)
    for name, melody in bar:
        if not (folder / name).exists():
            write_wav(folder / name, synthesise(melody), SAMPLE_RATE)
    metadata = folder / "metadata.csv"
    if not metadata.exists():
        with replacing(metadata) as temporary, temporary.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("file_name", "key", "timbre", "accents", "gain", "degrees"))
            for name, melody in melodies.items():
                degrees = " ".join(map(str, melody.piece.degrees))
                timbre = TIMBRES[melody.timbre].name
                rows.writerow(
                    (name, melody.piece.key, timbre, melody.accents, GAINS[melody.gain], degrees)
                )


def _name(index: int) -> str:
    return f"melody_{index:04d}.wav"


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Make sure that all melodies of a folder are of one set. Checked first: a run may be cut."""
    record = folder / "melodies.json"
    if not record.exists():
        strangers = [
            path.name for path in folder.glob("*") if path.suffix.lower() in AUDIO_SUFFIXES
        ]
        if strangers:
            raise ValueError(
                f"{folder} holds audio that is not of this demo set ({min(strangers)}): "
                "remove the folder, or name another"
            )
        with replacing(record) as temporary:
            temporary.write_text(json.dumps(wanted) + "\n")
        return
    text = record.read_text(errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        found = text[:60]
    if found != wanted:
        raise ValueError(
            f"{folder} holds the melodies {found!r}, wanted are {wanted}: "
            "remove the folder to make them anew"
        )
