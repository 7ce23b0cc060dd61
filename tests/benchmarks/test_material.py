"""What is encoded: enough, no clip twice, long ones of the length asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from audiolm.audio import read_info
from audiolm.benchmarks.material import long_clips, short_clips, spread_out


def write(path: Path, seconds: float, seed: int = 0, rate: int = 800) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(
        path, np.random.default_rng(seed).uniform(-0.5, 0.5, round(seconds * rate)), rate
    )


def test_melodies_serve_where_there_are_no_recordings(tmp_path: Path) -> None:
    short = short_clips(None, tmp_path / "short", 8.0)
    durations = [read_info(path).duration for path in short.paths]
    assert sum(durations) == pytest.approx(short.seconds)
    assert 8.0 <= short.seconds < 10.0
    assert len({path.read_bytes() for path in short.paths}) == len(short.paths) > 4
    assert max(durations) <= 2.0
    long = long_clips(None, tmp_path / "long", 60, 120)
    assert [read_info(path).duration for path in long.paths] == [60.0, 60.0]
    assert long.paths[0].read_bytes() != long.paths[1].read_bytes()


def test_short_files_are_taken_as_they_are_and_each_sound_once(tmp_path: Path) -> None:
    for i in range(30):
        write(tmp_path / "in" / f"{i:02d}.wav", 1.0, seed=i // 2)
    (tmp_path / "in" / "bad.wav").write_bytes(b"no audio")
    short = short_clips(tmp_path / "in", tmp_path / "short", 15.0)
    assert len(short.paths) == 15 and all(p.parent == tmp_path / "in" for p in short.paths)
    assert not (tmp_path / "short").exists()
    with pytest.raises(ValueError, match=r"holds 15 s .*encode.short_seconds=16; lower that"):
        short_clips(tmp_path / "in", tmp_path / "short", 16.0)


def test_long_files_are_cut(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.wav", 30.0)
    short = short_clips(tmp_path / "in", tmp_path / "short", 20.0)
    assert all(read_info(path).duration <= 2.0 for path in short.paths)
    assert short.seconds >= 20.0


def test_long_clips_are_joined_from_what_has_the_same_rate(tmp_path: Path) -> None:
    for i in range(5):
        write(tmp_path / "in" / f"{i}.wav", 25.0, seed=i)
    write(tmp_path / "in" / "2b.wav", 25.0, rate=1600)
    found = long_clips(tmp_path / "in", tmp_path / "long", 60, 120)
    parts = [soundfile.read(tmp_path / "in" / f"{i}.wav")[0] for i in range(5)]
    joined = np.concatenate([soundfile.read(path)[0] for path in found.paths])
    assert np.array_equal(joined, np.concatenate(parts)[: 120 * 800])
    with pytest.raises(ValueError, match=r"holds 120 s .*encode.long_seconds=180; lower that"):
        long_clips(tmp_path / "in", tmp_path / "long", 60, 180)


def test_a_beginning_is_spread_over_all_files() -> None:
    paths = [Path(str(i)) for i in range(100)]
    assert sorted(spread_out(paths)) == sorted(paths)
    assert [int(p.name) for p in spread_out(paths)[:10]] == list(range(0, 100, 10))


@pytest.mark.parametrize("number", [0, -1])
def test_no_work_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(ValueError, match=r"encode\.long_seconds"):
        long_clips(None, tmp_path, 10, number)
    with pytest.raises(ValueError, match=r"encode\.lengths"):
        long_clips(None, tmp_path, number, 10)
    with pytest.raises(ValueError, match=r"encode\.short_seconds"):
        short_clips(None, tmp_path, number)
