"""What can be mixed, and in what shares."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from audiolm.tokens import Mix, open_mix


def test_weights_become_shares(make_store, random_clips):
    stores = [make_store(random_clips([5, 6])) for _ in range(2)]
    for weights, shares in (((1, 3), (0.25, 0.75)), ((0.2, 0.2), (0.5, 0.5)), (None, (0.5, 0.5))):
        mix = Mix(stores, weights)
        assert mix.shares == pytest.approx(shares) and sum(mix.shares) == pytest.approx(1)
    opened = open_mix({str(stores[0].path): 1, str(stores[1].path): 3})
    assert [store.path for store in opened.stores] == [store.path for store in stores]
    assert opened.shares == (0.25, 0.75)
    assert (mix.num_codebooks, mix.codebook_size, mix.frame_rate) == (2, 300, 100.0)
    assert mix.codec == stores[0].codec


@pytest.mark.parametrize(
    "weight", [0, -1, -0.5, math.nan, math.inf, True, None, "2", [1]], ids=repr
)
def test_a_weight_is_a_number_above_zero(make_store, random_clips, weight):
    store = make_store(random_clips([5]))
    with pytest.raises(ValueError, match=r"the weight of .* must be a number above 0$"):
        open_mix({str(store.path): weight})


def test_stores_of_different_codecs_are_both_named(make_store, random_clips):
    one = make_store(random_clips([5]))
    others = [
        make_store(random_clips([5], num_codebooks=3)),
        make_store(random_clips([5]), size=301),
        make_store(random_clips([5]), frame_rate=50.0),
        make_store(random_clips([5])),
    ]
    header = others[-1].path / "store.json"
    text = json.loads(header.read_text())
    header.write_text(json.dumps(text | {"codec": {"fingerprint": "another"}}))
    for other in others:
        with pytest.raises(ValueError) as raised:
            open_mix({str(one.path): 1, str(other.path): 1})
        message = str(raised.value)
        assert str(one.path) in message and str(other.path) in message and "\n" not in message


def test_a_store_is_in_a_mix_once(make_store, random_clips, tmp_path):
    store = make_store(random_clips([5]))
    (tmp_path / "link").symlink_to(store.path)
    with pytest.raises(ValueError, match="are the same store"):
        open_mix({str(store.path): 1, str(tmp_path / "link"): 1})
    with pytest.raises(ValueError, match="are the same store"):
        Mix([store, store])


def test_what_is_no_store(make_store, random_clips, tmp_path):
    store = make_store(random_clips([5]))
    for empty in ({}, None):
        with pytest.raises(ValueError, match=r"data\.mix names no store"):
            open_mix(empty)
    with pytest.raises(ValueError, match="a mix of no stores"):
        Mix([])
    with pytest.raises(FileNotFoundError, match="nothing: no token store here"):
        open_mix({str(store.path): 1, str(tmp_path / "nothing"): 1})
    unfinished = tmp_path / "unfinished"
    shutil.copytree(store.path, unfinished)
    header = json.loads((unfinished / "store.json").read_text())
    (unfinished / "store.json").write_text(json.dumps(header | {"complete": False}))
    with pytest.raises(ValueError, match="unfinished: the store is unfinished"):
        open_mix({str(store.path): 1, str(unfinished): 1})
