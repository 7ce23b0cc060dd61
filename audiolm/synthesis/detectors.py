"""Two ways in which generation fails for good: it falls silent, or it goes round in circles.

Recordings have pauses and held notes too. So the detectors tell how long and where; what is too
long is for the caller to say, best by comparison with what the model was trained on.

Letters: C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_HOP = 0.01  # seconds between two measurements of the level


@dataclass(frozen=True)
class Silence:
    """start, duration: seconds. threshold: dBFS (rms) that the level stayed below."""

    start: float
    duration: float
    threshold: float


@dataclass(frozen=True)
class Loop:
    """start, duration: seconds. frames: `duration` in codec frames.

    pattern: the codes of codebook 0 that come round; () where there is no loop.
    """

    start: float
    duration: float
    frames: int
    pattern: tuple[int, ...]

    @property
    def repeats(self) -> float:
        """How often the pattern sounds; the last time may be cut."""
        return self.frames / len(self.pattern) if self.pattern else 0.0


def longest_silence(
    waveform: Tensor, sample_rate: int, below: float = 40.0, floor: float = -60.0
) -> Silence:
    """The longest span of a clip in which is silent; of duration 0 where there is none.

    The level is the rms of steps of 10 ms, over all channels. Silent is what lies `below` dB under
    the loud part of the clip (the level that 5% of the steps reach: a click does not set it), since
    recordings differ in level; and in any case what lies under `floor`, or a clip of faint noise
    from end to end would pass for loud.

    Args:
        waveform: (N,) or (C, N) float.
        sample_rate: Hz.
        below: dB.
        floor: dBFS.

    Raises:
        ValueError: another shape, no samples, NaN or Inf.
    """
    if waveform.ndim not in (1, 2) or waveform.numel() == 0:
        raise ValueError(f"waveform has shape {tuple(waveform.shape)}: must be (N,) or (C, N)")
    if not waveform.isfinite().all():
        raise ValueError("waveform holds NaN or Inf: its level cannot be measured")
    hop = max(1, round(_HOP * sample_rate))
    power = waveform.double().square().reshape(-1, waveform.shape[-1]).mean(dim=0)
    steps = torch.stack([step.mean() for step in torch.split(power, hop)])
    level = 10 * torch.log10(steps + 1e-20)
    threshold = max(float(level.quantile(0.95)) - below, floor)
    start, length = _longest_run(level < threshold)
    end = min((start + length) * hop, waveform.shape[-1])  # the last step may be a part
    return Silence(start * hop / sample_rate, (end - start * hop) / sample_rate, threshold)


def longest_loop(
    codes: Tensor, frame_rate: float, max_period: float = 0.3, min_repeats: int = 4
) -> Loop:
    """The longest span of a clip in which a short pattern of codes repeats exactly.

    Looked at is codebook 0, which holds most of the sound; the others may still wander in a loop.
    A span counts if its pattern is at most `max_period` seconds long and sounds `min_repeats`
    times or more. Both keep music out: its bars repeat, but they are longer, and take turns with
    others. What remains in recordings are silence and held notes, where one code may stay for long.
    `longest_run` is the same for patterns of one frame.

    Args:
        codes: (K, T) whole numbers.
        frame_rate: codec frames per second.
        max_period: seconds.
        min_repeats: at least 2.

    Raises:
        ValueError: another shape, or a number outside its range.
    """
    if not max_period > 0 or min_repeats < 2:
        raise ValueError(
            f"max_period is {max_period} s and min_repeats {min_repeats}: "
            "must be above 0, and at least 2"
        )
    longest_period = max(1, math.floor(max_period * frame_rate + 1e-6))
    return _longest_loop(codes, frame_rate, longest_period, min_repeats)


def longest_run(codes: Tensor, frame_rate: float) -> Loop:
    """The longest span (two frames or more) in which codebook 0 is stuck on one code.

    Args and raises as `longest_loop`.
    """
    return _longest_loop(codes, frame_rate, longest_period=1, min_repeats=2)


def _longest_loop(codes: Tensor, frame_rate: float, longest_period: int, min_repeats: int) -> Loop:
    if codes.ndim != 2 or codes.shape[0] == 0:
        raise ValueError(f"codes have shape {tuple(codes.shape)}: must be (K, T)")
    first = codes[0]
    found = Loop(0.0, 0.0, 0, ())
    # Shortest period first: AAAA is a loop of A, not of AA.
    for period in range(1, min(longest_period, len(first) // min_repeats) + 1):
        start, length = _longest_run(first[period:] == first[:-period])
        frames = length + period
        if frames >= min_repeats * period and frames > found.frames:
            pattern = tuple(first[start : start + period].tolist())
            found = Loop(start / frame_rate, frames / frame_rate, frames, pattern)
    return found


def _longest_run(flags: Tensor) -> tuple[int, int]:
    """Start and length of the longest run of True in (n,); (0, 0) where there is none."""
    outside = torch.zeros(1, dtype=torch.int32)
    edges = torch.diff(flags.int(), prepend=outside, append=outside)
    starts, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    if len(starts) == 0:
        return 0, 0
    i = int((ends - starts).argmax())
    return int(starts[i]), int(ends[i] - starts[i])
