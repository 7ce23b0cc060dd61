"""What is in a collection is reported, whatever it is, and found again whatever happened since."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from audiolm.datasets.checks import cache as check_cache
from audiolm.datasets.checks import check as check_module
from audiolm.datasets.checks.check import AUDIO, CheckReport, check_clips
from audiolm.datasets.checks.measure import Fault, measure
from audiolm.datasets.checks.rules import Rule, Rules
from audiolm.datasets.clip import Clip, SkippedClip
from audiolm.datasets.folder import folder_clips
from audiolm.files import hash64
from audiolm.locks import FileLock
from audiolm.parallel import Part

from ...hostile import build

SHARED = Path(__file__).resolve().parents[4] / "shared" / "audio"
RATE = 8000

# Two workers on a machine of one core.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def noise(seconds: float, seed: int, level: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, level, round(seconds * RATE)).clip(-0.9, 0.9)


def write(path: Path, samples: np.ndarray, subtype: str = "PCM_16") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE, subtype=subtype)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """30 good recordings of 0.2 to 1.1 s."""
    folder = tmp_path / "recordings"
    for i in range(30):
        write(folder / f"sub {i % 3}" / f"{i:02d}.wav", noise(0.2 + i * 0.03, seed=i))
    return folder


BAD = {
    "worse/cut.flac": ("truncated", "drop"),
    "worse/long.wav": ("very_long", "report"),
    "worse/loud.wav": ("clipped", "report"),
    "worse/nan.wav": ("not_finite", "drop"),
    "worse/offset.wav": ("offset", "report"),
    "worse/phase.wav": ("out_of_phase", "drop"),
    "worse/same.flac": ("duplicate", "drop"),
    "worse/short.wav": ("too_short", "drop"),
    "worse/silent.wav": ("silent", "drop"),
    "worse/text.wav": ("unreadable", "drop"),
    "worse/integers.wav": ("unscaled", "drop"),
}
RULES = Rules(very_long=Rule("report", 3.0))


def add_bad(folder: Path) -> None:
    """A file for each rule."""
    bad = folder / "worse"
    write(bad / "cut.flac", noise(3, 101))
    data = (bad / "cut.flac").read_bytes()
    (bad / "cut.flac").write_bytes(data[: len(data) // 2])
    write(bad / "long.wav", noise(3.5, 102))
    write(bad / "loud.wav", np.clip(3 * np.sin(np.arange(RATE) / 20), -1, 1))
    write(bad / "nan.wav", np.where(np.arange(RATE) == 5000, np.nan, noise(1, 103)), "FLOAT")
    write(bad / "offset.wav", noise(1, 104) * 0.1 + 0.3)
    write(bad / "phase.wav", np.outer(noise(1, 107), [1, -1]))
    samples, _ = soundfile.read(folder / "sub 1" / "07.wav", dtype="int16")
    write(bad / "same.flac", samples)
    write(bad / "short.wav", noise(0.05, 105))
    write(bad / "silent.wav", noise(1, 106, level=1e-5))
    (bad / "text.wav").write_text("hello")
    integers = np.rint(2**15 * noise(0.5, 108))
    write(bad / "integers.wav", np.concatenate([integers, -integers]), "FLOAT")


def check(clips: Path | Iterable[Clip | SkippedClip], cache: Path, **changes: Any) -> CheckReport:
    if isinstance(clips, Path):
        clips = folder_clips(clips)
    settings: dict[str, Any] = {"rules": RULES, "num_workers": 0, "show_progress": False}
    return check_clips(clips, cache, **settings | changes)


def contents(report: CheckReport) -> list[Any]:
    """All that a report says."""
    skipped = [str(bad) for bad in report.skipped]
    audio = report.audio.tolist(), report.split_as.tolist()
    return [report.as_dict(), report.lines(), report.kept, skipped, audio]


@pytest.fixture
def count_measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that this process decodes."""
    names: list[str] = []

    def counted(path: Path, start: float = 0.0, end: float | None = None) -> Any:
        names.append(path.name)
        return measure(path, start, end)

    monkeypatch.setattr(check_module, "measure", counted)
    return names


