"""Parts: together they make the store that one run makes, in one folder or in several."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

from audiolm.locks import FileLock
from audiolm.parallel import Part, check_part
from audiolm.tokens import TokenStore
from audiolm.tokens.encoding.locks import StoreLock
from audiolm.tokens.parts import how_to_finish, unfinished_parts, write_marker

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def whole(recordings, codec, tmp_path, prepare, contents) -> list[Any]:
    prepare(recordings, codec, tmp_path / "whole")
    codec.encoded.clear()
    return contents(tmp_path / "whole")


def in_the_background(prepare, recordings, codec, store, part, seconds: float = 0.0):
    def prepare_slowly() -> None:
        torch.set_num_threads(1)  # one batch after the other
        prepare(recordings, codec, store, part=part)

    codec.before_batch = lambda: time.sleep(seconds)
    process = FORK.Process(target=prepare_slowly)
    process.start()
    codec.before_batch = lambda: None
    return process


@pytest.mark.parametrize("count", [2, 3])
def test_one_after_the_other_in_one_folder(
    recordings, codec, tmp_path, prepare, contents, whole, count
):
    store = tmp_path / "store"
    for number in reversed(range(1, count)):
        summary = prepare(recordings, codec, store, part=Part(number, count))
        assert summary.missing_parts == tuple(range(number))
        assert f"part {number} of {count} is done; part" in summary.lines()[-1]
        with pytest.raises(ValueError, match=f"unfinished, part.* 0.* of {count} .* missing"):
            TokenStore(store)
    summary = prepare(recordings, codec, store, part=Part(0, count))
    assert summary.missing_parts == () and summary.files == 25
    assert contents(store) == whole
    assert not [*store.glob("part-*"), *store.glob("section-*")]
    # Each section has its margins; nothing was encoded twice.
    assert sum(codec.encoded) < sum(1.05 * 80 * n for n in TokenStore(store).frames)


def test_at_the_same_time_in_one_folder(recordings, codec, tmp_path, prepare, contents, whole):
    store = tmp_path / "store"
    processes = [
        in_the_background(prepare, recordings, codec, store, Part(number, 3), 0.02)
        for number in range(3)
    ]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert contents(store) == whole
    assert not [*store.glob("part-*"), *store.glob("section-*")]


@pytest.mark.parametrize("finish", [Part(0, 2), Part(1, 2), Part()])
def test_folders_put_into_one(recordings, codec, tmp_path, prepare, contents, whole, finish):
    """As on machines without a common disk, which see other times of the files."""
    for number in range(2):
        for path in recordings.rglob("*.wav"):
            os.utime(path, (number, number))
        prepare(recordings, codec, tmp_path / str(number), part=Part(number, 2))
    store = tmp_path / "merged"
    for number in range(2):
        shutil.copytree(tmp_path / str(number), store, dirs_exist_ok=True)
    with pytest.raises(ValueError, match=r"all 2 parts are done, .* prepare once more"):
        TokenStore(store)
    codec.encoded.clear()
    summary = prepare(recordings, codec, store, part=finish)
    assert codec.encoded == [] and summary.missing_parts == ()
    assert contents(store) == whole


def test_a_part_is_missing(recordings, codec, tmp_path, prepare, contents, whole):
    store = tmp_path / "store"
    summary = prepare(recordings, codec, store, part=Part(0, 2))
    assert 0 < summary.files < 25 and summary.missing_parts == (1,)
    for text in (summary.lines()[-1], _refusal(store)):
        assert "part 1 of 2 is missing" in text and "num_parts=2 part=1" in text
        assert "\n" not in text
    # Its own work is not done again; without a part, all that is missing is done.
    codec.encoded.clear()
    assert prepare(recordings, codec, store, part=Part(0, 2)).encoded == 0
    assert codec.encoded == []
    assert prepare(recordings, codec, store).files == 25
    assert contents(store) == whole and not list(store.glob("part-*"))


def _refusal(store: Path) -> str:
    with pytest.raises(ValueError) as error:
        TokenStore(store)
    return str(error.value)


def test_a_part_is_killed_and_run_again(recordings, codec, tmp_path, prepare, contents, whole):
    store = tmp_path / "store"
    process = in_the_background(prepare, recordings, codec, store, Part(1, 2), 0.5)
    while len(list(store.glob("s*-*.jsonl"))) < 2:
        time.sleep(0.01)
    other = in_the_background(prepare, recordings, codec, store, Part(0, 2), 0.1)
    while len(list(store.glob("s*-*.jsonl"))) < 3:
        time.sleep(0.01)
    process.kill()
    process.join()
    other.join()
    assert other.exitcode == 0
    assert "part 1 of 2 is missing" in _refusal(store)
    prepare(recordings, codec, store, part=Part(1, 2))
    assert contents(store) == whole


def test_what_a_part_leaves_out_is_no_missing_part(recordings, codec, tmp_path, prepare, contents):
    for name in ("a.wav", "b.wav"):
        soundfile.write(recordings / name, [-1.0] * (400 + len(name)), 8000)
    soundfile.write(recordings / "c.wav", [-1.0] + [0.5] * 20_000, 8000)
    prepare(recordings, codec, tmp_path / "whole")
    prepare(recordings, codec, tmp_path / "store", part=Part(1, 2))
    summary = prepare(recordings, codec, tmp_path / "store", part=Part(0, 2))
    assert {bad.path.name for bad in summary.skipped} == {"a.wav", "b.wav", "c.wav"}
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")
    listed = (tmp_path / "store" / "left_out.json").read_text()
    assert listed == (tmp_path / "whole" / "left_out.json").read_text()


def test_one_part_finishes_the_store_while_another_waits_to(
    recordings, codec, tmp_path, prepare, contents, monkeypatch
):
    """Also where the one that waits does not know what the other skipped."""
    for i in range(6):
        soundfile.write(recordings / f"bad{i}.wav", [-1.0] * (400 + i), 8000)
    store = tmp_path / "store"
    unshare = StoreLock.unshare

    def later(lock: StoreLock) -> None:
        prepare(recordings, codec, store, part=Part(0, 2))
        unshare(lock)

    prepare(recordings, codec, tmp_path / "whole")
    monkeypatch.setattr(
        StoreLock, "unshare", lambda lock: (unshare if lock._part.number == 0 else later)(lock)
    )
    summary = prepare(recordings, codec, store, part=Part(1, 2))
    assert summary.missing_parts == () and summary.files == 25
    assert contents(store) == contents(tmp_path / "whole")
    assert not [*store.glob("part-*"), *store.glob("section-*")]


def test_a_finished_store_grows_in_parts(
    recordings, codec, tmp_path, prepare, contents, write_recording
):
    store = tmp_path / "store"
    prepare(recordings, codec, store)
    before = contents(store)
    for i in range(10):
        write_recording(recordings / f"new{i}.wav", 4000, seed=100 + i)
    write_recording(recordings / "new long.wav", 40_000, seed=200)
    codec.encoded.clear()
    prepare(recordings, codec, store, part=Part(0, 2))
    assert contents(store) == before
    prepare(recordings, codec, store, part=Part(1, 2))
    assert sum(codec.encoded) < 80_000 + 5000
    prepare(recordings, codec, tmp_path / "fresh")
    assert contents(store) == contents(tmp_path / "fresh")


def test_markers_of_a_collection_that_grew_meanwhile(
    recordings, codec, tmp_path, prepare, contents, write_recording
):
    store = tmp_path / "store"
    prepare(recordings, codec, store, part=Part(0, 2))
    for i in range(20):
        write_recording(recordings / f"new{i}.wav", 4000, seed=100 + i)
    assert prepare(recordings, codec, store, part=Part(1, 2)).missing_parts == (0,)
    assert "part 0 of 2 is missing" in _refusal(store)
    prepare(recordings, codec, store, part=Part(0, 2))
    prepare(recordings, codec, tmp_path / "fresh")
    assert contents(store) == contents(tmp_path / "fresh")


def test_the_whole_waits_for_parts_and_parts_for_the_whole(
    recordings, codec, tmp_path, prepare, contents, whole, capfd
):
    store = tmp_path / "store"
    part = in_the_background(prepare, recordings, codec, store, Part(0, 2), 0.1)
    while not list(store.glob("s*-*.jsonl")):
        time.sleep(0.01)
    again = in_the_background(prepare, recordings, codec, store, Part(0, 2))
    summary = prepare(recordings, codec, store)
    part.join()
    again.join()
    assert part.exitcode == again.exitcode == 0
    assert summary.reused > 0 and contents(store) == whole
    assert capfd.readouterr().err.count("waiting: another process is preparing") == 2


def test_one_who_only_looks_is_not_waited_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("audiolm.tokens.encoding.locks._RETRY_SECONDS", 30.0)
    with StoreLock(tmp_path, Part(0, 2)) as part:
        part.share()
        looking = FileLock(tmp_path / ".lock")
        looking.acquire()
        threading.Timer(0.1, looking.release).start()
        part.unshare()
    assert capsys.readouterr().err == ""


def test_who_may_write(tmp_path):
    with StoreLock(tmp_path, Part(0, 2)) as first:
        assert first.alone()
        first.share()

        def other() -> None:
            with StoreLock(tmp_path, Part(1, 2)) as second:
                assert not second.alone()

        process = FORK.Process(target=other)
        process.start()
        process.join(20)
        assert process.exitcode == 0
        first.unshare()
        assert first.alone()


def test_check_part():
    for part in (Part(), Part(0, 1), Part(4, 5)):
        check_part(part)
    for part, words in (
        (Part(2, 2), "part=2 num_parts=2: parts count from 0, give 0 to 1"),
        (Part(-1, 3), "part=-1 num_parts=3"),
        (Part(0, 0), "give at least 1 for num_parts"),
    ):
        with pytest.raises(ValueError) as error:
            check_part(part)
        assert words in str(error.value) and "\n" not in str(error.value)


def test_a_part_out_of_range_is_refused_at_once(recordings, codec, tmp_path, prepare):
    with pytest.raises(ValueError, match="part=3 num_parts=2"):
        prepare(recordings, codec, tmp_path / "store", part=Part(3, 2))
    assert not (tmp_path / "store").exists()


def test_a_damaged_marker_is_named(recordings, codec, tmp_path, prepare):
    prepare(recordings, codec, tmp_path / "store", part=Part(0, 2))
    (marker,) = (tmp_path / "store").glob("part-0-of-2-*.json")
    assert json.loads(marker.read_text()) == {"left_out": {}}
    marker.write_text("{")
    with pytest.raises(ValueError, match=f"{marker.name} is damaged .* run that part again"):
        prepare(recordings, codec, tmp_path / "store", part=Part(1, 2))


def test_missing_parts_in_words(tmp_path):
    assert unfinished_parts(tmp_path) is None
    write_marker(tmp_path, Part(0, 3), "aa", {})
    write_marker(tmp_path, Part(0, 3), "bb", {1: "x"})
    assert len(list(tmp_path.glob("part-*"))) == 1
    assert (unfinished_parts(tmp_path) or "").startswith("parts 1, 2 of 3 are missing")
    assert "part=0,1,2,3,4,5,6,7,... " in how_to_finish(100, range(50)).replace(",..., or", ",... ")
