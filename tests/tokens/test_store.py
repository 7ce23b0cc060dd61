"""The store as a reader sees it."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from audiolm.tokens import TokenStore, check_codec
from audiolm.tokens import store as store_module
from audiolm.tokens.shards import CLIPS, ShardWriter, code_dtype, scan_shards, write_shard
from audiolm.tokens.store import INDEX, begin_store, commit_index


@pytest.mark.parametrize("size", [2, 256, 257, 65536, 65537])
def test_codes_survive_whatever_their_size(make_store, random_clips, size):
    clips = random_clips([1, 5, 1000, 3], num_codebooks=3, size=size)
    clips["000000.wav"][0, 0] = size - 1
    store = make_store(clips, size=size, num_shards=3)
    for i, codes in enumerate(clips.values()):
        assert np.array_equal(store.codes(i), codes)
        assert store.codes(i).dtype == code_dtype(size)
    assert np.array_equal(store.read(2, 10, 50), clips["000002.wav"][:, 10:60])
    assert store.read(2, 1000, 0).shape == (3, 0)
    assert store.frames.tolist() == [1, 5, 1000, 3] and store.frames.dtype == np.int64


def test_reading_outside_is_refused(make_store, random_clips):
    store = make_store(random_clips([5, 5]))
    for start, length in ((0, 6), (-1, 2), (5, 1), (3, -1)):
        with pytest.raises(ValueError, match=r"of clip 1 .*which has 5"):
            store.read(1, start, length)
    for clip in (2, -3):
        with pytest.raises(IndexError):
            store.codes(clip)
    for clip in (2, -1):
        with pytest.raises(IndexError):
            store.record(clip)
    with pytest.raises(ValueError, match="read-only"):
        store.codes(0)[0, 0] = 1


def test_codes_that_are_not_the_codecs_are_refused(tmp_path):
    writer = ShardWriter(tmp_path, CLIPS, 2, 300, max_seconds=0)
    for codes, why in (
        (np.full((2, 4), 300), "0 .. 299"),
        (np.full((2, 4), -1), "0 .. 299"),
        (np.zeros((3, 4), int), "shape"),
        (np.zeros((2, 0), int), "shape"),
    ):
        with pytest.raises(ValueError, match=why):
            writer.add([(1, codes)])
    writer.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"2\*\*32"):
        code_dtype(2**32 + 1)


def test_a_copy_in_another_process_maps_the_files_itself(make_store, random_clips):
    clips = random_clips([7, 9])
    store = make_store(clips)
    store.codes(0), store.frames, store.record(0)
    data = pickle.dumps(store)
    assert len(data) < 2000
    copy = pickle.loads(data)
    assert np.array_equal(copy.codes(1), clips["000001.wav"]) and copy.record(1) == store.record(1)


def test_few_shards_are_open_at_a_time(make_store, random_clips, monkeypatch):
    monkeypatch.setattr(store_module, "_MAX_OPEN_SHARDS", 2)
    clips = random_clips([3] * 12)
    store = make_store(clips, num_shards=6)
    for _ in range(2):
        for i, codes in enumerate(clips.values()):
            assert np.array_equal(store.codes(i), codes)
            assert len(store._open) <= 2


def test_the_index_of_a_million_clips_is_enough_to_open_a_store(tmp_path):
    """No record is read, and no shard, until it is asked for."""
    count = 1_000_000
    folder = tmp_path / "store"
    folder.mkdir()
    begin_store(folder, {"fingerprint": "x"}, 1, 256, 50.0)
    name = "shard-made"
    np.save(folder / f"{name}.npy", np.arange(2 * count, dtype=np.uint8)[:, None])
    rows = np.zeros(count, INDEX)
    rows["frames"] = 2
    rows["offset"] = np.arange(count) * 2
    commit_index(folder, [name], rows, ({"id": i} for i in range(count)))

    opened: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(watch)
    store = TokenStore(folder)
    assert len(store) == count and store.total_frames == 2 * count
    assert int(store.frames.sum()) == 2 * count
    read = [file for file in opened if file.startswith(str(folder))]
    assert not any(file.endswith(".jsonl") or "shard" in file for file in read), read
    assert store.record(765_432) == {"id": 765_432}
    assert store.record(count - 1) == {"id": count - 1}
    assert store.codes(765_432).tolist() == [[1_530_864 % 256, 1_530_865 % 256]]
    assert any(file.endswith(".jsonl") for file in opened)
    watching = False


def test_what_is_no_store_says_so(tmp_path, make_store, random_clips):
    with pytest.raises(FileNotFoundError, match="run prepare"):
        TokenStore(tmp_path / "nowhere")
    folder = tmp_path / "begun"
    folder.mkdir()
    begin_store(folder, {"fingerprint": "x"}, 2, 300, 50.0)
    with pytest.raises(ValueError, match=r"unfinished.*run prepare again"):
        TokenStore(folder)
    for text, why in (
        ("{", "not valid JSON"),
        ("[]", "does not describe"),
        ('{"format": "audiolm tokens", "version": 1}', "version 1, this program reads 2"),
    ):
        (folder / "store.json").write_text(text)
        with pytest.raises(ValueError, match=why) as error:
            TokenStore(folder)
        assert "\n" not in str(error.value)


def _damages(folder) -> Iterator[str]:
    header = json.loads((folder / "store.json").read_text())
    yield header["index"]["name"]
    yield header["records"]["name"]
    yield header["shards"][0]["name"]


@pytest.mark.parametrize("damage", ["missing", "short"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_store_with_missing_clips_does_not_open(make_store, random_clips, which, damage):
    store = make_store(random_clips([4, 4]))
    file = store.path / list(_damages(store.path))[which]
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{file.name} should have .* damaged"):
        TokenStore(store.path)


def test_a_damaged_shard_is_named(make_store, random_clips):
    store = make_store(random_clips([4, 4]))
    (records,) = store.path.glob("shard-*.jsonl")
    whole = records.read_bytes()
    for damaged in (whole[:-5], whole.splitlines(keepends=True)[0], b"{}\n"):
        records.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{records.stem} is damaged.* delete"):
            scan_shards(store.path, 2, 300)


STRANGE = (None, [], {}, "text", "..", -1, 2.5, [1], {"a": 1}, True, 2**70, float("nan"))


def test_anything_else_in_a_header_is_refused_or_harmless(make_store, random_clips):
    store = make_store(random_clips([4, 4]))
    file = store.path / "store.json"
    header = json.loads(file.read_text())
    headers = [{k: v for k, v in header.items() if k != key} for key in header]
    headers += [header | {key: strange} for key in header for strange in STRANGE]
    for key in ("index", "records"):
        for inner in ("name", "bytes"):
            headers += [header | {key: header[key] | {inner: strange}} for strange in STRANGE]
    refused = 0
    for changed in headers:
        file.write_text(json.dumps(changed))
        try:
            opened = TokenStore(store.path)
            for clip in range(len(opened)):
                opened.codes(clip), opened.record(clip)
        except ValueError as error:
            assert "\n" not in str(error) and len(str(error)) < 400
            refused += 1
    assert len(headers) / 2 < refused < len(headers)


def test_a_damaged_file_of_a_store_is_named(make_store, random_clips):
    """Of the length that the header tells: what is in it tells."""
    store = make_store(random_clips([4, 4]))
    for name in _damages(store.path):
        file = store.path / name
        whole = file.read_bytes()
        damages = [(0, b"\0" * 40), (9, b"{{" * 30), (10, b"(" * 60)]
        if not name.startswith("shard"):  # whose codes are like any others
            damages.append((len(whole) - 40, b"\xff" * 40))
        for at, damage in damages:
            file.write_bytes((whole[:at] + damage + whole[at + len(damage) :])[: len(whole)])
            with pytest.raises(ValueError, match="damaged, run prepare again") as error:
                for clip in range(2):
                    opened = TokenStore(store.path)
                    opened.codes(clip), opened.record(clip)
            assert "\n" not in str(error.value)
        file.write_bytes(whole)


def test_codes_without_a_header_are_not_taken_for_ours(make_store, random_clips):
    store = make_store(random_clips([4]))
    (store.path / "store.json").unlink()
    with pytest.raises(ValueError, match="names their codec"):
        begin_store(store.path, {"fingerprint": "made"}, 2, 300, 100.0)


def test_a_reader_keeps_its_index_while_a_new_one_is_put_in_place(make_store, random_clips):
    clips = random_clips([4, 6])
    store = make_store(clips)
    sleeping = pickle.dumps(store)
    (name,) = (path.stem for path in store.path.glob("shard-*.jsonl"))
    commit_index(store.path, [name], store.index[1:].copy(), [{"id": "only"}])
    assert len(TokenStore(store.path)) == 1
    copy = pickle.loads(sleeping)
    assert len(copy) == 2 and copy.record(1) == {"id": "000001.wav"}
    assert np.array_equal(copy.codes(0), clips["000000.wav"])


def test_check_codec(make_store, random_clips):
    store = make_store(random_clips([4]))
    check_codec(store, {"fingerprint": "made", "num_codebooks": 2})
    for other in ({"fingerprint": "else"}, {"fingerprint": "made", "num_codebooks": 4}):
        with pytest.raises(ValueError, match=r"made with 2 codebooks, .*(else|made with 4)"):
            check_codec(store, {"num_codebooks": 2, **other})


def test_a_shard_of_pieces_is_the_shard_of_the_whole(tmp_path):
    """Sections are joined so, without a copy in memory."""
    rows = np.arange(40, dtype=np.uint16).reshape(20, 2)
    write_shard(tmp_path, CLIPS, [(5, [rows[:3], rows[3:3], rows[3:9]]), (2**64 - 1, [rows[9:]])])
    found = scan_shards(tmp_path, 2, 300)
    indices = found.find(np.array([5, 6, 2**64 - 1], np.uint64))
    assert indices.tolist() == [0, -1, 1]
    assert np.array_equal(found.codes(0), rows[:9]) and np.array_equal(found.codes(1), rows[9:])
    assert found.rows["offset"].tolist() == [0, 9]


def test_a_shard_is_closed_when_it_is_large(tmp_path):
    writer = ShardWriter(tmp_path, CLIPS, 2, 300, max_seconds=1e9, max_bytes=100)
    for key in range(5):
        writer.add([(key, np.zeros((2, 15), int))])  # 60 bytes
        writer.close_if_due()
        assert len(list(tmp_path.glob("*.npy"))) == (key + 1) // 2
    writer.close()
    writer.close()
    assert len(list(tmp_path.glob("*.npy"))) == 3
