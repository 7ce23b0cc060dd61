"""A folder becomes a store: what is in it, what is left out, and what a kill cannot change."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audiolm.audio import read_audio
from audiolm.tokens import (
    Clip,
    PrepareSummary,
    TokenStore,
    default_store_dir,
    folder_clips,
    prepare_store,
)
from audiolm.tokens.prepare import plan_batches

AUDIO = Path(__file__).resolve().parents[3] / "shared" / "audio"
CODEC = AUDIO.parent / "codec" / "trial_8khz"


def prepare(folder: Path, codec: Any, store: Path, **changes: Any) -> PrepareSummary:
    settings = {"batch_seconds": 2.0, "stream_seconds": 2.0, "shard_seconds": 0.0}
    return prepare_store(
        folder_clips(folder), codec, store, show_progress=False, **settings | changes
    )


def contents(path: Path) -> list[Any]:
    """Everything a store says of its clips, in its order."""
    store = TokenStore(path)
    header = json.loads((path / "store.json").read_text())
    records = (path / header["records"]["name"]).read_bytes()
    codes = [store.codes(i).tolist() for i in range(len(store))]
    columns = [store.index[name].tolist() for name in ("id_hash", "split", "frames", "record")]
    return [records, codes, columns, store.total_frames, store.hours]


def test_store_holds_every_clip_in_order_of_ids(recordings, codec, tmp_path):
    summary = prepare(recordings, codec, tmp_path / "store")
    store = TokenStore(tmp_path / "store")
    clips = sorted(folder_clips(recordings), key=lambda clip: clip.id)
    assert len(store) == len(clips) == summary.files == summary.encoded == 25
    assert summary.reused == 0 and summary.left_out == ()
    for i, clip in enumerate(clips):
        waveform, _ = read_audio(clip.path, codec.sample_rate, codec.channels)
        expected = codec.encode(waveform[None])[0].numpy()
        assert np.array_equal(store.codes(i), expected), clip.id
        record = store.record(i)
        status = clip.path.stat()
        assert record == {
            "id": clip.id,
            "path": str(clip.path),
            "duration": waveform.shape[1] / codec.sample_rate,
            "split": None,
            "label": None,
            "text": None,
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "frames": expected.shape[1],
        }
    assert store.total_frames == summary.frames == int(store.frames.sum())
    assert store.hours == summary.hours == store.total_frames / 100 / 3600
    assert (store.num_codebooks, store.codebook_size, store.frame_rate) == (2, 300, 100.0)
    assert store.codec == codec.identity()
    assert store.codes(0).dtype == np.uint16
    assert summary.encoded_hours * 3600 == pytest.approx(sum(codec.encoded) / 8000)


def test_summary_reads_well(recordings, codec, tmp_path):
    (recordings / "bad\nname.wav").write_text("not audio")
    summary = prepare(recordings, codec, tmp_path / "store")
    lines = str(summary).splitlines()
    assert lines == summary.lines() and len(lines) == 6
    assert "25 encoded now, 0 reused" in lines[1] and lines[4].split()[-1] == "1"
    assert "name.wav: " in lines[5]
    assert summary.lines(max_left_out=0)[-1].endswith("left_out.json")


def test_second_run_encodes_nothing_and_changes_nothing(recordings, codec, tmp_path):
    prepare(recordings, codec, tmp_path / "store")
    before = contents(tmp_path / "store")
    files = sorted(os.listdir(tmp_path / "store"))
    codec.encoded.clear()
    summary = prepare(recordings, codec, tmp_path / "store")
    assert codec.encoded == [] and summary.encoded == 0 and summary.reused == 25
    assert contents(tmp_path / "store") == before
    assert sorted(os.listdir(tmp_path / "store")) == files


def test_added_removed_and_changed_files(recordings, codec, tmp_path, write_recording):
    prepare(recordings, codec, tmp_path / "store")
    codec.encoded.clear()
    write_recording(recordings / "added.wav", 777)
    write_recording(recordings / "b0.wav", 555, seed=1234)
    (recordings / "b2.wav").unlink()
    kept = (recordings / "b4.wav").rename(tmp_path / "b4.wav")
    summary = prepare(recordings, codec, tmp_path / "store")
    assert sorted(codec.encoded) == [555, 777]
    assert (summary.files, summary.encoded, summary.reused) == (24, 2, 22)
    prepare(recordings, codec, tmp_path / "fresh")
    assert contents(tmp_path / "store") == contents(tmp_path / "fresh")

    codec.encoded.clear()  # a file that comes back is still there
    kept.rename(recordings / "b4.wav")
    assert prepare(recordings, codec, tmp_path / "store").encoded == 0


def test_what_a_source_says_is_taken_anew_without_encoding(recordings, codec, tmp_path):
    prepare(recordings, codec, tmp_path / "store")
    clips = [
        Clip(clip.id, clip.path, split="valid", label="noise", text="日本")
        for clip in folder_clips(recordings)
    ]
    summary = prepare_store(reversed(clips), codec, tmp_path / "store", show_progress=False)
    store = TokenStore(tmp_path / "store")
    assert summary.encoded == 0 and set(store.index["split"]) == {2}
    record = store.record(3)
    assert (record["split"], record["label"], record["text"]) == ("valid", "noise", "日本")


def test_bad_files_are_left_out_with_their_reason(recordings, codec, tmp_path, write_recording):
    prepare(recordings, codec, tmp_path / "good")
    import soundfile

    (recordings / "text.wav").write_text("hello")
    (recordings / "zero.wav").write_bytes(b"")
    soundfile.write(recordings / "nan.wav", np.full(800, np.nan), 8000, subtype="FLOAT")
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 40_000)
    soundfile.write(recordings / "cut.flac", noise, 8000)
    cut = (recordings / "cut.flac").read_bytes()
    (recordings / "cut.flac").write_bytes(cut[: len(cut) // 2])
    disliked = np.full(400, -1.0)
    soundfile.write(recordings / "disliked.wav", disliked, 8000, subtype="PCM_16")
    (recordings / "gone.wav").symlink_to(recordings / "nowhere.wav")

    summary = prepare(recordings, codec, tmp_path / "store")
    reasons = {bad.path.name: bad.reason for bad in summary.left_out}
    assert set(reasons) >= {"text.wav", "zero.wav", "nan.wav", "cut.flac", "disliked.wav"}
    assert reasons["disliked.wav"] == "this codec dislikes clips that start at -1"
    assert all(reason and "\n" not in reason for reason in reasons.values())
    assert contents(tmp_path / "store") == contents(tmp_path / "good")
    listed = json.loads((tmp_path / "store" / "left_out.json").read_text())
    assert {Path(entry["path"]).name: entry["reason"] for entry in listed} == reasons


def test_a_clip_whose_file_is_missing_is_left_out(recordings, codec, tmp_path):
    clips = [*folder_clips(recordings), Clip("gone", tmp_path / "gone.wav")]
    summary = prepare_store(clips, codec, tmp_path / "store", show_progress=False)
    assert summary.files == 25
    assert [(bad.path.name, bad.reason) for bad in summary.left_out] == [
        ("gone.wav", "No such file or directory")
    ]


def test_only_bad_files_is_one_line(codec, tmp_path):
    (tmp_path / "bad").mkdir()
    for i in range(3):
        (tmp_path / "bad" / f"{i}.wav").write_text("hello")
    with pytest.raises(ValueError, match=r"none of the 3 files .*0\.wav: not audio") as error:
        prepare(tmp_path / "bad", codec, tmp_path / "store")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="unfinished"):
        TokenStore(tmp_path / "store")


def test_no_folder_no_audio_no_clips_and_double_ids(codec, tmp_path):
    with pytest.raises(FileNotFoundError):
        prepare(tmp_path / "nowhere", codec, tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no audio"):
        prepare(tmp_path / "empty", codec, tmp_path / "store")
    with pytest.raises(ValueError, match="source is empty"):
        prepare_store([], codec, tmp_path / "store")
    twice = [Clip("a", tmp_path / "1.wav"), Clip("a", tmp_path / "2.wav")]
    with pytest.raises(ValueError, match=r"id 'a', .*1\.wav and .*2\.wav"):
        prepare_store(twice, codec, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    with pytest.raises(ValueError, match="train, valid, test"):
        Clip("a", tmp_path / "1.wav", split="dev")


@pytest.mark.parametrize("other", [{"fingerprint": "other"}, {"num_codebooks": 4}])
def test_a_store_of_another_codec_is_refused(recordings, make_codec, tmp_path, other):
    prepare(recordings, make_codec(), tmp_path / "store")
    before = contents(tmp_path / "store")
    with pytest.raises(ValueError, match=r"fake with 2 .*(other with 2|fake with 4)") as error:
        prepare(recordings, make_codec(**other), tmp_path / "store")
    assert "\n" not in str(error.value)
    assert contents(tmp_path / "store") == before


def test_default_store_dir_tells_folders_and_codecs_apart(make_codec, tmp_path):
    folders = [tmp_path / "a" / "my set", tmp_path / "b" / "my set"]
    codecs = [make_codec(), make_codec("other"), make_codec(num_codebooks=3)]
    names = {default_store_dir(tmp_path, f, c) for f in folders for c in codecs}
    assert len(names) == 6
    assert all(name.parent == tmp_path and name.name.startswith("my-set-") for name in names)
    same = tmp_path / "a" / "x" / ".." / "my set"
    assert default_store_dir(tmp_path, same, codecs[0]) in names
    assert default_store_dir(tmp_path, "/", codecs[0]).name.startswith("store-")


def test_plan_has_every_clip_once_in_bounded_batches_of_similar_length():
    rng = np.random.default_rng(0)
    for _ in range(50):
        durations = rng.exponential(5, rng.integers(1, 1500))
        durations[rng.random(len(durations)) < 0.1] = np.nan
        usable = np.flatnonzero(~np.isnan(durations))
        batches = list(plan_batches(durations, 20.0, 12.0)) if len(usable) else []
        assert sorted(i for batch in batches for i in batch) == usable.tolist()
        for batch in batches:
            seconds = durations[batch]
            assert len(batch) == 1 or (seconds.sum() <= 20.0 and seconds.max() <= 12.0)
            assert (np.diff(seconds) >= 0).all()


# ---- Stopping


def _killed(prepare_it: Callable[[], Any], arm: Callable[[], None], after: float = 60) -> bool:
    """Run in a forked process that `arm` prepares to be killed; whether it was."""

    def run() -> None:
        arm()
        prepare_it()

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(after)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _kill_at(number: int, monkeypatch: pytest.MonkeyPatch, where: str) -> Callable[[], None]:
    """Make the process kill itself just before (or after) its n-th call of os.replace."""

    def arm() -> None:
        calls = 0
        replace = os.replace

        def counted(source: Any, target: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == number and where == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(os, "replace", counted)

    return arm


@pytest.mark.parametrize("where", ["before", "after"])
def test_killed_around_every_rename_and_resumed(recordings, codec, tmp_path, monkeypatch, where):
    prepare(recordings, codec, tmp_path / "undisturbed")
    expected = contents(tmp_path / "undisturbed")
    number = 0
    while True:
        number += 1
        store = tmp_path / f"store-{number}"
        killed = _killed(
            lambda store=store: prepare(recordings, codec, store),
            _kill_at(number, monkeypatch, where),
        )
        if not killed:
            break
        try:
            seen = contents(store)
        except (ValueError, FileNotFoundError) as error:
            assert "run prepare" in str(error)
        else:
            assert seen == expected
        codec.encoded.clear()
        summary = prepare(recordings, codec, store)
        assert contents(store) == expected
        assert summary.reused + summary.encoded == 25 and len(codec.encoded) == summary.encoded
        assert not list(store.glob(".*.tmp")) and not (store / "clips.jsonl").exists()
        shutil.rmtree(store)
    assert number > 20  # two renames a shard, and those of the index


def test_killed_again_and_again_makes_progress(recordings, codec, tmp_path, monkeypatch):
    prepare(recordings, codec, tmp_path / "undisturbed")
    kills = 0
    # Each run is killed at its sixth rename: two shards of each run stay.
    while _killed(
        lambda: prepare(recordings, codec, tmp_path / "store"),
        _kill_at(6, monkeypatch, "before"),
    ):
        kills += 1
        assert kills < 100
    assert kills > 2
    assert contents(tmp_path / "store") == contents(tmp_path / "undisturbed")


def test_killed_at_random_times_while_adding_to_a_finished_store(
    recordings, codec, tmp_path, write_recording
):
    prepare(recordings, codec, tmp_path / "store")
    before = contents(tmp_path / "store")
    for i in range(20):
        write_recording(recordings / f"new{i}.wav", 4000, seed=1000 + i)
    prepare(recordings, codec, tmp_path / "undisturbed")
    expected = contents(tmp_path / "undisturbed")
    codec.before_batch = lambda: time.sleep(0.01)
    rng = np.random.default_rng(0)
    for _ in range(5):
        _killed(
            lambda: prepare(recordings, codec, tmp_path / "store"),
            lambda: None,
            after=float(rng.uniform(0.01, 0.1)),
        )
        # The old store stays whole until the new one is.
        assert contents(tmp_path / "store") in (before, expected)
    prepare(recordings, codec, tmp_path / "store")
    assert contents(tmp_path / "store") == expected


def test_ctrl_c_keeps_what_was_encoded(recordings, codec, tmp_path):
    batches = 0

    def interrupt() -> None:
        nonlocal batches
        batches += 1
        if batches == 4:
            raise KeyboardInterrupt

    codec.before_batch = interrupt
    with pytest.raises(KeyboardInterrupt, match=r"of 25 files .* run the same command"):
        prepare(recordings, codec, tmp_path / "store", shard_seconds=1e9)
    done = len(codec.encoded)
    assert done >= 3
    summary = prepare(recordings, codec, tmp_path / "store")
    assert summary.reused == done and summary.encoded == 25 - done


def test_shards_close_after_their_time(recordings, codec, tmp_path):
    for seconds, expected in ((0.0, len), (1e9, lambda _: 1)):
        store = tmp_path / f"store-{seconds}"
        prepare(recordings, codec, store, shard_seconds=seconds)
        batches = list(plan_batches(_durations(recordings), 2.0, 2.0))
        assert len(list(store.glob("shard-*.npy"))) == expected(batches)


def _durations(folder: Path) -> np.ndarray:
    import soundfile

    return np.array([soundfile.info(clip.path).duration for clip in folder_clips(folder)])


def test_two_processes_take_turns(recordings, codec, tmp_path, capfd):
    """The second waits, and finds everything done. A killed first one does not block it."""
    codec.before_batch = lambda: time.sleep(0.05)
    context = multiprocessing.get_context("fork")
    first = context.Process(target=prepare, args=(recordings, codec, tmp_path / "store"))
    first.start()
    while not list((tmp_path / "store").glob("shard-*")):
        time.sleep(0.01)
    summary = prepare(recordings, codec, tmp_path / "store")
    first.join()
    assert first.exitcode == 0 and summary.reused == 25
    assert capfd.readouterr().err.count("waiting: another process is preparing") == 1

    holder = context.Process(target=prepare, args=(recordings, codec, tmp_path / "other"))
    holder.start()
    while not list((tmp_path / "other").glob("shard-*")):
        time.sleep(0.01)
    threading.Timer(0.1, holder.kill).start()
    codec.before_batch = lambda: None
    assert prepare(recordings, codec, tmp_path / "other").files == 25
    holder.join()
    assert contents(tmp_path / "other") == contents(tmp_path / "store")


SCRIPT = """
import importlib.util, pathlib, sys, time
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
fakes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fakes)
from audiolm.tokens import folder_clips, prepare_store
codec = fakes.FakeCodec()
codec.before_batch = lambda: (print("batch", flush=True), time.sleep(0.02))
prepare_store(folder_clips(sys.argv[2]), codec, sys.argv[3], batch_seconds=2.0, stream_seconds=2.0,
              shard_seconds=0.0)
