"""Silences and loops: found where they were put, with their length, and not in music."""

import pytest
import torch
from torch import Tensor

from audiolm.demo.melodies import SAMPLE_RATE, sample_melody, synthesise
from audiolm.synthesis.detectors import longest_loop, longest_run, longest_silence

RATE = 8000
FRAME_RATE = 50


def noise(seconds: float, level: float = -20.0) -> Tensor:
    """White noise of `level` dBFS (rms)."""
    generator = torch.Generator().manual_seed(round(1000 * seconds))
    return 10 ** (level / 20) * torch.randn(round(seconds * RATE), generator=generator)


def random_codes(frames: int, seed: int = 0) -> Tensor:
    return torch.randint(256, (4, frames), generator=torch.Generator().manual_seed(seed))


# ---- Silence


def test_finds_the_longest_of_two_silences() -> None:
    clip = torch.cat([noise(1), torch.zeros(RATE // 2), noise(1), torch.zeros(RATE), noise(0.5)])
    found = longest_silence(clip, RATE)
    assert (found.start, found.duration) == pytest.approx((2.5, 1.0), abs=0.021)
    assert found.threshold == pytest.approx(-20 + 1 - 40, abs=0.5)  # the loudest steps


def test_what_is_silent_depends_on_the_loud_part() -> None:
    """A hum of -50 dBFS: a pause beside speech at -5, not in a clip of its own level."""
    hum = noise(1, level=-50)
    assert longest_silence(torch.cat([noise(2, -5), hum]), RATE).duration == pytest.approx(
        1, abs=0.03
    )
    assert longest_silence(torch.cat([noise(2, -20), hum]), RATE).duration == 0
    assert longest_silence(hum, RATE).duration == 0


def test_a_click_does_not_make_the_rest_silent() -> None:
    clip = noise(3, level=-45)
    clip[RATE : RATE + 80] = 1
    assert longest_silence(clip, RATE).duration == 0


def test_faint_clips_are_silent_from_end_to_end() -> None:
    for clip in (torch.zeros(RATE + 3), noise(1.0, level=-75), torch.full((1, 50), 1e-9)):
        assert longest_silence(clip, RATE).duration == clip.shape[-1] / RATE


def test_a_channel_that_sounds_is_no_silence() -> None:
    assert longest_silence(torch.stack([noise(1), torch.zeros(RATE)]), RATE).duration == 0


def test_the_demo_set_has_no_silence() -> None:
    for i in range(20):
        assert longest_silence(synthesise(sample_melody(0, i)), SAMPLE_RATE).duration < 0.03


def test_refuses_no_sound() -> None:
    for clip, message in (
        (torch.zeros(0), "shape"),
        (torch.zeros(1, 1, 5), "shape"),
        (torch.tensor([0, torch.inf]), "Inf"),
    ):
        with pytest.raises(ValueError, match=message):
            longest_silence(clip, RATE)


# ---- Loops


@pytest.mark.parametrize("start", [0, 37, 140])
def test_finds_a_code_that_is_stuck(start: int) -> None:
    codes = random_codes(200)
    codes[0, start : start + 60] = 300  # not among the others
    for find in (longest_run, longest_loop):
        found = find(codes, FRAME_RATE)
        assert (found.start, found.duration) == (start / 50, 60 / 50)
        assert (found.frames, found.pattern, found.repeats) == (60, (300,), 60)


@pytest.mark.parametrize("period", [2, 7, 15])
def test_finds_a_pattern_that_comes_round(period: int) -> None:
    codes = random_codes(300)
    pattern = torch.arange(300, 300 + period)
    codes[0, 50:150] = pattern.repeat(100)[:100]
    found = longest_loop(codes, FRAME_RATE)
    assert (found.frames, found.pattern) == (100, tuple(pattern.tolist()))
    assert found.repeats == 100 / period
    assert longest_run(codes, FRAME_RATE).frames < 5


def test_only_short_patterns_that_repeat_often_count() -> None:
    codes = random_codes(300)
    codes[0, 100:130] = torch.arange(300, 310).repeat(3)
    assert longest_loop(codes, FRAME_RATE).frames < 10  # three times
    assert longest_loop(codes, FRAME_RATE, min_repeats=3).frames == 30
    codes[0, 100:300] = torch.arange(300, 340).repeat(5)
    assert longest_loop(codes, FRAME_RATE).frames < 10  # 0.8 s
    assert longest_loop(codes, FRAME_RATE, max_period=0.8).frames == 200


def test_bars_that_repeat_are_no_loop() -> None:
    """A code for each frame of each note of a piece: as a perfect codec would have it."""
    for i in range(50):
        degrees = torch.tensor(sample_melody(0, i).piece.degrees)
        codes = (10 * degrees[:, None] + torch.arange(10)).reshape(1, -1)
        assert longest_loop(codes, FRAME_RATE).pattern == ()
        held = degrees.repeat_interleave(10)[None]  # a code a note
        assert longest_loop(held, FRAME_RATE).frames == 10


def test_short_clips_have_no_loop() -> None:
    for frames in (0, 1):
        found = longest_loop(random_codes(frames), FRAME_RATE)
        assert (found.duration, found.pattern, found.repeats) == (0, (), 0)
    assert longest_run(torch.tensor([[7, 7]]), FRAME_RATE).frames == 2


def test_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="shape"):
        longest_loop(torch.zeros(5), FRAME_RATE)
    with pytest.raises(ValueError, match="shape"):
        longest_run(torch.zeros(0, 5), FRAME_RATE)
    for arguments in ({"max_period": 0}, {"min_repeats": 1}):
        with pytest.raises(ValueError, match="must be above 0, and at least 2"):
            longest_loop(torch.zeros(1, 5), FRAME_RATE, **arguments)