# ---- What is reported


def test_good_files_are_kept_as_they_are(folder, tmp_path):
    report = check(folder, tmp_path / "cache")
    clips = sorted(folder_clips(folder), key=lambda clip: clip.id)
    assert report.kept == clips and report.skipped == [] and report.findings == []
    assert report.audio.dtype == AUDIO
    assert report.split_as.tolist() == list(range(30))
    for clip, audio, seconds in zip(clips, report.audio, report.durations, strict=True):
        status = clip.path.stat()
        assert (audio["size"], audio["mtime_ns"]) == (status.st_size, status.st_mtime_ns)
        assert (audio["num_samples"], audio["sample_rate"]) == (round(seconds * RATE), RATE)
        assert audio["key"] == measure(clip.path).key
    totals = report.totals
    assert (totals.clips, totals.files) == (30, 30)
    assert totals.hours == pytest.approx(report.durations.sum() / 3600) == report.hours
    assert totals.formats == {"WAV PCM_16": 30}
    assert totals.sample_rates == {RATE: 30} and totals.channels == {1: 30}
    assert totals.durations["min"] == pytest.approx(0.2)
    assert totals.durations["max"] == pytest.approx(0.2 + 29 * 0.03)
    report.enforce()


def test_every_rule_finds_its_file_and_nothing_else(folder, tmp_path):
    add_bad(folder)
    report = check(folder, tmp_path / "cache")
    assert {finding.id: (finding.rule, finding.action) for finding in report.findings} == BAD
    dropped = {name for name, (_, action) in BAD.items() if action == "drop"}
    everything = {clip.id for clip in folder_clips(folder)}
    assert {clip.id for clip in report.kept} == everything - dropped
    skipped = {str(bad.path.relative_to(folder)): bad.reason for bad in report.skipped}
    assert set(skipped) == dropped
    assert skipped["worse/same.flac"] == f"duplicate of {folder}/sub 1/07.wav (same decoded audio)"
    assert skipped["worse/silent.wav"].startswith("silent: rms -9")
    report.enforce()
    for name, (rule, action) in BAD.items():
        count = report.counts[rule]
        assert (count.clips, count.action) == (1, action), name
    assert report.counts["text_missing"].action == "off"
    # A file that cannot be decoded counts as long as the others are on average.
    known = report.totals.hours
    assert report.counts["unreadable"].hours == pytest.approx(known / 38)
    assert report.counts["unreadable"].share == pytest.approx(1 / 41)
    assert report.counts["very_long"].share == pytest.approx(3.5 / 3600 / (known * 41 / 38))


def test_the_table(folder, tmp_path):
    add_bad(folder)
    lines = check(folder, tmp_path / "cache").lines(max_paths=1)
    assert lines[0].startswith("checked    41 files, 0.00")
    assert lines[1:4] == [
        "formats    WAV PCM_16 (36), FLAC PCM_16 (1), WAV FLOAT (1)",
        "rates      8,000 Hz (38)",
        "channels   1 (37), 2 (1)",
    ]
    assert lines[4].startswith("durations  0.05 s to 3.5 s, median ")
    assert lines[5].endswith("skipped 8")
    for rule, action in BAD.values():
        line = next(i for i, line in enumerate(lines) if line.startswith(rule))
        assert lines[line].split()[1:3] == [action, "1"]
        assert lines[line + 1].startswith(f"  {folder}/worse/")
    assert lines[-1] == "rules that are off: text_missing"


