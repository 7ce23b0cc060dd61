"""A folder becomes a store: what is in it, what is skipped, and what a kill cannot change."""

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
import soundfile
import torch

from audiolm.audio import read_audio
from audiolm.datasets.clip import Clip
from audiolm.datasets.folder import folder_clips
from audiolm.files import hash64
from audiolm.tokens import TokenStore, default_store_dir, prepare_store
from audiolm.tokens.encoding import decode as reading_module

AUDIO = Path(__file__).resolve().parents[4] / "shared" / "audio"

# On a machine of one core.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def test_store_holds_every_clip_in_order_of_ids(recordings, codec, tmp_path, prepare):
    summary = prepare(recordings, codec, tmp_path / "store")
    store = TokenStore(tmp_path / "store")
    clips = sorted(folder_clips(recordings), key=lambda clip: clip.id)
    assert len(store) == len(clips) == summary.files == summary.encoded == 25
    assert summary.reused == 0 and summary.skipped == () and summary.missing_parts == ()
    for i, clip in enumerate(clips):
        waveform, _ = read_audio(clip.path, codec.sample_rate, codec.channels)
        expected = codec.encode(waveform[None])[0].numpy()
        assert np.array_equal(store.codes(i), expected), clip.id
        assert store.record(i) == {
            "id": clip.id,
            "path": str(clip.path),
            "start": 0.0,
            "end": None,
            "duration": waveform.shape[1] / codec.sample_rate,
            "frames": expected.shape[1],
            "split": None,
            "label": None,
            "text": None,
            "columns": {},
        }
    assert np.array_equal(store.index["split_hash"], store.index["id_hash"])
    assert store.total_frames == summary.frames == int(store.frames.sum())
    assert store.hours == summary.hours == store.total_frames / 100 / 3600
    assert (store.num_codebooks, store.codebook_size, store.frame_rate) == (2, 300, 100.0)
    assert store.codec == codec.identity()
    assert store.codes(0).dtype == np.uint16
    assert summary.encoded_hours == summary.hours
    left = {path.name.split("-")[0] for path in (tmp_path / "store").glob("[!.]*")}
    assert left == {"store.json", "index", "clips", "shard", "left_out.json"}


def test_summary_reads_well(recordings, codec, tmp_path, prepare):
    (recordings / "bad\nname.wav").write_text("not audio")
    summary = prepare(recordings, codec, tmp_path / "store")
    lines = str(summary).splitlines()
    assert lines == summary.lines() and len(lines) == 6
    assert "25 encoded now, 0 reused" in lines[1] and lines[4].split()[-1] == "1"
    assert "name.wav: " in lines[5]
    assert summary.lines(max_skipped=0)[-1].endswith("left_out.json")


@pytest.mark.parametrize("num_workers", [1, 3])
def test_workers_change_nothing(recordings, codec, tmp_path, prepare, contents, num_workers):
    soundfile.write(recordings / "nan.wav", np.full(800, np.nan), 8000, subtype="FLOAT")
    prepare(recordings, codec, tmp_path / "none")
    summary = prepare(recordings, codec, tmp_path / "some", num_workers=num_workers)
    assert [bad.path.name for bad in summary.skipped] == ["nan.wav"]
    assert contents(tmp_path / "some") == contents(tmp_path / "none")


def test_second_run_encodes_nothing_and_changes_nothing(
    recordings, codec, tmp_path, prepare, contents
):
    prepare(recordings, codec, tmp_path / "store")
    before = contents(tmp_path / "store")
    files = sorted(os.listdir(tmp_path / "store"))
    codec.encoded.clear()
    summary = prepare(recordings, codec, tmp_path / "store")
    assert codec.encoded == [] and summary.encoded == 0 and summary.reused == 25
    assert contents(tmp_path / "store") == before
    assert sorted(os.listdir(tmp_path / "store")) == files


def test_added_removed_and_changed_files(
    recordings, codec, tmp_path, prepare, contents, write_recording
):
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


