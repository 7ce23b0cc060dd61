"""Decoded beside original: what is right, what is wrong with the tokens, and what is not there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audiolm.codec import EncodecCodec, load_bundled
from audiolm.demo import make_melodies
from audiolm.tokens import TokenStore
from audiolm.tokens.reconstruction import (
    ReconstructedClip,
    ReconstructionReport,
    choose_clips,
    listen,
)

REAL_AUDIO = Path(__file__).resolve().parents[3] / "shared" / "audio"

Prepare = Callable[..., Any]


@pytest.fixture
def pictures() -> None:
    """For the test that looks at them: plotting takes most of the time."""


@pytest.fixture(autouse=True)
def without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("audiolm.tokens.reconstruction._plot_pair", lambda *arguments: None)


@pytest.fixture(scope="module")
def bundled() -> EncodecCodec:
    return load_bundled(8)


@pytest.fixture
def melodies(tmp_path: Path, prepare: Prepare, bundled: EncodecCodec) -> TokenStore:
    """Four of the demo's pieces."""
    make_melodies(tmp_path / "demo", 4)
    prepare(tmp_path / "demo", bundled, tmp_path / "store", batch_seconds=60, section_seconds=60)
    return TokenStore(tmp_path / "store")


def reconstruct(
    store: TokenStore, codec: Any, folder: Path, count: int, **more: Any
) -> ReconstructionReport:
    return listen(store, codec, folder, count, show_progress=False, **more)


def change_codes(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch, change: Callable[[int], np.ndarray]
) -> None:
    """Let the store hold `change(clip)` instead."""
    monkeypatch.setattr(
        store, "read", lambda clip, start, length: change(clip)[:, start : start + length]
    )