def test_each_rule_can_be_switched(folder, tmp_path):
    add_bad(folder)
    for name, (rule, _) in BAD.items():
        if rule in ("truncated", "not_finite", "unreadable"):
            continue
        for changed in ("drop", "report", "off"):
            rules = replace(RULES, **{rule: replace(RULES[rule], action=changed)})
            report = check(folder, tmp_path / "cache", rules=rules)
            kept = {clip.id for clip in report.kept}
            assert (name in kept) == (changed != "drop"), (name, changed)
            found = {finding.id: finding.action for finding in report.findings}
            assert found.get(name, "off") == changed
    rules = replace(RULES, text_missing=Rule("drop"))
    clips = [replace(clip, text="one two") for clip in folder_clips(folder)]
    clips[10] = replace(clips[10], text=" \n")
    report = check(clips, tmp_path / "cache", rules=rules)
    assert [bad.path for bad in report.skipped if bad.reason == "no text"] == [clips[10].path]


def test_hostile_names_and_rows_of_the_source(tmp_path):
    names = ["new\nline.wav", "tab\t.wav", "日本語 é.wav", "quote'\".wav", "rtl\u202e.wav"]
    names.append(os.fsdecode(b"not \xff unicode.wav"))
    folder = tmp_path / "recordings"
    for i, name in enumerate(names):
        write(tmp_path / "good.wav", noise(0.5, i)).rename(_made(folder / "good") / name)
        (_made(folder / "bad") / name).write_text("hello")
    row = SkippedClip(tmp_path / "row\n7.wav", "start is after the end")
    report = check([*folder_clips(folder), row], tmp_path / "cache")
    assert {clip.path.name for clip in report.kept} == set(names)
    assert {bad.path.name for bad in report.skipped} == {*names, "row\n7.wav"}
    assert report.counts["source"].clips == 1
    assert (report.totals.clips, report.totals.files) == (13, 12)  # a row is not a file
    lines = report.lines(max_paths=99)
    assert all(line.isprintable() for line in lines)
    assert sum("hello" not in line and ".wav: " in line for line in lines) == 7
    report.write(tmp_path / "deep" / "report.json")
    read = json.loads((tmp_path / "deep" / "report.json").read_text(encoding="ascii"))
    assert read == report.as_dict()
    assert {Path(f["path"]).name for f in read["findings"]} == {*names, "row\n7.wav"}
    # And the cache finds each again.
    assert contents(check([*folder_clips(folder), row], tmp_path / "cache")) == contents(report)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_times_of_a_list_are_clips_of_their_own(tmp_path):
    long = write(tmp_path / "long.flac", noise(4, 0))
    clips = [
        Clip("a", long, start=0.0, end=1.0),
        Clip("b", long, start=1.0, end=3.0),
        Clip("c", long, start=3.0),
        Clip("d", long, start=3.0, end=9.0),
        Clip("e", long, start=5.0),
        Clip("f", long, start=1.0, end=3.0),
    ]
    for _ in range(2):
        report = check(clips, tmp_path / "cache")
        assert [clip.id for clip in report.kept] == ["a", "b", "c"]
        assert report.durations.tolist() == [1.0, 2.0, 1.0]
        assert {f.id: f.rule for f in report.findings} == {
            "d": "truncated",
            "e": "unreadable",
            "f": "duplicate",
        }
        assert (report.totals.clips, report.totals.files) == (6, 1)
        assert report.lines()[0].startswith("checked    6 clips or rows of 1 file, ")


# ---- Exact duplicates