def test_files_that_are_only_renamed_touched_or_in_another_format(
    recordings, codec, tmp_path, prepare
):
    prepare(recordings, codec, tmp_path / "store")
    codec.encoded.clear()
    (recordings / "b0.wav").rename(recordings / "zz.wav")
    os.utime(recordings / "b2.wav", ns=(0, 0))
    samples, rate = soundfile.read(recordings / "long.wav", dtype="int16")
    (recordings / "long.wav").unlink()
    soundfile.write(recordings / "long.flac", samples, rate)
    summary = prepare(recordings, codec, tmp_path / "store")
    assert codec.encoded == [] and (summary.encoded, summary.reused) == (0, 25)
    store = TokenStore(tmp_path / "store")
    ids = [store.record(i)["id"] for i in range(25)]
    assert {"zz.wav", "long.flac"} < set(ids) and ids == sorted(ids)
    assert store.index["id_hash"].tolist() == [hash64(clip_id) for clip_id in ids]


def test_what_a_source_says_is_taken_anew_without_encoding(
    recordings, codec, tmp_path, prepare, check_clips_here
):
    prepare(recordings, codec, tmp_path / "store")
    clips = [
        Clip(clip.id, clip.path, split="valid", label="noise", text="日本", columns={"mic": "1"})
        for clip in folder_clips(recordings)
    ]
    report = check_clips_here(reversed(clips))
    summary = prepare_store(report, codec, tmp_path / "store", show_progress=False)
    store = TokenStore(tmp_path / "store")
    assert summary.encoded == 0 and set(store.index["split"]) == {2}
    record = store.record(3)
    assert (record["split"], record["label"], record["text"]) == ("valid", "noise", "日本")
    assert record["columns"] == {"mic": "1"}


def test_parts_of_files_are_clips(recordings, codec, tmp_path, check_clips_here):
    path = recordings / "long.wav"
    times = [(0.0, 0.5), (0.5, 2.9), (0.25, None), (2.99, 3.0)]
    clips = [Clip(f"{i}", path, start, end) for i, (start, end) in enumerate(times)]
    report = check_clips_here(clips)
    prepare_store(report, codec, tmp_path / "store", section_seconds=0.5, show_progress=False)
    store = TokenStore(tmp_path / "store")
    for i, (start, end) in enumerate(times):
        samples, _ = read_audio(path, 8000, 1, start, None if end is None else end - start)
        assert np.array_equal(store.codes(i), codec.encode(samples[None])[0].numpy())
        assert (store.record(i)["start"], store.record(i)["end"]) == (start, end)


def test_exact_duplicates_share_codes_and_split(
    recordings, codec, tmp_path, check_clips_here, write_recording
):
    for name in ("x", "y"):
        write_recording(tmp_path / f"{name}.wav", 1000, seed=7)
    clips = [
        Clip("x", tmp_path / "x.wav", split="test"),
        Clip("y", tmp_path / "y.wav", split="train"),
        *folder_clips(recordings),
    ]
    summary = prepare_store(check_clips_here(clips), codec, tmp_path / "store", show_progress=False)
    store = TokenStore(tmp_path / "store")
    assert codec.encoded.count(1000) == 1 and summary.files == summary.encoded == 27
    rows = store.index[-2:]
    assert len(set(rows["split_hash"])) == len(set(rows["offset"])) == 1
    assert rows["split"].tolist() == [3, 3]
    assert [store.record(i)["split"] for i in (25, 26)] == ["test", "test"]


def test_clips_of_a_group_are_validation_together(recordings, codec, tmp_path, check_clips_here):
    clips = [
        Clip(clip.id, clip.path, label="a", columns={"speaker": "ann"} if i % 2 else {})
        for i, clip in enumerate(folder_clips(recordings))
    ]
    report = check_clips_here(clips)
    store_dir = tmp_path / "store"
    prepare_store(report, codec, store_dir, group="speaker", show_progress=False)
    hashes = TokenStore(store_dir).index["split_hash"].tolist()
    assert hashes == [hash64("ann" if clip.columns else clip.id) for clip in report.kept]
    assert prepare_store(report, codec, store_dir, group="label", show_progress=False).reused == 25
    assert set(TokenStore(store_dir).index["split_hash"]) == {hash64("a")}
    with pytest.raises(ValueError, match=r"group=album: .* it says .*speaker; name one of these"):
        prepare_store(report, codec, tmp_path / "other", group="album", show_progress=False)
    assert not (tmp_path / "other").exists()


