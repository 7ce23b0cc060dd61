from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audiolm.batches.splits import spans_of
from audiolm.training.codec.data import (
    TrainingSegments,
    ValidationSegments,
    WaveformData,
    Waveforms,
    check_segment_settings,
    segment_length,
)
from audiolm.training.codec.options import segment_options

RATE = 800


def write(path: Path, samples: np.ndarray, rate: int = RATE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype="FLOAT")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ramps whose samples tell where they are from: recording i holds (i + 1) / 10 + n / 1e5."""
    made = tmp_path / "in"
    for i, name in enumerate(("a/0.wav", "a/1.wav", "b/2.wav", "3.wav")):
        write(made / name, (i + 1) / 10 + np.arange(400 * (i + 1)) / 1e5)
    return made


def load(folder: Path, **change: int) -> Waveforms:
    options = {"sample_rate": RATE, "channels": 1} | change
    return Waveforms(folder, folder.parent / "cache", **options)


def spans(waveforms: Waveforms) -> np.ndarray:
    return spans_of(np.arange(len(waveforms.ids)), 0, waveforms.lengths)


def segments(waveforms: Waveforms, length: int = 100, **change: object) -> TrainingSegments:
    options = {"level": (-26.0, -16.0), "weights": {}, "seed": 0} | change
    return TrainingSegments(waveforms, spans(waveforms), length, **options)


class Cut:
    """The waveforms of segments, without their bandwidths."""

    def __init__(self, segments: TrainingSegments) -> None:
        self.segments = segments

    def __getitem__(self, g: int) -> torch.Tensor:
        return self.segments[g].waveform


# ---- The cache


def test_samples_are_those_of_the_files(folder: Path) -> None:
    waveforms = load(folder)
    assert waveforms.ids == ["3.wav", "a/0.wav", "a/1.wav", "b/2.wav"]
    assert waveforms.lengths.tolist() == [1600, 400, 800, 1200]
    for i, name in enumerate(waveforms.ids):
        samples, _ = soundfile.read(folder / name, dtype="float32")
        part = waveforms.read(i, 50, 300)
        assert part.shape == (1, 300) and part.dtype == torch.float32
        np.testing.assert_allclose(part[0], samples[50:350], rtol=1e-3)
        assert waveforms.rms[i] == pytest.approx(np.sqrt((samples**2).mean()), rel=1e-4)
    assert waveforms.size == 2 * 4000


def test_stereo_and_other_rates(folder: Path) -> None:
    stereo = np.stack([np.full(4000, 0.5), np.full(4000, -0.25)], axis=1)
    write(folder / "stereo.wav", stereo, 2 * RATE)
    waveforms = load(folder, channels=2)
    index = waveforms.ids.index("stereo.wav")
    assert waveforms.lengths[index] == 2000
    part = waveforms.read(index, 500, 10)
    torch.testing.assert_close(
        part, torch.tensor([[0.5], [-0.25]]).expand(2, 10), atol=1e-3, rtol=0
    )
    # The next recording is where it was, in a folder of another name too.
    assert load(folder).path != waveforms.path


def test_decoded_once_until_a_file_changes(folder: Path) -> None:
    first = load(folder)
    inode = (first.path / "samples.f16").stat().st_ino
    assert (load(folder).path / "samples.f16").stat().st_ino == inode
    write(folder / "a" / "0.wav", np.full(500, 0.3))
    again = load(folder)
    assert again.path != first.path and again.lengths.max() == 1600 and 500 in again.lengths


@pytest.mark.parametrize("damage", ["no samples", "short", "no index", "half an index", "foreign"])
def test_a_cache_that_is_not_whole_is_made_again(folder: Path, damage: str) -> None:
    first = load(folder)
    wanted = first.read(2, 0, 100)
    samples, index = first.path / "samples.f16", first.path / "index.json"
    if damage == "no samples":
        samples.unlink()
    elif damage == "short":
        samples.write_bytes(samples.read_bytes()[:-2])
    elif damage == "no index":
        index.unlink()
    elif damage == "half an index":
        index.write_text(index.read_text()[:20])
    else:
        index.write_text("[1, 2]")
    assert torch.equal(load(folder).read(2, 0, 100), wanted)


def test_a_stop_while_decoding_leaves_nothing_that_is_taken_for_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import audiolm.training.codec.data as module

    original, seen = module.stream_audio, []

    def stop(path: Path, *args: int) -> object:
        seen.append(path)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return original(path, *args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "stream_audio", stop)
        with pytest.raises(KeyboardInterrupt):
            load(folder)
    assert not [f for f in (folder.parent / "cache").rglob("*") if f.is_file()]
    assert len(load(folder).ids) == 4


def test_what_cannot_be_used_is_skipped_with_its_reason(folder: Path) -> None:
    write(folder / "silent.wav", np.zeros(500))
    write(folder / "tiny.wav", np.ones(1), 48000)
    write(folder / "huge.wav", np.full(500, 1e6))
    write(folder / "nan.wav", np.array([0.1, np.nan, 0.1]))
    (folder / "text.wav").write_text("not a sound")
    (folder / "zero.wav").touch()
    for waveforms in (load(folder), load(folder)):  # the second is from the cache
        assert set(waveforms.skipped) == {
            *("silent.wav", "tiny.wav", "huge.wav", "nan.wav", "text.wav", "zero.wav")
        }
        assert "65504" in waveforms.skipped["huge.wav"]
        # Their position in the file is taken by the next recording.
        assert float(waveforms.read(waveforms.ids.index("b/2.wav"), 0, 1)) == pytest.approx(
            0.3, abs=1e-3
        )


def test_nothing_to_use(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no audio files"):
        load(tmp_path / "empty")
    write(tmp_path / "silent" / "x.wav", np.zeros(500))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"none of its 1 recordings .* x.wav: silent"):
            load(tmp_path / "silent")


@pytest.mark.skipif(os.name != "posix", reason="such names are POSIX's")
def test_odd_names(folder: Path) -> None:
    os.rename(folder / "3.wav", os.fsencode(folder) + b"/\n\xc3\xa9.wav")
    waveforms = load(folder)
    assert len(waveforms.ids) == 4
    json.dumps(waveforms.ids)
    WaveformData(waveforms, 10, segment=0.1)


def test_bandwidth_is_where_a_recording_ends(tmp_path: Path) -> None:
    """White noise at 800 Hz has 400 Hz; the same, upsampled to 4,000 Hz, has no more."""
    noise = np.random.default_rng(0).standard_normal(8000) * 0.1
    write(tmp_path / "in" / "wide.wav", noise, 4000)
    write(tmp_path / "in" / "narrow.wav", noise, 800)
    waveforms = load(tmp_path / "in", sample_rate=4000)
    bandwidths = dict(zip(waveforms.ids, waveforms.bandwidths, strict=True))
    assert bandwidths["wide.wav"] > 1900 and 350 < bandwidths["narrow.wav"] < 450
    made = segments(waveforms, augment={"speed": 0.1})
    found = sorted(float(made[g].bandwidth) for g in range(40))
    assert 0.9 * 350 < found[0] < 450 and 1800 < found[-1] <= 2000
    assert len({round(b) for b in found if b < 600}) > 5  # it moves with the speed
    noisy = segments(waveforms, augment={"noise": 1.0})
    assert all(float(noisy[g].bandwidth) == 2000 for g in range(10))


# ---- Segments


@pytest.mark.parametrize("augment", [{}, {"speed": 0.1, "tilt": 0.3, "noise": 0.5, "room": 0.5}])
def test_a_segment_follows_from_seed_and_number(folder: Path, augment: dict[str, float]) -> None:
    waveforms = load(folder)
    one, two, other = (Cut(segments(waveforms, seed=seed, augment=augment)) for seed in (0, 0, 1))
    assert all(torch.equal(one[g], two[g]) for g in (5, 0, 9_999_999))
    assert not torch.equal(one[5], other[5]) and not torch.equal(one[5], one[6])


def test_segments_lie_inside_their_recording_at_a_level_sampled_anew(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / "in" / f"{i}.wav", np.full(150 + i, 0.1 + 0.2 * i))
    found = Cut(segments(load(tmp_path / "in")))
    levels = []
    for g in range(60):
        assert found[g].shape == (1, 100) and float(found[g].std()) < 1e-6  # nothing beside it
        levels.append(20 * np.log10(float(found[g].mean())))
    assert -26.01 < min(levels) < -25 and -17 < max(levels) < -15.99


def test_every_moment_is_as_likely_and_weights_shift_that(folder: Path) -> None:
    waveforms = load(folder)

    def shares(weights: dict[str, float]) -> np.ndarray:
        found = segments(waveforms, weights=weights)
        ends = found._ends / found._ends[-1]
        return np.diff(ends, prepend=0)

    # 3.wav, a/0, a/1, b/2
    assert shares({}) == pytest.approx(np.array([4, 1, 2, 3]) / 10)
    assert shares({"a": 2}) == pytest.approx(np.array([4, 2, 4, 3]) / 13)
    assert shares({"b": 0}) == pytest.approx(np.array([4, 1, 2, 0]) / 7)


@pytest.mark.parametrize(
    "weights, message",
    [
        ({"c": 2}, r"names c: not among the subfolders \(a, b\)"),
        ({"3.wav": 2}, r"names 3.wav"),  # a file is not a subfolder
    ],
)
def test_weights_of_no_subfolder(folder: Path, weights: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        segments(load(folder), weights=weights)


def test_all_weights_0(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a" / "x.wav", np.full(500, 0.1))
    with pytest.raises(ValueError, match="leaves nothing"):
        segments(load(tmp_path / "in"), weights={"a": 0})


def test_short_recordings_are_padded_and_pauses_avoided(tmp_path: Path) -> None:
    sound = np.concatenate([np.zeros(2000), np.full(400, 0.5), np.zeros(2000)])
    write(tmp_path / "in" / "pauses.wav", sound)
    found = Cut(segments(load(tmp_path / "in")))
    # Ten tries of 1 in 8.8: most segments have sound, where 89% would be a pause.
    assert sum(bool(found[g].any()) for g in range(100)) > 60
    long = Cut(segments(load(tmp_path / "in"), length=5000))[0]
    assert long.shape == (1, 5000) and not long[:, 4400:].any() and bool(long[:, 2100].any())


def test_validation_segments_are_the_same_always_and_spread(folder: Path) -> None:
    waveforms = load(folder)
    every = spans(waveforms)
    found = ValidationSegments(waveforms, every, 500, -20.0, 2)
    assert len(found) == 2 and found.spans["clip"].tolist() == [0, 3]
    assert torch.equal(found[1], ValidationSegments(waveforms, every, 500, -20.0, 2)[1])
    gain = 0.1 / waveforms.rms[0]
    assert float(found[0][0, 0]) == pytest.approx(gain * (0.4 + 550 / 1e5), rel=2e-3)
    assert len(ValidationSegments(waveforms, every, 500, -20.0, 9)) == 4
    assert len(ValidationSegments(waveforms, every[:0], 500, -20.0, 9)) == 0
    assert len(ValidationSegments(waveforms, every, 500, -20.0, 0)) == 0
    assert ValidationSegments(waveforms, every, 9000, -20.0, 4)[3].shape == (1, 9000)


def test_validation_recordings_are_not_trained_on(folder: Path) -> None:
    data = WaveformData(load(folder), 12, segment=0.2, valid_segment=0.3, valid_fraction=0.5)
    validation, trained = set(data.valid_spans["clip"]), set(data.train_spans["clip"])
    assert validation and trained and not validation & trained
    assert data.train_segments.length % 12 == data.valid_segments.length % 12 == 0
    assert 160 <= data.train_segments.length < 172
    none = WaveformData(load(folder), 12, segment=0.2, valid_fraction=0)
    assert len(none.valid_segments) == 0 and len(none.train_spans) == 4


def test_a_single_recording_is_split_in_time(tmp_path: Path) -> None:
    write(tmp_path / "in" / "one.wav", np.full(1000, 0.1))
    data = WaveformData(load(tmp_path / "in"), 10, segment=0.5, valid_fraction=0.2)
    assert data.train_spans["frames"].tolist() == [800]
    assert data.valid_spans["start"].tolist() == [800]
    # Long enough as a whole, but not what is left of it to train on.
    with pytest.raises(
        ValueError, match=r"train on lasts 1.00 s, shorter than a segment of 1.10 s"
    ):
        WaveformData(load(tmp_path / "in"), 10, segment=1.1, valid_fraction=0.2)


def test_segments_hold_whole_frames() -> None:
    assert segment_length(0.64, 16000, 320) == 10240
    assert segment_length(0.641, 16000, 320) == 10560
    assert segment_length(1e-9, 16000, 320) == 320


DEFAULTS = segment_options(
    {name: one.default for name, one in inspect.signature(WaveformData).parameters.items()}
)


def test_the_defaults_are_in_range() -> None:
    check_segment_settings(**DEFAULTS)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"num_valid": -1}, "num_valid=-1"),
        ({"valid_fraction": 1.0}, "valid_fraction=1.0"),
        ({"segment": 0}, "segment=0"),
        ({"segment": float("inf")}, "segment=inf"),
        ({"segment": float("nan")}, "segment=nan"),
        ({"valid_segment": -1.0}, "valid_segment=-1.0"),
        ({"level": [-20]}, "level"),
        ({"level": [-10, -20]}, "level"),
        ({"level": [-10, 3]}, "level"),
        ({"level": [float("-inf"), -3]}, "level"),
        ({"level": ["low", "high"]}, "level"),
        ({"weights": 3}, "weights=3"),
        ({"weights": ["a"]}, "weights"),
        ({"weights": {"a": -1}}, "weights"),
        ({"weights": {"a": "much"}}, "weights"),
        ({"weights": {"a": float("nan")}}, "weights"),
    ],
)
def test_settings_out_of_range(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"data.{message}"):
        check_segment_settings(**DEFAULTS | change)


def test_only_files_that_are_named_are_decoded(folder: Path) -> None:
    """Such as a check has kept, in any order; the cache of all is that of the folder."""
    everything = load(folder)
    files = [folder.resolve() / name for name in everything.ids]
    assert Waveforms(folder, folder.parent / "cache", RATE, 1, files[::-1]).path == everything.path
    some = Waveforms(folder, folder.parent / "cache", RATE, 1, [files[2], files[0], files[2]])
    assert some.ids == [everything.ids[0], everything.ids[2]]
    assert torch.equal(some.read(1, 5, 100), everything.read(2, 5, 100))
