"""What a model has learnt of the demo set, in metrics that can be checked by ear.

Letters: B samples, K codebooks, T codec frames, N audio samples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from audiolm.audio import read_audio
from audiolm.codec import EncodecCodec
from audiolm.demo.grammar import GRAMMAR
from audiolm.demo.scores import Scores, score_clips
from audiolm.generation import Sampling
from audiolm.model.checkpoint import TrainedModel
from audiolm.synthesis.detectors import longest_loop, longest_run, longest_silence
from audiolm.synthesis.synthesizer import Synthesizer

DURATION = 5.0  # seconds of a sample: 25 notes


@dataclass(frozen=True)
class DemoScores:
    """What was found in a number of clips.

    Attributes:
        scores: how well they keep to the grammar.
        silence: seconds of the longest silence in any.
        run: seconds for which codebook 0 is stuck on one code, at most.
        loop: seconds of the longest span in which a pattern of up to 0.3 s repeats.
    """

    scores: Scores
    silence: float
    run: float
    loop: float

    def metrics(self) -> dict[str, float]:
        """As plain numbers, by name."""
        return {
            "legal_notes": self.scores.legal_notes,
            "legal_transitions": self.scores.legal_transitions,
            "tonic_starts": self.scores.tonic_starts,
            "repeated_bars": self.scores.repeated_bars,
            "whole_pieces": self.scores.whole_pieces,
            "longest_silence": self.silence,
            "longest_run": self.run,
            "longest_loop": self.loop,
        }


def score_waveforms(waveforms: Tensor, codes: Tensor, codec: EncodecCodec) -> DemoScores:
    """Track the notes of waveforms (B, 1, N), and look for silence and for loops in their codes.

    codes: (B, K, T), those that the waveforms were decoded from.
    """
    return DemoScores(
        score_clips(list(waveforms[:, 0]), codec.sample_rate),
        max(longest_silence(w, codec.sample_rate).duration for w in waveforms),
        max(longest_run(c, codec.frame_rate).duration for c in codes),
        max(longest_loop(c, codec.frame_rate).duration for c in codes),
    )


def score_recordings(pieces: Sequence[Path], codec: EncodecCodec) -> DemoScores:
    """The beginnings of real pieces after the codec: the best that a model can score."""
    clips = [read_audio(p, codec.sample_rate, codec.channels, duration=DURATION)[0] for p in pieces]
    codes = torch.stack(codec.encode_batch(clips))
    return score_waveforms(codec.decode(codes, clips[0].shape[1]).cpu(), codes.cpu(), codec)


def score_samples(
    trained: TrainedModel,
    codec: EncodecCodec,
    seeds: Sequence[int],
    sampling: Sampling,
    folder: Path,
) -> DemoScores:
    """Samples of a model, one a seed, of DURATION; written to `folder` as piece_000.wav and .png.

    Raises:
        FloatingPointError: the model gives NaN.
        OSError: the folder cannot be written.
    """
    job = Synthesizer(trained, codec).job(
        seeds,
        math.ceil(DURATION * codec.frame_rate),
        audio_samples=round(DURATION * codec.sample_rate),
        sampling=dataclasses.replace(sampling, end=False),  # all of one length
    )
    samples = job.samples(score=False)
    for i, sample in enumerate(samples):
        sample.save_sound(folder / f"piece_{i:03d}")
    waveforms = torch.stack([sample.waveform for sample in samples])
    return score_waveforms(waveforms, torch.stack([sample.codes for sample in samples]), codec)


def comparison(samples: DemoScores, ceiling: DemoScores, num_samples: int) -> str:
    """A table: what the samples score, what real melodies score after the codec, and chance."""
    chance = {"legal_notes": 1.0, "legal_transitions": GRAMMAR.chance_of_transition}
    lines = [
        f"scores (shares from 0 to 1, or seconds) of {num_samples} samples of {DURATION:g} s, "
        f"beside real melodies after the codec (ceiling) and random notes of the scale (random)",
        f"  {'':<24}{'samples':>8}{'ceiling':>9}{'random':>8}",
    ]
    real = ceiling.metrics()
    for name, value in samples.metrics().items():
        unit = " (s)" if name.startswith("longest") else ""
        random = f"{chance[name]:8.2f}" if name in chance else ""
        lines.append(f"  {name.replace('_', ' ') + unit:<24}{value:8.2f}{real[name]:9.2f}{random}")
    return "\n".join(lines)
