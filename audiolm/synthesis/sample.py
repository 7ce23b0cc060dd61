"""`Sample`: what was generated, how to hear it, to save it, and what is known of it.

Letters: C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import soundfile
from torch import Tensor

from audiolm.audio import write_wav
from audiolm.files import replacing, user_path
from audiolm.spectrogram import plot_spectrogram
from audiolm.synthesis.detectors import Loop, Silence, longest_loop, longest_silence


@dataclass(frozen=True)
class Speed:
    """How fast samples were generated, all of a batch together, decoding included.

    None where nothing was generated: where the prompt fills the duration.
    """

    frames_per_second: float | None
    realtime_factor: float | None
    """Seconds of sound in a second, without the prompt's."""


def speed_of(generated: float, frame_rate: float, seconds: float) -> Speed:
    """The speed of samples of `generated` seconds of sound in all, made in `seconds`."""
    realtime = generated / seconds if generated else None
    return Speed(None if realtime is None else realtime * frame_rate, realtime)


@dataclass(frozen=True, eq=False)
class Sample:
    """A generated sample. In a notebook it shows a player.

    Attributes:
        waveform: (C, N) float32 on the CPU, nominally in [-1, 1]. A sample that did not reach an
            end token has the length asked for.
        sample_rate: Hz.
        codes: (K, T) int64 on the CPU, the prompt's first, unchanged.
        frame_rate: of the codes, a second.
        seed: with the same settings it gives the same sample.
        ended: whether it reached its end token, rather than the duration.
        nats_per_code: mean cross-entropy of the codes, with the end, under the model and its
            conditions, without temperature, guidance or top_k: low is probable. NaN where it was
            not computed.
        speed: of the batch that it was generated in.
        settings: all settings, the checkpoint and the codec, as plain data.
    """

    waveform: Tensor = field(repr=False)
    sample_rate: int
    codes: Tensor = field(repr=False)
    frame_rate: float
    seed: int
    ended: bool
    nats_per_code: float = math.nan
    speed: Speed = Speed(None, None)
    settings: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.waveform.shape[1] / self.sample_rate

    @cached_property
    def longest_silence(self) -> Silence:
        """See `detectors.longest_silence`."""
        return longest_silence(self.waveform, self.sample_rate)

    @cached_property
    def longest_loop(self) -> Loop:
        """See `detectors.longest_loop`."""
        return longest_loop(self.codes, self.frame_rate)

    @property
    def title(self) -> str:
        """Of its picture."""
        return f"step {self.settings.get('step')}, seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """Settings and what was measured, as plain data: what `save` writes beside the sound."""
        loop = {**dataclasses.asdict(self.longest_loop), "repeats": self.longest_loop.repeats}
        return {
            **self.settings,
            "seed": self.seed,
            "duration": self.duration,
            "ended": self.ended,
            "nats_per_code": self.nats_per_code,
            "longest_silence": dataclasses.asdict(self.longest_silence),
            "longest_loop": loop,
            **dataclasses.asdict(self.speed),
        }

    def save(self, path: str | Path) -> Path:
        """Write NAME.wav, its spectrogram NAME.png and NAME.json; return the path of the WAV.

        Each file appears complete or not at all; folders are made as needed. A peak above full
        scale is scaled to it, and the gain stands in the JSON.

        Args:
            path: NAME.wav, or NAME.

        Raises:
            OSError: a file cannot be written.
        """
        stem = stem_of(path)
        gain = self.save_sound(stem)
        write_json(stem, {**self.describe(), "gain": gain})
        return with_ending(stem, ".wav")

    def save_sound(self, path: str | Path, title: str | None = None) -> float:
        """Write NAME.wav and its spectrogram NAME.png alone; return the gain.

        Args:
            path: NAME.wav, or NAME.
            title: of the picture; None names the step and the seed.

        Raises:
            OSError: a file cannot be written.
        """
        stem = stem_of(path)
        gain = write_wav(with_ending(stem, ".wav"), self.waveform, self.sample_rate)
        picture = with_ending(stem, ".png")
        plot_spectrogram(picture, self.waveform, self.sample_rate, title or self.title)
        return gain

    def _repr_html_(self) -> str:
        """A player and a line of text. The sound is inside: nothing is loaded from elsewhere."""
        file = io.BytesIO()
        peak = max(1.0, float(self.waveform.abs().max()))
        samples = (self.waveform / peak).T.numpy()
        soundfile.write(file, samples, self.sample_rate, format="WAV", subtype="PCM_16")
        sound = base64.b64encode(file.getvalue()).decode("ascii")
        conditions = self.settings.get("conditioning") or {}
        words = [f"{column} {value}" for column, value in conditions.items()]
        words += [f"seed {self.seed}", f"{self.duration:.2f} s"]
        if not math.isnan(self.nats_per_code):
            words.append(f"{self.nats_per_code:.2f} nats per code")
        caption = html.escape(", ".join(words))
        player = f'<audio controls src="data:audio/wav;base64,{sound}"></audio>'
        return f"<figure>{player}<figcaption>{caption}</figcaption></figure>"


def stem_of(path: str | Path) -> Path:
    """NAME of NAME.wav; any other path is one already."""
    path = user_path(path)
    return path.with_suffix("") if path.suffix.lower() == ".wav" else path


def with_ending(stem: Path, ending: str) -> Path:
    """The stem with an ending more: a name may have a dot of its own."""
    return stem.with_name(stem.name + ending)


def write_json(stem: Path, about: dict[str, Any]) -> None:
    """Write STEM.json, complete or not at all."""
    with replacing(with_ending(stem, ".json")) as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
