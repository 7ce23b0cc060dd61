"""Long recordings in sections: the frames of the whole, whatever the rates and what is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audiolm.audio import AudioError, read_audio, resample
from audiolm.codec import Margins
from audiolm.tokens import TokenStore
from audiolm.tokens.encoding import decode as reading_module
from audiolm.tokens.encoding.decode import Decoded, DecodeJob, Recording, decode_jobs
from audiolm.tokens.encoding.sections import Framing

RATES = (100, 4000, 8000, 11025, 16000, 22050, 44100, 44099, 48000, 192_000)


def test_sections_are_the_frames_of_the_whole_cut_at_whole_samples():
    rng = np.random.default_rng(0)
    for _ in range(500):
        target, rate = (int(rng.choice(RATES[1:])), int(rng.choice(RATES)))
        hop = int(rng.choice([1, 75, 80, 320, 512]))
        grid = int(rng.choice([1, 4, 148]))
        left, right = (int(n) for n in rng.integers(0, 200, 2))
        framing = Framing(target, 1, hop, grid, left, right, length=grid * int(rng.integers(1, 9)))
        samples = int(rng.integers(1, 100_000))
        resampled = framing.num_samples(samples, rate)
        frames = int(framing.num_frames(np.array([samples]), np.array([rate]))[0])
        assert frames == -(-resampled // hop)
        if frames == 0 or frames > 5000:
            continue
        count = framing.num_sections(frames)
        sections = [framing.section(n, samples, rate) for n in range(count)]
        assert [s.begin for s in sections] == list(range(0, frames, framing.length))
        assert [s.end for s in sections] == [*(s.begin for s in sections[1:]), frames]
        for s in sections:
            assert s.begin % grid == s.start % grid == 0
            assert s.start == 0 or s.begin - s.start >= left
            assert s.stop == frames or s.stop - s.end >= right
            # The samples are those from frame `cut` on, and enough for frame `stop`.
            assert s.first * target == s.cut * hop * rate and 0 <= s.cut <= s.start
            held = framing.num_samples(s.last - s.first, rate)
            assert held >= (s.stop - s.cut) * hop or s.last == samples
            if s.stop == frames:
                assert s.last == samples and s.cut * hop + held == resampled
        keys = {s.key(1) for s in sections} | {s.key(2) for s in sections}
        assert len(keys) == 2 * count


@pytest.mark.parametrize("rate", RATES[:-1])
def test_lengths_are_those_of_resampling(rate):
    framing = Framing(16000, 1, 320, 1, 0, 0, 100)
    for samples in (1, 2, 99, 1000, 4567):
        expected = resample(torch.zeros(1, samples), rate, 16000).shape[1]
        assert framing.num_samples(samples, rate) == expected


def test_framing_of_a_codec(codec, make_tiny_codec):
    assert Framing.of(codec, 1.0) == (8000, 1, 80, 4, 1, 1, 100)
    assert Framing.of(codec, 0.001).length == 4
    tiny = make_tiny_codec(segment=0.6, norm="time_group_norm", bins=512, channels=2)
    framing = Framing.of(tiny, 10.0)
    assert (framing.channels, framing.grid, framing.length) == (2, 38, 18 * 38)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="section_seconds"):
            Framing.of(codec, wrong)


def a_recording(path: Path, start: float = 0.0, end: float | None = None) -> Recording:
    samples, rate = read_audio(path, None, 1, start, None if end is None else end - start)
    status = path.stat()
    return Recording(
        0, path, start, end, samples.shape[1], rate, status.st_size, status.st_mtime_ns
    )


def read(recording: Recording, numbers: list[int], framing: Framing) -> list[Decoded]:
    sections = [framing.section(n, recording.num_samples, recording.sample_rate) for n in numbers]
    groups = list(decode_jobs([DecodeJob([recording], sections)], framing, num_workers=0))
    assert all(len(group) == 1 for group in groups)
    return [group[0] for group in groups]


@pytest.mark.parametrize("form", ["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize(("start", "end"), [(0.0, None), (1.3, None), (1.3, 20.9)])
def test_any_sections_of_any_stretch_are_read_in_one_pass(tmp_path, monkeypatch, form, start, end):
    path = tmp_path / f"a.{form}"
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, (21 * 8000, 2)).astype(np.float32)
    soundfile.write(path, noise, 8000)
    recording = a_recording(path, start, end)
    framing = Framing(8000, 1, 80, 4, 6, 5, 132)
    expected, _ = read_audio(path, 8000, 1, start, None if end is None else end - start)
    opened = 0
    stream = reading_module.stream_audio

    def counted(*arguments, **keywords):
        nonlocal opened
        opened += 1
        return stream(*arguments, **keywords)

    monkeypatch.setattr(reading_module, "stream_audio", counted)
    for numbers in (list(range(15)), [0], [14], [3, 4, 12], [1, 13]):
        found = read(recording, numbers, framing)
        assert len(found) == len(numbers)
        for decoded in found:
            s = decoded.section
            assert np.array_equal(decoded.audio, expected[:, s.start * 80 : s.stop * 80])
    assert opened == 5


@pytest.mark.parametrize("rate", [4000, 11025, 44100, 44099])
def test_resampled_sections_are_the_whole_resampled(tmp_path, rate):
    path = tmp_path / "a.wav"
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, 20 * rate).astype(np.float32)
    soundfile.write(path, noise, rate, subtype="FLOAT")
    framing = Framing(8000, 1, 80, 1, 9, 4, 300)
    expected = read_audio(path, 8000)[0].numpy()
    for decoded in read(a_recording(path), list(range(7)), framing):
        s = decoded.section
        whole = expected[:, s.start * 80 : s.stop * 80]
        assert decoded.audio.shape == whole.shape
        # -80 dB; at rates with a common factor -110 dB.
        assert np.abs(decoded.audio - whole).max() < (1e-4 if rate == 44099 else 3e-6)


def test_a_file_that_ends_elsewhere_than_it_did_is_reported(tmp_path):
    path = tmp_path / "a.wav"
    framing = Framing(8000, 1, 80, 1, 0, 0, 100)
    soundfile.write(path, np.zeros(30_000), 8000)
    for other in (29_000, 31_000):
        recording = a_recording(path)._replace(num_samples=other)
        found = read(recording, list(range(4)), framing)
        assert found[-1].audio == "changed since it was checked; run prepare again"
        group = next(iter(decode_jobs([DecodeJob([recording], [])], framing, 0)))
        assert group[0].audio == found[-1].audio
    missing = recording._replace(path=tmp_path / "b.wav")
    assert [d.audio for d in read(missing, [0, 1], framing)] == ["No such file or directory"]


def test_a_fault_in_the_middle_is_reported_after_the_sections_before_it(tmp_path):
    samples = np.random.default_rng(0).uniform(-0.3, 0.3, 100_000).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="FLOAT")
    recording = a_recording(tmp_path / "a.wav")
    samples[70_000] = np.nan
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="FLOAT")
    status = (tmp_path / "a.wav").stat()
    recording = recording._replace(size=status.st_size, mtime_ns=status.st_mtime_ns)
    found = read(recording, list(range(13)), Framing(8000, 1, 80, 1, 0, 0, 100))
    assert isinstance(found[-1].audio, str) and "not finite" in found[-1].audio
    with pytest.raises(AudioError, match="not finite"):
        read_audio(tmp_path / "a.wav")


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 800),
        ({}, 1100),
        ({"lstm": 1, "causal": True}, 800),
        ({"segment": 0.6, "norm": "time_group_norm", "bins": 512, "channels": 2}, 800),
        ({"segment": 0.6, "norm": "time_group_norm", "bins": 512, "channels": 2}, 1000),
    ],
    ids=str,
)
def test_codes_of_sections_are_those_of_the_whole(
    tmp_path, make_tiny_codec, prepare, settings, rate
):
    codec = make_tiny_codec(**settings)
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, (70 * rate + 13, 2)).astype(np.float32)
    (tmp_path / "r").mkdir()
    soundfile.write(tmp_path / "r" / "long.wav", noise, rate, subtype="FLOAT")
    prepare(tmp_path / "r", codec, tmp_path / "store", section_seconds=6.0)
    waveform, _ = read_audio(tmp_path / "r" / "long.wav", codec.sample_rate, codec.channels)
    whole = codec.encode(waveform[None])[0].numpy()
    codes = TokenStore(tmp_path / "store").codes(0)
    assert codes.shape == whole.shape
    # Rounding in resampling and in the network moves a code that is a near tie.
    assert (codes == whole).mean() > (0.999 if rate == 800 else 0.99)


def test_a_codec_of_one_frame_margins_needs_them(codec, make_codec, tmp_path, prepare, recordings):
    """The fake codec's codes change where a section has no margins or is off its grid."""
    prepare(recordings, codec, tmp_path / "store")
    for margins in (Margins(4, 0, 1), Margins(4, 1, 0), Margins(1, 1, 1)):
        other = make_codec(fingerprint=str(margins))
        other.margins = margins
        prepare(recordings, other, tmp_path / other.fingerprint, section_seconds=0.99)
        different = [
            not np.array_equal(
                TokenStore(tmp_path / "store").codes(i),
                TokenStore(tmp_path / other.fingerprint).codes(i),
            )
            for i in range(25)
        ]
        assert sum(different) == 1
