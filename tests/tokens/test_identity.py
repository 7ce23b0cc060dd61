"""Which clips a store holds does not depend on where it lies, nor on how it came to be."""

from __future__ import annotations

import json
import shutil

import pytest

from audiolm.tokens import ClipSet, TokenStore, audio_keys
from audiolm.tokens.encoding.places import default_store_dir


def test_the_same_clips_wherever_they_lie(recordings, codec, tmp_path, prepare):
    prepare(recordings, codec, tmp_path / "one")
    one = ClipSet.of(TokenStore(tmp_path / "one"))
    assert one.count == 25 and 0 < len(one.sample) <= 25
    moved = shutil.copytree(recordings, tmp_path / "moved")
    prepare(moved, codec, tmp_path / "two", shard_seconds=100.0)  # in other shards
    (tmp_path / "two").rename(tmp_path / "three")
    assert ClipSet.of(TokenStore(tmp_path / "three")) == one
    assert ClipSet.from_settings(json.loads(json.dumps(one.settings()))) == one


def test_what_differs_is_told(recordings, codec, tmp_path, prepare, write_recording):
    prepare(recordings, codec, tmp_path / "store")
    before = ClipSet.of(TokenStore(tmp_path / "store"))
    # The same audio under another name is dealt out otherwise.
    (recordings / "b4.wav").rename(recordings / "z4.wav")
    prepare(recordings, codec, tmp_path / "store")
    store = TokenStore(tmp_path / "store")
    assert ClipSet.of(store).fingerprint != before.fingerprint
    assert before.share_in(audio_keys(store)) == 1.0
    # Of other audio under the same names nothing is there.
    for i, file in enumerate(sorted(recordings.rglob("*.wav"))):
        write_recording(file, 500 + i, seed=1000 + i)
    prepare(recordings, codec, tmp_path / "other")
    assert before.share_in(audio_keys(TokenStore(tmp_path / "other"))) == 0.0


def test_a_store_without_its_records_is_named(recordings, codec, tmp_path, prepare):
    prepare(recordings, codec, tmp_path / "store")
    next((tmp_path / "store").glob("shard-*.jsonl")).unlink()
    with pytest.raises(ValueError, match="copy the whole store again"):
        audio_keys(TokenStore(tmp_path / "store"))


def test_a_store_is_found_from_the_project_and_after_a_move(
    recordings, codec, tmp_path, prepare, monkeypatch
):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    recordings.rename(here / "recs")
    monkeypatch.chdir(here)
    usual = default_store_dir("tokens", "recs", codec)
    assert usual == default_store_dir("tokens", here / "recs", codec)
    prepare(here / "recs", codec, here / usual)
    here.rename(there)
    monkeypatch.chdir(there)
    assert default_store_dir("tokens", "recs", codec) == usual
    # A copy of the recordings, or others of their names, is another collection.
    shutil.copytree("recs", "copy")
    assert default_store_dir("tokens", "copy", codec) != usual
    shutil.rmtree("copy")
    (there / "recs").rename(tmp_path / "apart")
    assert default_store_dir("tokens", tmp_path / "apart", codec) == usual
    next((tmp_path / "apart").rglob("*.wav")).unlink()
    (tmp_path / "apart" / "new").mkdir()
    assert default_store_dir("tokens", tmp_path / "apart" / "new", codec) != usual