"""


def test_kill_9_of_a_real_process(recordings, codec, tmp_path):
    conftest = Path(__file__).with_name("conftest.py")
    command = [sys.executable, "-c", SCRIPT, conftest, recordings, tmp_path / "store"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    for _ in range(5):
        assert process.stdout.readline() == b"batch\n"
    process.kill()
    process.wait()
    process.stdout.close()
    with pytest.raises(ValueError, match="run prepare again"):
        TokenStore(tmp_path / "store")
    summary = prepare(recordings, codec, tmp_path / "store")
    assert summary.reused > 0
    prepare(recordings, codec, tmp_path / "undisturbed")
    assert contents(tmp_path / "store") == contents(tmp_path / "undisturbed")


@pytest.mark.skipif(not AUDIO.is_dir(), reason="no recordings here")
def test_real_recordings_through_a_real_codec(tmp_path):
    from audiolm.codec import load_local

    codec = load_local(CODEC)
    folder = tmp_path / "digits"
    folder.mkdir()
    for path in sorted((AUDIO / "digits").glob("*_1?.wav"))[:16]:
        (folder / path.name).symlink_to(path)
    prepare(folder, codec, tmp_path / "store")
    store = TokenStore(tmp_path / "store")
    same = total = 0
    for i in range(len(store)):
        waveform, _ = read_audio(store.record(i)["path"], codec.sample_rate, codec.channels)
        alone = codec.encode(waveform[None])[0].numpy()
        same += int((alone == store.codes(i)).sum())
        total += alone.size
    assert same / total >= 0.999