def test_channels_that_cancel_are_told_apart_from_silence_and_from_stereo(tmp_path):
    """What is judged is what the codec gets: a mono codec the mix, a stereo codec both channels."""
    folder, first, second = tmp_path / "recordings", noise(1, 1), noise(1, 2)
    array = np.stack([noise(1, 10 + i) for i in range(8)])
    for name, channels in {
        "inverse.wav": [first, -first],
        "nearly.wav": [second, -0.95 * second],
        "quad.wav": [noise(1, 3), -noise(1, 3), noise(1, 4), -noise(1, 4)],
        "alike.wav": [noise(1, 5), noise(1, 5)],
        "unlike.wav": [noise(1, 6), noise(1, 7)],
        "left.wav": [noise(1, 8), np.zeros(RATE)],
        "array.wav": array,
    }.items():
        write(folder / name, np.stack(channels, axis=1))
    for channels, expected in ((1, {"inverse", "nearly", "quad"}), (2, {"quad"})):
        report = check(folder, tmp_path / "cache", channels=channels)
        found = {(finding.rule, finding.path.stem) for finding in report.findings}
        assert found == {("out_of_phase", name) for name in expected}
        assert {bad.path.stem for bad in report.skipped} == expected
        assert all("out of phase" in bad.reason for bad in report.skipped)


@pytest.mark.parametrize(
    "splits, known, expected",
    [
        ([None, None, None], [], 0),
        ([None, "train", None], [], 1),
        (["train", "valid", None], [], 1),
        (["train", "valid", "test"], [], 2),
        ([None, "test", "test"], [], 1),
        ([None, None, None], [1, 2], 1),
        (["test", "train", None], [2], 2),
        (["test", "train", "valid"], [1, 2], 2),
    ],
)
def test_which_duplicate_stands_for_all(tmp_path, splits, known, expected):
    path = write(tmp_path / "a.wav", noise(1, 0))
    other = write(tmp_path / "other.wav", noise(1, 1))
    clips = [Clip(f"{i}", path, split=split) for i, split in enumerate(splits)]
    clips.append(Clip("3", other))
    hashes = np.array([hash64(f"{i}") for i in known] + [7], np.uint64)
    for action in ("drop", "report", "off"):
        rules = Rules(duplicate=Rule(action))
        report = check(reversed(clips), tmp_path / "cache", rules=rules, known=hashes)
        if action == "drop":
            assert [clip.id for clip in report.kept] == [str(expected), "3"]
            assert report.split_as.tolist() == [0, 1]
        else:
            assert [clip.id for clip in report.kept] == ["0", "1", "2", "3"]
            assert report.split_as.tolist() == [expected] * 3 + [3]
        assert report.counts["duplicate"].clips == (0 if action == "off" else 2)


def test_a_duplicate_that_is_skipped_stands_for_nobody(tmp_path):
    path = write(tmp_path / "a.wav", noise(1, 0))
    clips = [Clip("a", path, split="test"), Clip("b", path, text="yes")]
    rules = Rules(text_missing=Rule("drop"))
    report = check(clips, tmp_path / "cache", rules=rules)
    assert [clip.id for clip in report.kept] == ["b"]
    assert [f.rule for f in report.findings] == ["text_missing"]


# ---- Too much