def test_bad_files_are_skipped_with_their_reason(recordings, codec, tmp_path, prepare, contents):
    prepare(recordings, codec, tmp_path / "good")
    (recordings / "text.wav").write_text("hello")
    soundfile.write(recordings / "nan.wav", np.full(800, np.nan), 8000, subtype="FLOAT")
    soundfile.write(recordings / "disliked.wav", np.full(400, -1.0), 8000, subtype="PCM_16")
    longer = np.concatenate([np.full(1, -1.0), np.random.default_rng(0).uniform(-0.5, 0.5, 30_000)])
    soundfile.write(recordings / "disliked long.wav", longer, 8000, subtype="PCM_16")

    summary = prepare(recordings, codec, tmp_path / "store")
    reasons = {bad.path.name: bad.reason for bad in summary.skipped}
    assert set(reasons) == {"text.wav", "nan.wav", "disliked.wav", "disliked long.wav"}
    assert reasons["disliked.wav"] == "this codec dislikes clips that start at -1"
    assert reasons["disliked long.wav"] == reasons["disliked.wav"]
    assert all(reason and "\n" not in reason for reason in reasons.values())
    assert contents(tmp_path / "store") == contents(tmp_path / "good")
    listed = json.loads((tmp_path / "store" / "left_out.json").read_text())
    assert {Path(entry["path"]).name: entry["reason"] for entry in listed} == reasons
    assert not list((tmp_path / "store").glob("section-*"))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_files_that_changed_after_the_check_are_skipped(
    recordings, codec, tmp_path, check_clips_here, num_workers
):
    report = check_clips_here(folder_clips(recordings))
    with open(recordings / "b0.wav", "ab") as file:
        file.write(b"more")
    os.utime(recordings / "long.wav")
    (recordings / "b2.wav").unlink()
    summary = prepare_store(
        report,
        codec,
        tmp_path / "store",
        section_seconds=1.0,
        num_workers=num_workers,
        show_progress=False,
    )
    changed = "changed since it was checked; run prepare again"
    assert [(bad.path.name, bad.reason) for bad in summary.skipped] == [
        ("b0.wav", changed),
        ("b2.wav", "No such file or directory"),
        ("long.wav", changed),
    ]
    assert summary.files == len(TokenStore(tmp_path / "store")) == 22


def test_only_bad_files_is_one_line(codec, tmp_path, write_recording, check_clips_here):
    for i in range(3):
        write_recording(tmp_path / "bad" / f"{i}.wav", 500, seed=i)
    report = check_clips_here(folder_clips(tmp_path / "bad"))
    shutil.rmtree(tmp_path / "bad")
    with pytest.raises(ValueError, match=r"none of the 3 files .*\.wav: No such file") as error:
        prepare_store(report, codec, tmp_path / "store", show_progress=False)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="unfinished"):
        TokenStore(tmp_path / "store")


def test_nothing_left_and_settings_that_are_none(recordings, codec, tmp_path, check_clips_here):
    (tmp_path / "text.wav").write_text("hello")
    nothing = check_clips_here([Clip("a", tmp_path / "text.wav")])
    with pytest.raises(ValueError, match="the check skipped all"):
        prepare_store(nothing, codec, tmp_path / "store")
    report = check_clips_here(folder_clips(recordings))
    with pytest.raises(ValueError, match="section_seconds 0 must be"):
        prepare_store(report, codec, tmp_path / "store", section_seconds=0)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("other", [{"fingerprint": "other"}, {"num_codebooks": 4}])
def test_a_store_of_another_codec_is_refused(
    recordings, make_codec, tmp_path, prepare, contents, other
):
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


