"""Each number equals the plain one over all samples at once; faults have a rule and never raise."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audiolm.audio import read_audio
from audiolm.audio.read import AudioBlocks
from audiolm.datasets.checks import measure as module
from audiolm.datasets.checks.measure import NEAR_FULL_SCALE, SLACK, Fault, Measurement, measure


def write(path: Path, samples: np.ndarray, rate: int = 8000, subtype: str = "PCM_16") -> Path:
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


def measured(path: Path, start: float = 0.0, end: float | None = None) -> Measurement:
    result = measure(path, start, end)
    assert isinstance(result, Measurement), result
    return result


def clipped_one_by_one(samples: np.ndarray) -> int:
    """Samples (C, N) in runs of 3 at the highest or the lowest value of their channel."""

    def runs(values: np.ndarray) -> Iterator[int]:
        top = values.max()
        for at_top, run in groupby(values.tolist(), lambda value: value == top):
            length = len(list(run))
            if at_top and top >= NEAR_FULL_SCALE and length >= 3:
                yield length

    return sum(sum(runs(channel)) + sum(runs(-channel)) for channel in samples)


@pytest.mark.parametrize("block", [1, 7, 64, 65536])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_measurements_equal_those_over_all_samples(tmp_path, monkeypatch, block, channels):
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(channels)
    for case in range(6):
        drift = rng.uniform(-0.3, 0.3, channels)
        samples = rng.normal(0, 0.6, (int(rng.integers(1, 400)), channels)) + drift
        if case % 2:
            samples = np.repeat(samples, 3, axis=0)  # runs at every value
        path = write(tmp_path / "a.wav", np.clip(samples, -1, 1), 8000 + case)
        waveform, rate = read_audio(path)
        exact = waveform.double().numpy()
        result = measured(path)
        assert (result.num_samples, result.sample_rate) == (exact.shape[1], rate)
        assert (result.channels, result.format) == (channels, "WAV PCM_16")
        assert result.peak == np.abs(exact).max()
        assert result.rms == pytest.approx(np.sqrt(exact.var(axis=1).mean()), abs=1e-9)
        mix = exact.mean(axis=0).std()
        assert result.mix_rms == pytest.approx(mix, abs=1e-9)
        assert result.offset == pytest.approx(np.abs(exact.mean(axis=1)).max(), abs=1e-12)
        assert result.clipped == clipped_one_by_one(waveform.numpy()) / exact.size


def test_clipping_while_the_peak_rises(tmp_path, monkeypatch):
    """What was counted at a peak is void once there is a higher one, wherever blocks end."""
    steps = np.repeat([0.5, 0.981, 0.99, -0.985, 0.99, -0.999, 0.99], [5, 4, 3, 6, 4, 3, 2])
    path = write(tmp_path / "a.wav", steps, subtype="FLOAT")
    for block in range(1, 30):
        monkeypatch.setattr(module, "_BLOCK", block)
        assert measured(path).clipped == (3 + 4 + 3) / 27, block


def test_what_counts_as_clipped(tmp_path):
    time = np.arange(16000) / 16000
    sine = np.sin(2 * np.pi * 440 * time)
    square = np.sign(sine)

    def share(samples: np.ndarray, subtype: str = "PCM_16") -> float:
        return measured(write(tmp_path / "a.wav", samples, 16000, subtype)).clipped

    for subtype in ("PCM_16", "PCM_24", "FLOAT", "PCM_U8", "ULAW", "ALAW"):
        assert share(np.clip(2 * sine, -1, 1), subtype) > 0.5, subtype
        assert share(0.5 * square, subtype) == 0, subtype
        assert share(0.5 * sine, subtype) == 0, subtype
    assert share(np.clip(2 * sine, -1, 0.1)) == pytest.approx(1 / 3, abs=0.02)  # below only
    assert share(0.999 * sine) < 1e-3
    assert share(0.97 * np.clip(2 * sine, -1, 1)) == 0  # turned down: not to be distinguished
    assert share(1.5 * sine, "FLOAT") == 0  # beyond full scale, and not clipped
    assert share(square) > 0.9


def test_a_constant_is_silence_with_an_offset(tmp_path):
    result = measured(write(tmp_path / "a.wav", np.full(8000, 0.25)))
    assert result.rms < 1e-6 and result.offset == 0.25 and result.peak == 0.25
    both = np.stack([np.full(8000, 0.25), np.full(8000, -0.5)], axis=1)
    result = measured(write(tmp_path / "b.wav", both))
    assert result.rms < 1e-6 and result.offset == 0.5
    result = measured(write(tmp_path / "c.wav", np.zeros(8000)))
    assert result.rms == result.peak == result.offset == result.clipped == 0


def test_the_key_is_of_the_sound_and_of_nothing_else(tmp_path, monkeypatch):
    samples = np.random.default_rng(0).integers(-9000, 9000, (4000, 2)).astype(np.int16)
    key = measured(write(tmp_path / "a.wav", samples)).key
    same = [
        write(tmp_path / "a.flac", samples),
        write(tmp_path / "a.aiff", samples),
        write(tmp_path / "f.wav", samples / 32768, subtype="FLOAT"),
        write(tmp_path / "24.wav", samples.astype(np.int32) << 16, subtype="PCM_24"),
    ]
    assert {measured(path).key for path in same} == {key}
    monkeypatch.setattr(module, "_BLOCK", 17)
    assert measured(tmp_path / "a.wav").key == key
    changed = samples.copy()
    changed[1234, 1] += 1
    others = [
        write(tmp_path / "rate.wav", samples, 8001),
        write(tmp_path / "mono.wav", samples[:, 0]),
        write(tmp_path / "joined.wav", samples.reshape(-1)),
        write(tmp_path / "swapped.wav", samples[:, ::-1]),
        write(tmp_path / "changed.wav", changed),
        write(tmp_path / "shorter.wav", samples[:-1]),
        write(tmp_path / "longer.wav", np.pad(samples, ((0, 1), (0, 0)))),
    ]
    assert len({key, *(measured(path).key for path in others)}) == 8


def test_the_key_is_what_stores_on_disk_hold(tmp_path):
    """Another way to make it would encode everything again."""
    samples = np.arange(-500, 500, dtype=np.int16).reshape(-1, 2)
    key = measured(write(tmp_path / "a.wav", samples)).key
    hashed = b"8000 2\n" + (samples / 32768).astype("<f4").tobytes()
    assert key == int.from_bytes(hashlib.blake2b(hashed, digest_size=8).digest(), "little")


def test_a_part_of_a_file(tmp_path):
    samples = np.random.default_rng(0).integers(-9000, 9000, 8000).astype(np.int16)
    whole = write(tmp_path / "whole.flac", samples)
    part = write(tmp_path / "part.wav", samples[2000:6000])
    rest = write(tmp_path / "rest.wav", samples[6000:])
    assert measured(whole, 0.25, 0.75) == measured(part)._replace(format="FLAC PCM_16")
    assert measured(whole, 0.75) == measured(rest)._replace(format="FLAC PCM_16")
    assert measured(whole, 0.75, 1 + SLACK * 0.9).key == measured(rest).key
    result = measure(whole, 0.75, 1 + SLACK * 1.1)
    assert result == Fault("truncated", "the file ends at 1.000 s, the clip at 1.055 s")
    for start, end in ((1.0, None), (3.0, 4.0), (-1.0, None), (0.5, 0.5), (0.5, 0.2)):
        assert isinstance(measure(whole, start, end), Fault), (start, end)
    assert isinstance(measure(whole, float("nan")), Fault)


def test_faults(tmp_path):
    noise = np.random.default_rng(0).normal(0, 0.1, 40_000)
    (tmp_path / "text.wav").write_text("hello")
    (tmp_path / "zero.wav").touch()
    (tmp_path / "folder.wav").mkdir()
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "loop.wav").symlink_to(tmp_path / "loop.wav")
    write(tmp_path / "none.wav", np.zeros(0))
    write(tmp_path / "nan.wav", np.where(np.arange(40_000) == 30_000, np.nan, noise), 8000, "FLOAT")
    for name in ("cut.flac", "cut.wav"):
        whole = write(tmp_path / name, noise).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    expected = {
        "text.wav": "unreadable",
        "zero.wav": "unreadable",
        "folder.wav": "unreadable",
        "pipe.wav": "unreadable",
        "loop.wav": "unreadable",
        "gone.wav": "unreadable",
        "zero\0byte.wav": "unreadable",
        "none.wav": "unreadable",
        "nan.wav": "not_finite",
        "cut.flac": "truncated",
        "cut.wav": "truncated",
    }
    for name, rule in expected.items():
        result = measure(tmp_path / name)
        assert isinstance(result, Fault) and result.rule == rule, (name, result)
        assert result.reason and "\n" not in result.reason
    assert "3.750 s" in measure(tmp_path / "nan.wav").reason


def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for seconds in (30, 300):
        noise = np.random.default_rng(0).integers(-9000, 9000, seconds * 8000).astype(np.int16)
        path = write(tmp_path / "a.flac", noise)
        del noise
        measured(path)
        tracemalloc.start()
        measured(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 4e6


def test_what_was_noticed_while_decoding_is_measured(tmp_path, monkeypatch):
    path = write(tmp_path / "a.wav", np.zeros(9000))
    assert (measured(path).trailing, measured(path).missing) == (0, 0)
    path.write_bytes(path.read_bytes() + b"junk" * 9)
    assert measured(path).trailing == 36
    monkeypatch.setattr(AudioBlocks, "missing", property(lambda self: 1.5))
    assert measured(path).missing == 1.5
