"""The segments of a tiny stereo codec: 20 frames of 12 samples, one every 18 frames."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from audiolm.codec.network.segments import code_to_level, level_to_code, running_median

SEGMENT, STRIDE, HOP = 20, 18, 12


@pytest.fixture(scope="module")
def codec(make_tiny_codec):  # type: ignore[no-untyped-def]
    return make_tiny_codec(channels=2, norm="time_group_norm", segment=0.3, bins=512, lstm=1)


def noise(frames: float, seed: int = 0) -> Tensor:
    """(2, frames * HOP)"""
    return torch.randn(2, round(frames * HOP), generator=torch.Generator().manual_seed(seed))


def test_there_is_one_codebook_more(codec) -> None:
    assert codec.settings["n_q"] == 4
    assert codec.num_codebooks == 5 and codec.identity()["num_codebooks"] == 5


def test_fewer_codebooks_keep_the_level(codec) -> None:
    x = noise(50)[None]
    every = codec.encode(x)
    three = type(codec)(codec.settings, codec.weights, num_codebooks=3)
    assert torch.equal(three.encode(x), every[:, [0, 1, 4]])
    with pytest.raises(ValueError, match="2 to 5"):
        type(codec)(codec.settings, codec.weights, num_codebooks=1)


def test_time_is_exact_for_every_length(codec) -> None:
    edges = [SEGMENT, SEGMENT + STRIDE, SEGMENT + 2 * STRIDE]
    lengths = [1, 2, HOP - 1, HOP, HOP + 1]
    lengths += [e * HOP + d for e in edges for d in (-HOP, -1, 0, 1, HOP, 2 * HOP + 1, 3 * HOP)]
    for n in lengths:
        x = noise(60)[:, :n]
        codes = codec.encode(x[None])
        frames = math.ceil(n / HOP)
        assert codes.shape == (1, 5, frames)
        assert codec.decode(codes).shape == (1, 2, frames * HOP)
        assert codec.decode(codes, n).shape == (1, 2, n)
        assert torch.isfinite(codec.decode(codes)).all()


def test_every_frame_is_of_the_segment_that_hears_it(codec, package_model) -> None:
    """Frame f of the grid is the package's code for the same twelve samples."""
    model = package_model(codec)
    for frames in (20, 21, 39, 56.5, 100):
        x = noise(frames)
        codes = codec.encode(x[None])[0]
        total = codes.shape[1]
        begins = range(0, max(1, total - 2), STRIDE)
        for begin in begins:
            part = x[None, :, begin * HOP : (begin + SEGMENT) * HOP]
            network, scale = model.encode(part)[0]
            first, last = begin == 0, begin == begins[-1]
            own = slice(0 if first else 1, total - begin if last else SEGMENT - 1)
            grid = codes[:, begin + own.start : begin + own.stop]
            assert torch.equal(grid[:4], network[0, :, own])
            decibel = 20 * torch.log10(scale).item()
            assert (grid[4] * 0.5 - 160 - decibel).abs().max() <= 0.2501


def test_decoding_puts_every_frame_where_it_was(codec, package_model) -> None:
    model = package_model(codec)
    codes = codec.encode(noise(75)[None])
    sound = codec.decode(codes)[0]
    for begin in range(0, 73, STRIDE):
        network = codes[:, :4, begin : begin + SEGMENT]
        level = code_to_level(codes[0, 4, begin + 1])
        alone = model.decode([(network, level.view(1, 1))])[0]
        own = slice(2 * HOP if begin else 0, (SEGMENT - 2) * HOP)  # where no neighbour mixes in
        there = sound[:, begin * HOP :][:, own]
        torch.testing.assert_close(there, alone[:, own][:, : there.shape[1]], rtol=1e-4, atol=1e-5)


def test_segments_fade_into_each_other_linearly(codec, package_model) -> None:
    model = package_model(codec)
    codes = codec.encode(noise(30)[None])
    sound = codec.decode(codes)[0]
    first, second = (
        model.decode([(codes[:, :4, b : b + SEGMENT], torch.ones(1))])[0]
        * code_to_level(codes[0, 4, b : b + SEGMENT]).repeat_interleave(HOP)
        for b in (0, STRIDE)
    )
    rising = (torch.arange(24) + 0.5) / 24
    mixed = first[:, STRIDE * HOP :] * (1 - rising) + second[:, :24] * rising
    torch.testing.assert_close(sound[:, STRIDE * HOP : SEGMENT * HOP], mixed)


def test_levels_come_back(codec) -> None:
    """12 dB less every second: 24 steps less; and the network's own codes do not care."""
    one = noise(SEGMENT)
    base = codec.encode(one[None])
    level = int(base[0, 4, 0])
    assert (base[0, 4] == level).all()
    for decibel in (12, -12, -40):
        codes = codec.encode(one[None] * 10 ** (decibel / 20))
        assert abs(int(codes[0, 4, 0]) - level - 2 * decibel) <= 1
        assert (codes[:, :4] == base[:, :4]).float().mean() > 0.99
        gain = codec.decode(codes).std() / codec.decode(base).std()
        assert abs(20 * math.log10(gain) - decibel) < 0.6

    falling = torch.cat([noise(SEGMENT) * 0.25**i for i in range(6)], dim=1)
    steps = codec.encode(falling[None])[0, 4]
    assert steps[0] - steps[-1] > 100
    loud, quiet = codec.decode(codec.encode(falling[None]))[0].split(60 * HOP, dim=1)
    assert loud.std() > 30 * quiet.std()


def test_level_steps_cover_silence_to_far_above_full_scale() -> None:
    levels = torch.tensor([1e-8, 1e-3, 0.1, 1.0, 1e9])
    assert level_to_code(levels).tolist() == [0, 200, 280, 320, 511]
    fine = torch.logspace(-7.9, 4, 1000)
    back = code_to_level(level_to_code(fine))
    assert (20 * torch.log10(back / fine)).abs().max() < 0.2501


def test_silence_stays_silent(codec) -> None:
    codes = codec.encode(torch.zeros(1, 2, 50 * HOP))
    assert (codes[:, 4] == 0).all()
    assert codec.decode(codes).abs().max() < 1e-5


def test_a_few_levels_sampled_wrong_are_inaudible(codec) -> None:
    codes = codec.encode(noise(SEGMENT)[None])
    other = codes.clone()
    other[:, 4, 3:8] = 500
    assert torch.equal(codec.decode(other), codec.decode(codes))


def test_levels_need_not_change_where_a_segment_begins() -> None:
    levels = torch.tensor([200] * 33 + [260] * 40)
    assert torch.equal(running_median(levels), levels)
    assert torch.equal(running_median(levels[:1]), levels[:1])


def test_batch_and_single_agree(codec) -> None:
    clips = [noise(f, seed=i) for i, f in enumerate((30, 1 / 12, 75.5, 20, 38, 39, 30, 60))]
    alone = [codec.encode(clip[None])[0] for clip in clips]
    for a, b in zip(alone, codec.encode_batch(clips), strict=True):
        assert torch.equal(a, b)


def test_silent_half_second_before_a_sound_stays_silent(codec) -> None:
    """Time through encoding and decoding: the onset is in the segment it was in."""
    x = torch.cat([torch.zeros(2, 4 * STRIDE * HOP), noise(40)], dim=1)
    sound = codec.decode(codec.encode(x[None]))[0]
    assert sound[:, : 3 * STRIDE * HOP].abs().max() < 1e-5
    assert sound[:, 4 * STRIDE * HOP + 24 :].abs().max() > 1e-3