def _kill_at(number: int, function: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the process kill itself just before its n-th call of a function of `os`."""

    def arm() -> None:
        calls = 0
        original = getattr(os, function)

        def counted(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **keywords)

        monkeypatch.setattr(os, function, counted)

    return arm


@pytest.mark.parametrize("function", ["replace", "unlink"])
def test_killed_at_every_change_of_a_file_and_resumed(
    recordings, codec, tmp_path, prepare, contents, monkeypatch, function
):
    """While a batch or section is written, while sections are joined, and at every step of the end:
    before a file gets its name, and before one that is left is removed."""
    for path in recordings.glob("*/*.wav"):
        path.unlink()
    prepare(recordings, codec, tmp_path / "undisturbed")
    expected = contents(tmp_path / "undisturbed")
    number = 0
    while True:
        number += 1
        store = tmp_path / f"store-{number}"
        killed = _killed(
            lambda store=store: prepare(recordings, codec, store),
            _kill_at(number, function, monkeypatch),
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
        assert summary.reused + summary.encoded == 13
        for left in (".*.tmp", "section-*", "clips.jsonl", "part-*"):
            assert not list(store.glob(left))
        shutil.rmtree(store)
    assert number > 15  # two files a shard, and those of the index


def test_killed_again_and_again_makes_progress(
    recordings, codec, tmp_path, prepare, contents, monkeypatch
):
    prepare(recordings, codec, tmp_path / "undisturbed")
    kills = 0
    # Each run is killed at its sixth rename: two shards of each run stay.
    while _killed(
        lambda: prepare(recordings, codec, tmp_path / "store"),
        _kill_at(6, "replace", monkeypatch),
    ):
        kills += 1
        assert kills < 100
    assert kills > 2
    assert contents(tmp_path / "store") == contents(tmp_path / "undisturbed")


def test_killed_at_random_times_while_adding_to_a_finished_store(
    recordings, codec, tmp_path, prepare, contents, write_recording
):
    prepare(recordings, codec, tmp_path / "store")
    before = contents(tmp_path / "store")
    for i in range(20):
        write_recording(recordings / f"new{i}.wav", 4000, seed=1000 + i)
    write_recording(recordings / "new long.wav", 40_000, seed=1020)
    prepare(recordings, codec, tmp_path / "undisturbed")
    expected = contents(tmp_path / "undisturbed")
    codec.before_batch = lambda: time.sleep(0.01)
    rng = np.random.default_rng(0)
    for _ in range(5):
        _killed(
            lambda: prepare(recordings, codec, tmp_path / "store"),
            lambda: None,
            after=float(rng.uniform(0.02, 0.2)),
        )
        # The old store stays whole until the new one is.
        assert contents(tmp_path / "store") in (before, expected)
    prepare(recordings, codec, tmp_path / "store")
    assert contents(tmp_path / "store") == expected


def test_ctrl_c_keeps_what_was_encoded(recordings, codec, tmp_path, prepare):
    batches = 0

    def interrupt() -> None:
        nonlocal batches
        batches += 1
        if batches == 10:  # in the long one's sections
            raise KeyboardInterrupt

    codec.before_batch = interrupt
    with pytest.raises(KeyboardInterrupt, match=r"stopped; 0\.\d+ of 0\.\d+ hours .* run the same"):
        prepare(recordings, codec, tmp_path / "store", shard_seconds=1e9)
    done = sum(codec.encoded)
    summary = prepare(recordings, codec, tmp_path / "store")
    assert summary.reused == 24 and summary.encoded == 1
    assert sum(codec.encoded) - done < 20_000  # the first section is kept


def test_shards_close_after_their_time(recordings, codec, tmp_path, prepare):
    prepare(recordings, codec, tmp_path / "store", shard_seconds=1e9)
    shards = list((tmp_path / "store").glob("shard-*.npy"))
    assert len(shards) == 2  # of the short ones, and of the joined long one


def test_a_worker_that_dies_ends_it_with_one_line(
    recordings, codec, tmp_path, prepare, contents, monkeypatch
):
    main, read, calls = os.getpid(), reading_module.read_audio, 0

    def dies(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if os.getpid() != main and calls == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(*arguments)

    monkeypatch.setattr(reading_module, "read_audio", dies)
    with pytest.raises(ChildProcessError, match=r"decoding died; .* kept: DataLoader") as error:
        prepare(recordings, codec, tmp_path / "store", num_workers=1)
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    assert prepare(recordings, codec, tmp_path / "store").files == 25
    prepare(recordings, codec, tmp_path / "undisturbed")
    assert contents(tmp_path / "store") == contents(tmp_path / "undisturbed")


def test_two_processes_take_turns(recordings, codec, tmp_path, prepare, contents, capfd):
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


@pytest.mark.parametrize("threads", [2, 5])
def test_batches_side_by_side_give_the_same_store(
    recordings, codec, tmp_path, prepare, contents, threads
):
    before = torch.get_num_threads()
    for folder, number in (("one", 1), ("many", threads)):
        torch.set_num_threads(number)
        try:
            prepare(recordings, codec, tmp_path / folder)
        finally:
            torch.set_num_threads(before)
    assert contents(tmp_path / "one") == contents(tmp_path / "many")


SCRIPT = """
import importlib.util, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
fakes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fakes)
fakes.torch.set_num_threads(1)  # one batch after the other
codec = fakes.FakeCodec()
codec.before_batch = lambda: (print("batch", flush=True), time.sleep(0.02))
fakes.prepare_folder(Path(sys.argv[2]), codec, Path(sys.argv[3]), num_workers=1)
"""


@pytest.mark.parametrize("batches", [2, 9])
def test_kill_9_of_a_real_process_with_a_worker(
    recordings, codec, tmp_path, prepare, contents, batches
):
    stores = Path(__file__).parents[2] / "stores.py"
    command = [sys.executable, "-c", SCRIPT, stores, recordings, tmp_path / "store"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    for _ in range(batches):
        assert process.stdout.readline() == b"batch\n"
    process.kill()
    process.wait()
    process.stdout.close()
    with pytest.raises(ValueError, match="run prepare again"):
        TokenStore(tmp_path / "store")
    before = len(list((tmp_path / "store").glob("s*.jsonl")))
    assert before in (batches - 1, batches)
    prepare(recordings, codec, tmp_path / "store")
    prepare(recordings, codec, tmp_path / "undisturbed")
    assert contents(tmp_path / "store") == contents(tmp_path / "undisturbed")


# ---- A real codec


@pytest.mark.parametrize("kind", ["digits", "speech"])
@pytest.mark.skipif(not AUDIO.is_dir(), reason="no recordings here")
def test_real_recordings_through_a_real_codec(tmp_path, prepare, kind):
    from audiolm.codec import load_bundled

    codec = load_bundled()
    folder = tmp_path / kind
    folder.mkdir()
    for path in sorted((AUDIO / kind).glob("*.[wf][al]*"))[: 40 if kind == "digits" else 8]:
        (folder / path.name).symlink_to(path)
    prepare(folder, codec, tmp_path / "store", batch_seconds=20.0, section_seconds=60.0)
    store = TokenStore(tmp_path / "store")
    same = total = 0
    for i in range(len(store)):
        waveform, _ = read_audio(store.record(i)["path"], codec.sample_rate, codec.channels)
        alone = codec.encode(waveform[None])[0].numpy()
        same += int((alone == store.codes(i)).sum())
        total += alone.size
    assert same / total >= 0.999


def test_a_random_codec_gives_each_clip_its_own_codes(
    recordings, make_tiny_codec, tmp_path, prepare
):
    codec = make_tiny_codec(sample_rate=8000)
    prepare(recordings, codec, tmp_path / "store")
    store = TokenStore(tmp_path / "store")
    for i in range(len(store)):
        waveform, _ = read_audio(store.record(i)["path"], 8000, 1)
        alone = codec.encode(waveform[None])[0]
        assert (torch.from_numpy(store.codes(i).astype(np.int64)) == alone).float().mean() > 0.99