def test_good_tokens_are_usable_for_training(
    melodies, bundled, tmp_path: Path, pictures: None
) -> None:
    report = reconstruct(melodies, bundled, tmp_path / "listen", 2)
    assert report.usable is True
    assert report.verdict().startswith("the tokens are usable for training")
    assert len(report.clips) == 2 and not report.not_compared
    for i, clip in enumerate(report.clips):
        assert clip.nearness < 1 and clip.si_snr > 3
        assert clip.duration == pytest.approx(6.4)
        pair = []
        for kind in ("original", "decoded"):
            samples, rate = soundfile.read(tmp_path / "listen" / f"{i:03d}_{kind}.wav")
            assert rate == bundled.sample_rate and len(samples) == round(6.4 * rate)
            pair.append(samples)
        source, _ = soundfile.read(clip.path)
        assert np.allclose(pair[0], source, atol=1e-4)
        picture = (tmp_path / "listen" / f"{i:03d}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
    written = json.loads((tmp_path / "listen" / "listen.json").read_text())
    assert written == report.as_dict()
    assert written["medians"]["si_snr"] == report.si_snr
    assert written["clips"][0]["id"] == report.clips[0].id


@pytest.mark.parametrize("wrong", ["shuffled", "of another clip", "codebooks in another order"])
def test_wrong_tokens_are_not(
    melodies, bundled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    right = [np.array(melodies.codes(clip)) for clip in range(len(melodies))]
    rng = np.random.default_rng(0)
    changed = {
        "shuffled": lambda clip: right[clip][:, rng.permutation(right[clip].shape[1])],
        "of another clip": lambda clip: right[(clip + 1) % len(right)],
        "codebooks in another order": lambda clip: right[clip][::-1],
    }
    change_codes(melodies, monkeypatch, changed[wrong])
    report = reconstruct(melodies, bundled, tmp_path / "listen", 3)
    assert report.usable is False, report
    assert "NOT usable for training" in report.verdict()


def test_a_codec_of_random_weights_is_not(
    make_tiny_codec, tmp_path: Path, prepare: Prepare
) -> None:
    make_melodies(tmp_path / "demo", 3)
    codec = make_tiny_codec(sample_rate=8000)
    prepare(tmp_path / "demo", codec, tmp_path / "store", batch_seconds=60, section_seconds=60)
    report = reconstruct(TokenStore(tmp_path / "store"), codec, tmp_path / "listen", 3)
    assert report.usable is False, report


@pytest.mark.skipif(not REAL_AUDIO.is_dir(), reason="needs shared/audio beside the checkout")
def test_real_speech_and_music(bundled, tmp_path: Path, prepare: Prepare) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for kind in ("speech", "digits", "music"):
        for path in sorted(p for p in (REAL_AUDIO / kind).rglob("*") if p.suffix != ".csv")[:2]:
            if path.is_file():
                (folder / f"{kind} {path.name}").symlink_to(path)
    prepare(folder, bundled, tmp_path / "store", batch_seconds=60, section_seconds=60)
    report = reconstruct(TokenStore(tmp_path / "store"), bundled, tmp_path / "listen", 4)
    assert report.usable is True, report


def test_nothing_is_done_for_no_checks(melodies, bundled, tmp_path: Path) -> None:
    report = reconstruct(melodies, bundled, tmp_path / "listen", 0)
    assert report.lines() == [] and str(report) == ""
    assert not (tmp_path / "listen").exists()


def test_a_recording_that_is_gone_is_named(melodies, bundled, tmp_path: Path) -> None:
    Path(melodies.record(0)["path"]).unlink()
    report = reconstruct(melodies, bundled, tmp_path / "listen", 4)
    assert len(report.clips) == 3
    assert [bad.path.name for bad in report.not_compared] == ["melody_0000.wav"]
    assert any("melody_0000.wav: not readable" in line for line in report.lines())
    assert report.usable is True
    for clip in report.clips:
        clip.path.unlink()
    report = reconstruct(melodies, bundled, tmp_path / "listen", 4)
    assert report.usable is None and not report.clips
    assert report.verdict().startswith("cannot tell")
    written = json.loads((tmp_path / "listen" / "listen.json").read_text())
    assert written["medians"] == {"si_snr": None, "mel_distance": None, "nearness": None}
    assert not list((tmp_path / "listen").glob("*.wav")), "files of the call before are left"


@pytest.mark.parametrize("then", [0.5, 3.0])
def test_a_recording_that_changed_is_named(
    make_tiny_codec, tmp_path: Path, prepare: Prepare, then: float
) -> None:
    store, codec = tiny_store(make_tiny_codec, tmp_path, prepare, {"a.wav": tone(2.0)})
    write(tmp_path / "recordings" / "a.wav", tone(then))
    (bad,) = reconstruct(store, codec, tmp_path / "listen", 1).not_compared
    assert bad.reason == f"changed since it was encoded: lasts {then:.1f} s, lasted 2.0 s then"


def test_silence_and_scraps_are_named(make_tiny_codec, tmp_path: Path, prepare: Prepare) -> None:
    files = {"a.wav": np.zeros(1600), "b.wav": tone(0.02)}
    store, codec = tiny_store(make_tiny_codec, tmp_path, prepare, files)
    silent, short = reconstruct(store, codec, tmp_path / "listen", 2).not_compared
    assert silent.reason == "silent in its first 2.0 s: nothing to compare"
    assert short.reason.startswith("too short to compare: 2 frames")


def test_it_begins_where_there_is_something_to_compare(
    make_tiny_codec, tmp_path: Path, prepare: Prepare
) -> None:
    sound = np.concatenate([np.zeros(4 * 800), tone(20.0)])
    store, codec = tiny_store(make_tiny_codec, tmp_path, prepare, {"a.wav": sound})
    (clip,) = reconstruct(store, codec, tmp_path / "listen", 1).clips
    assert clip.start == pytest.approx(4.0, abs=0.1)
    assert clip.duration == pytest.approx(10.0, abs=0.1)
    original, rate = soundfile.read(tmp_path / "listen" / "000_original.wav")
    begin = round(clip.start * rate)
    assert np.allclose(original, sound[begin : begin + len(original)], atol=1e-3)


def test_what_was_decoded_is_what_the_store_holds(
    make_tiny_codec, tmp_path: Path, prepare: Prepare
) -> None:
    store, codec = tiny_store(make_tiny_codec, tmp_path, prepare, {"a.wav": tone(2.0)})
    reconstruct(store, codec, tmp_path / "listen", 1)
    decoded, _ = soundfile.read(tmp_path / "listen" / "000_decoded.wav")
    codes = torch_codes(store)
    whole = codec.decode(codes)[0, 0, : len(decoded)].numpy()
    assert np.allclose(decoded, whole / max(1.0, np.abs(whole).max()), atol=1e-3)


@pytest.mark.skipif(os.name == "nt", reason="no such names there")
def test_names_that_break_lines(make_tiny_codec, tmp_path: Path, prepare: Prepare) -> None:
    names = ["a\nb $x$.wav", "é\udcff.wav"]
    store, codec = tiny_store(make_tiny_codec, tmp_path, prepare, {n: tone(1.0) for n in names})
    (tmp_path / "recordings" / names[1]).unlink()
    report = reconstruct(store, codec, tmp_path / "listen", 2)
    assert len(report.clips) == len(report.not_compared) == 1
    assert all("\n" not in line and line.isprintable() for line in report.lines())
    str(report).encode("utf-8")
    written = json.loads((tmp_path / "listen" / "listen.json").read_text())
    assert written["clips"][0]["path"].endswith(names[0])


def test_another_codec_and_negative_numbers_are_refused(
    make_tiny_codec, tmp_path: Path, prepare: Prepare
) -> None:
    store, codec = tiny_store(make_tiny_codec, tmp_path, prepare, {"a.wav": tone(1.0)})
    with pytest.raises(ValueError, match=r"num_checks=-1"):
        reconstruct(store, codec, tmp_path / "listen", -1)
    with pytest.raises(ValueError, match="holds codes of codec"):
        reconstruct(store, make_tiny_codec(seed=1), tmp_path / "listen", 1)
    assert not (tmp_path / "listen").exists()


def test_more_checks_than_clips_compares_them_all(
    make_tiny_codec, tmp_path: Path, prepare: Prepare
) -> None:
    files = {"a.wav": tone(1.0), "b.wav": tone(1.5)}
    store, codec = tiny_store(make_tiny_codec, tmp_path, prepare, files)
    report = reconstruct(store, codec, tmp_path / "listen", 9)
    assert [clip.id for clip in report.clips] == ["a.wav", "b.wav"]


def test_clips_are_chosen_evenly_and_the_same_each_time() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(1, 1000, 1000)
    chosen = choose_clips(frames, 10, seed=3)
    assert chosen == choose_clips(frames, 10, seed=3) != choose_clips(frames, 10, seed=4)
    assert [clip // 100 for clip in chosen] == list(range(10))
    for i, clip in enumerate(chosen):
        assert frames[clip] >= np.median(frames[100 * i : 100 * i + 100])
    assert choose_clips(frames[:3], 10, seed=0) == [0, 1, 2]
    assert choose_clips(frames[:0], 10, seed=0) == []


@pytest.mark.parametrize(
    ("nearness", "si_snr", "usable"),
    [
        (0.3, 8.0, True),
        (0.6, -2.0, True),  # a rough copy of the sound, none of the waveform
        (0.84, 6.0, True),  # a held sound: order says little, the waveform is there
        (0.8, 0.5, None),
        (0.95, 1.0, None),
        (1.0, -30.0, False),
        (1.4, -30.0, False),
    ],
)
def test_verdicts(nearness: float, si_snr: float, usable: bool | None) -> None:
    clip = ReconstructedClip("000", "a", Path("a"), 0.0, 1.0, si_snr, 10 * nearness, 10.0)
    report = ReconstructionReport(Path("listen"), (clip,), ())
    assert report.usable is usable
    assert "\n" not in report.verdict()


def test_the_median_counts() -> None:
    clips = [
        ReconstructedClip("000", "a", Path("a"), 0.0, 1.0, snr, 10 * near, 10.0)
        for snr, near in ((8.0, 0.3), (7.0, 0.4), (-40.0, 1.2))
    ]
    report = ReconstructionReport(Path("listen"), tuple(clips), ())
    assert (report.si_snr, report.usable) == (7.0, True)
    assert report.nearness == pytest.approx(0.4)
    assert math.isnan(ReconstructionReport(Path("listen"), (), ()).nearness)


def tone(seconds: float) -> np.ndarray:
    """Sound at 800 Hz that changes every tenth of a second."""
    count = round(seconds * 800)
    pitch = np.random.default_rng(0).uniform(40, 350, count // 80 + 1).repeat(80)[:count]
    return 0.5 * np.sin(2 * np.pi * np.cumsum(pitch) / 800)


def write(path: Path, samples: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(os.fsencode(path), samples, 800, format="WAV", subtype="PCM_16")


def tiny_store(
    make_tiny_codec: Callable[..., EncodecCodec],
    tmp_path: Path,
    prepare: Prepare,
    files: dict[str, np.ndarray],
) -> tuple[TokenStore, EncodecCodec]:
    for name, samples in files.items():
        write(tmp_path / "recordings" / name, samples)
    codec = make_tiny_codec()
    prepare(tmp_path / "recordings", codec, tmp_path / "store")
    return TokenStore(tmp_path / "store"), codec


def torch_codes(store: TokenStore) -> Any:
    return torch.from_numpy(store.codes(0).astype(np.int64))[None]