def test_a_rule_that_drops_most_of_the_hours_is_refused(tmp_path):
    folder = tmp_path / "recordings"
    for i in range(3):
        write(folder / f"good{i}.wav", noise(1, i))
    for i in range(2):
        write(folder / f"silent{i}.wav", np.zeros(2 * RATE))
    report = check(folder, tmp_path / "cache")
    assert len(report.kept) == 3
    with pytest.raises(ValueError, match="rule silent would drop 57% of the hours") as error:
        report.enforce()
    for part in ("2 of 5", "silent0.wav: silent: ", "=0.5", "rules.silent.action=report"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    for changed in (replace(RULES, silent=Rule("report", -70.0)), replace(RULES, max_dropped=0.6)):
        check(folder, tmp_path / "cache", rules=changed).enforce()


def test_most_of_the_files_unreadable(tmp_path):
    folder = tmp_path / "recordings"
    write(folder / "good.wav", noise(1, 0))
    for i in range(2):
        (folder / f"text{i}.wav").write_text("hello")
    with pytest.raises(ValueError, match=r"67% of the hours .* with rules\.max_dropped=1$"):
        check(folder, tmp_path / "cache").enforce()
    check(folder, tmp_path / "cache", rules=Rules(max_dropped=1)).enforce()


def test_nothing_left(tmp_path):
    folder = tmp_path / "recordings"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.wav").write_text("hello")
    report = check(folder, tmp_path / "cache", rules=Rules(max_dropped=1))
    assert report.counts["unreadable"].share == 1 and report.totals.hours == 0
    with pytest.raises(ValueError, match=r"none of the 3 clips .*0\.wav: not audio") as error:
        report.enforce()
    assert "\n" not in str(error.value) and report.lines()
    short = check([Clip("a", write(tmp_path / "a.wav", np.zeros(9)))], tmp_path / "cache")
    with pytest.raises(ValueError, match=r"none of the 1 clip .* rules\.silent\.action=report"):
        short.enforce()
    only_rows = check([SkippedClip(Path("a.wav"), "no such file")], tmp_path / "cache")
    with pytest.raises(ValueError, match=r"none of the 1 clip .*a\.wav: no such file"):
        only_rows.enforce()


def test_no_clips_and_double_ids(tmp_path):
    with pytest.raises(ValueError, match="source is empty"):
        check([], tmp_path / "cache")
    twice = [Clip("a", tmp_path / "1.wav"), Clip("a", tmp_path / "2.wav")]
    with pytest.raises(ValueError, match=r"id 'a', .*1\.wav and .*2\.wav"):
        check(twice, tmp_path / "cache")
    with pytest.raises(ValueError, match="num_parts"):
        check(twice, tmp_path / "cache", part=Part(2, 2))
    assert not (tmp_path / "cache").exists()


# ---- The cache


def test_a_project_that_was_moved_is_not_measured_again(
    folder, tmp_path, monkeypatch, count_measured
):
    project = tmp_path / "a"
    shutil.copytree(folder, project / "recordings")
    for name in ("a", "b"):
        project = project.rename(tmp_path / name)
        monkeypatch.chdir(project)
        report = check(project / "recordings", project / "data" / "checks")
        assert len(report.kept) == 30 and len(count_measured) == 30, name
    # Of the same names, sizes and times in another project, with the cache of this one.
    other = tmp_path / "other"
    shutil.copytree(project / "recordings", other / "recordings")
    monkeypatch.chdir(other)
    assert len(check(other / "recordings", project / "data" / "checks").kept) == 30
    assert len(count_measured) == 60


def test_a_second_run_decodes_nothing_and_says_the_same(folder, tmp_path, count_measured):
    add_bad(folder)
    first = check(folder, tmp_path / "cache")
    assert len(count_measured) == 41
    count_measured.clear()
    assert contents(check(folder, tmp_path / "cache")) == contents(first)
    # That it cannot be read may depend on more than the file, so this is looked at again.
    assert count_measured == ["text.wav"]


def test_new_and_changed_files_are_measured_and_no_others(folder, tmp_path, count_measured):
    check(folder, tmp_path / "cache")
    count_measured.clear()
    write(folder / "new.wav", noise(1, 200))
    write(folder / "sub 0" / "00.wav", noise(1, 201))
    os.utime(folder / "sub 1" / "01.wav", ns=(1, 1))
    (folder / "sub 2" / "02.wav").rename(folder / "sub 2" / "renamed.wav")
    (folder / "sub 0" / "03.wav").unlink()
    report = check(folder, tmp_path / "cache")
    assert sorted(count_measured) == ["00.wav", "01.wav", "new.wav", "renamed.wav"]
    assert contents(report) == contents(check(folder, tmp_path / "fresh"))


def test_many_workers_say_the_same(folder, tmp_path, monkeypatch):
    add_bad(folder)
    monkeypatch.setattr(check_module, "_CHUNK_BYTES", 2**17)
    alone = check(folder, tmp_path / "alone")
    assert contents(check(folder, tmp_path / "two", num_workers=2)) == contents(alone)
    assert contents(check(folder, tmp_path / "two")) == contents(alone)


def test_parts_together_are_the_whole(folder, tmp_path, count_measured):
    add_bad(folder)
    row = SkippedClip(Path("row"), "bad times")
    whole = check([*folder_clips(folder), row], tmp_path / "whole")
    count_measured.clear()
    parts = [
        check([*folder_clips(folder), row], tmp_path / "cache", part=Part(i, 3)) for i in range(3)
    ]
    assert len(count_measured) == 41
    count_measured.clear()
    together = check([*folder_clips(folder), row], tmp_path / "cache")
    assert count_measured == ["text.wav"] and contents(together) == contents(whole)
    # Duplicates aside, which may lie in two parts.
    rules = replace(RULES, duplicate=Rule("off"))
    whole = check([*folder_clips(folder), row], tmp_path / "whole", rules=rules)
    parts = [
        check([*folder_clips(folder), row], tmp_path / "cache", rules=rules, part=Part(i, 3))
        for i in range(3)
    ]
    kept = sorted((clip for part in parts for clip in part.kept), key=lambda clip: clip.id)
    assert kept == whole.kept and all(len(part.kept) < 20 for part in parts)
    for name in ("skipped", "findings"):
        counts = [len(getattr(part, name)) for part in parts]
        assert sum(counts) == len(getattr(whole, name))
    assert parts[1].lines()[0].endswith("(part 1 of 3)")
    # A part may be empty or all bad, and says nothing of the whole.
    for i in range(5):
        check([Clip("a", tmp_path / "gone.wav")], tmp_path / "cache", part=Part(i, 5)).enforce()


def test_files_of_the_cache_are_merged(folder, tmp_path, monkeypatch, count_measured):
    cache = tmp_path / "cache"
    monkeypatch.setattr(check_cache, "_MAX_FILES", 3)
    for number in range(1, 30):
        clips = list(folder_clips(folder))[:number]
        check(clips, cache)
        assert 1 <= len(list(cache.glob("*.jsonl"))) <= 3
    assert len(count_measured) == 29


def test_another_process_merges_while_the_cache_is_read(folder, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    clips = list(folder_clips(folder))
    for clip in clips[:3]:
        check([clip], cache)
    files = check_cache.CheckCache._files
    calls = 0

    def stale(self: check_cache.CheckCache) -> list[Path]:
        nonlocal calls
        calls += 1
        listed = files(self)
        if calls == 1:
            with open(listed[0].with_name("measured-3-z.jsonl"), "wb") as merged:
                merged.writelines(path.read_bytes() for path in listed)
            for path in listed[1:]:
                path.unlink()
        return listed

    monkeypatch.setattr(check_cache.CheckCache, "_files", stale)
    monkeypatch.setattr(check_module, "measure", None)
    assert check(clips[:3], cache).kept == clips[:3]


def test_a_damaged_cache_is_measured_again(folder, tmp_path):
    expected = contents(check(folder, tmp_path / "cache"))
    (path,) = (tmp_path / "cache").glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:40] + b"\n"
    lines[5] = b"[]\n"
    lines[6] = b'{"path": 3}\n'
    lines[7] = b"\xff\x00\n"
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-30])
    assert contents(check(folder, tmp_path / "cache")) == expected


# ---- Stopping


def _killed(run: Callable[[], Any], arm: Callable[[], None], after: float = 60) -> bool:
    """Run in a forked process that `arm` prepares to be killed; whether it was."""

    def prepared() -> None:
        arm()
        run()

    process = multiprocessing.get_context("fork").Process(target=prepared)
    process.start()
    process.join(after)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the cache for each file that is measured."""
    init = check_cache.CheckCache.__init__
    monkeypatch.setattr(
        check_cache.CheckCache, "__init__", lambda self, path: init(self, path, seconds=0)
    )
    monkeypatch.setattr(check_module, "_CHUNK_BYTES", 1)


def test_killed_around_every_rename_and_run_again(folder, tmp_path, monkeypatch):
    """The rename of the merged file is the last one."""
    add_bad(folder)
    expected = contents(check(folder, tmp_path / "undisturbed"))
    _write_at_once(monkeypatch)
    replaced = os.replace

    def arm(number: int, before: bool) -> None:
        calls = 0

        def counted(source: Any, target: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == number and before:
                os.kill(os.getpid(), signal.SIGKILL)
            replaced(source, target)
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(os, "replace", counted)

    for number in (1, 20, 39):
        for before in (True, False):
            cache = tmp_path / f"cache-{number}-{before}"
            run = lambda cache=cache: check(folder, cache)  # noqa: E731
            assert _killed(run, lambda n=number, b=before: arm(n, b))
            kept = sum(len(path.read_bytes().splitlines()) for path in cache.glob("*.jsonl"))
            assert kept >= min(number - before, 38)
            assert contents(check(folder, cache)) == expected
            assert len(list(cache.glob("*.jsonl"))) <= 17


@pytest.mark.parametrize("workers, after", [(0, 0.05), (0, 0.2), (0, 0.35), (2, 0.2)])
def test_killed_at_any_moment_and_run_again(folder, tmp_path, monkeypatch, workers, after):
    add_bad(folder)
    expected = contents(check(folder, tmp_path / "undisturbed"))
    _write_at_once(monkeypatch)

    def slow(path: Path, start: float = 0.0, end: float | None = None) -> Any:
        time.sleep(0.02)
        return measure(path, start, end)

    monkeypatch.setattr(check_module, "measure", slow)
    cache = tmp_path / "cache"
    assert _killed(lambda: check(folder, cache, num_workers=workers), lambda: None, after)
    monkeypatch.setattr(check_module, "measure", measure)
    assert contents(check(folder, cache)) == expected
    assert contents(check(folder, cache)) == expected


def test_ctrl_c_keeps_what_was_measured(folder, tmp_path, monkeypatch, count_measured):
    monkeypatch.setattr(check_module, "_CHUNK_BYTES", 1)
    counted = check_module.measure

    def interrupted(path: Path, *times: Any) -> Any:
        if len(count_measured) == 12:
            raise KeyboardInterrupt
        return counted(path, *times)

    with monkeypatch.context() as patch:
        patch.setattr(check_module, "measure", interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"12 of 30 files .* run the same command"):
            check(folder, tmp_path / "cache")
    count_measured.clear()
    assert len(check(folder, tmp_path / "cache").kept) == 30
    assert len(count_measured) == 18


def test_the_death_of_a_worker_is_noticed(folder, tmp_path, monkeypatch, count_measured):
    """As by a crash of a decoder or for want of memory."""
    monkeypatch.setattr(check_module, "_CHUNK_BYTES", 1)

    def deadly(path: Path, *times: Any) -> Any:
        if path.name == "20.wav":
            os.kill(os.getpid(), signal.SIGKILL)
        return measure(path, *times)

    with monkeypatch.context() as patch:
        patch.setattr(check_module, "measure", deadly)
        with pytest.raises(ChildProcessError, match="decoding died after") as error:
            check(folder, tmp_path / "cache", num_workers=1)
    assert "\n" not in str(error.value)
    count_measured.clear()
    assert len(check(folder, tmp_path / "cache").kept) == 30
    assert len(count_measured) < 30


def test_a_mistake_of_ours_is_no_fault_of_the_file(folder, tmp_path, monkeypatch):
    def broken(*_: Any) -> Fault:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(check_module, "measure", broken)
    for workers in (0, 1):
        with pytest.raises(RuntimeError, match="a mistake"):
            check(folder, tmp_path / "cache", num_workers=workers)


def test_two_processes_take_turns(folder, tmp_path, monkeypatch, capfd, count_measured):
    slow = check_module.measure

    def slower(*arguments: Any) -> Any:
        time.sleep(0.02)
        return slow(*arguments)

    monkeypatch.setattr(check_module, "measure", slower)
    cache = tmp_path / "cache"
    first = multiprocessing.get_context("fork").Process(target=check, args=(folder, cache))
    first.start()
    lock = cache / ".check-0-of-1.lock"
    while not lock.exists() or _is_free(lock):
        time.sleep(0.005)
    assert len(check(folder, cache).kept) == 30
    first.join()
    assert first.exitcode == 0 and count_measured == []
    assert capfd.readouterr().err.count("waiting: another process is checking") == 1


def _is_free(path: Path) -> bool:
    lock = FileLock(path)
    free = lock.acquire(timeout=0)
    lock.release()
    return free


def test_rubbish_of_a_killed_process_goes_after_a_while(folder, tmp_path):
    cache = _made(tmp_path / "cache")
    for name, age in ((".old.tmp", 7200), (".new.tmp", 0)):
        (cache / name).write_text("half")
        os.utime(cache / name, (time.time() - age,) * 2)
    check(folder, cache)
    assert [path.name for path in cache.glob(".*.tmp")] == [".new.tmp"]


# ---- The whole pack of hostile files


def test_hostile_files(tmp_path):
    """Each is kept as it is or skipped with its reason; without, with and after workers."""
    folder = tmp_path / "pack"
    cases = {f"{i:03d}": case for i, case in enumerate(build(folder))}
    assert len(cases) > 60
    clips = [Clip(name, folder / case.path) for name, case in cases.items()]
    report = check(clips, tmp_path / "cache", rules=Rules())
    kept = {clip.id: audio for clip, audio in zip(report.kept, report.audio, strict=True)}
    skipped = {bad.path: bad.reason for bad in report.skipped}
    assert len(kept) + len(skipped) == len(cases)
    rules = {
        **{"silent": "silent", "out of phase": "out_of_phase", "unscaled": "unscaled"},
        **{"short": "too_short", "offset": "offset"},
    }
    found = {(finding.id, finding.rule) for finding in report.findings}
    for name, case in cases.items():
        if case.trait in rules:
            assert (name, rules[case.trait]) in found, case.path
        if case.samples is None:
            assert re.search(case.reason, skipped[folder / case.path]), case.path
        elif name in kept:
            channels, length = case.samples.shape
            assert kept[name]["sample_rate"] == case.rate
            assert 0 <= kept[name]["num_samples"] - length <= case.padding, case.path
            if case.tolerance == case.padding == 0:
                hashed = hashlib.blake2b(f"{case.rate} {channels}\n".encode(), digest_size=8)
                hashed.update(case.samples.T.astype("<f4").tobytes())
                assert kept[name]["key"] == int.from_bytes(hashed.digest(), "little"), case.path
        else:
            assert case.trait in rules, (case, skipped[folder / case.path])
    cached = check(clips, tmp_path / "cache", rules=Rules())
    apart = check(clips, tmp_path / "other", rules=Rules(), num_workers=2)
    assert contents(cached) == contents(apart) == contents(report)
    assert all(line.isprintable() for line in report.lines(max_paths=999))


# ---- Real recordings


@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings here")
def test_real_recordings(tmp_path):
    """All are good but those of silence."""
    clips = [clip for clip in folder_clips(SHARED) if isinstance(clip, Clip)]
    chosen = [clip for clip in clips if "silence" in clip.id] + clips[::40]
    report = check({clip.id: clip for clip in chosen}.values(), tmp_path / "cache", rules=Rules())
    skipped = {bad.path.relative_to(SHARED.resolve()).as_posix() for bad in report.skipped}
    assert skipped == {f"speech/silence/{i}.flac" for i in range(1, 11)}
    assert {finding.rule for finding in report.findings} == {"silent"}
    report.enforce()
