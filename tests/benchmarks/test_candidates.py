"""That candidates do equal work: the same codes, the same windows. Not how fast."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from audiolm.benchmarks.codecs import random_codec
from audiolm.benchmarks.data import DataSettings, _loader
from audiolm.benchmarks.encode import _same, encoder_gflop, package_model
from audiolm.benchmarks.peers import PEERS, memmap_dataset
from audiolm.benchmarks.random_store import random_clips
from audiolm.tokens import TokenStore

CONTEXT, BATCH = 12, 3


@pytest.fixture
def clips(tmp_path: Path, make_tiny_codec):  # type: ignore[no-untyped-def]
    codec = make_tiny_codec()
    return random_clips(tmp_path / "store", 40, (10, 40), codec.identity())


def test_the_package_encodes_to_the_same_codes(make_tiny_codec) -> None:
    for codebooks in range(1, 5):
        codec = make_tiny_codec(codebooks)
        waveform = torch.randn(1, 1, 1003)
        with torch.inference_mode():
            ((codes, _),) = package_model(codec).encode(waveform)
        assert torch.equal(codes, codec.encode(waveform))


def test_operations_are_counted(make_tiny_codec) -> None:
    codec = make_tiny_codec(n_residual_layers=0)
    assert encoder_gflop(package_model(codec), codec) > 0
    # By hand, of one convolution: every output step of 4 channels sees 7 samples.
    first = 2 * 7 * 4 * codec.sample_rate / 1e9
    assert first < encoder_gflop(package_model(codec), codec) < 100 * first


def test_a_random_codec_tells_sounds_apart(make_tiny_codec) -> None:
    codec = random_codec({**make_tiny_codec().settings, "n_q": 32}, 3)
    assert codec.num_codebooks == 3
    codes = codec.encode(torch.randn(1, 1, 8000, generator=torch.Generator().manual_seed(0)) * 0.1)
    assert all(len(book.unique()) > 2 for book in codes[0])
    again = random_codec({**make_tiny_codec().settings, "n_q": 32}, 3)
    assert again.fingerprint == codec.fingerprint


def test_what_differs_is_said(make_tiny_codec) -> None:
    codec = make_tiny_codec(3)
    mine = [torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, 6, dtype=torch.int64)]
    theirs = [codes.clone() for codes in mine]
    assert _same(mine, theirs, codec) == "100 % of 30"
    theirs[1][1:, 2] = 1  # a frame, from the second codebook on
    theirs[1][2, 5] = 1
    assert _same(mine, theirs, codec) == (
        "90.000 % of 30; 2 frames of 1 clips differ, first in codebook 2 (1), 3 (1)"
    )
    with pytest.raises(RuntimeError, match=r"a candidate encoded \[4, 6\] frames, the other \[4\]"):
        _same(mine, theirs[:1], codec)


def crops_of(codes: np.ndarray, length: int) -> set[bytes]:
    """All crops of codes (T, K) of a length, as bytes of (K, length)."""
    starts = range(len(codes) - length + 1)
    return {codes[s : s + length].T.astype(np.int64).tobytes() for s in starts}


@pytest.mark.parametrize("name", ["this package", "memory-mapped", *PEERS])
def test_every_loader_serves_crops_of_the_clips(clips, tmp_path: Path, name: str) -> None:
    if name == "this package":
        batches = _loader(DataSettings(batch_size=BATCH), clips, CONTEXT)
    else:
        serve = PEERS.get(name, memmap_dataset)
        try:
            batches = serve(clips, CONTEXT, BATCH, tmp_path)
            next(batches)
        except ImportError as error:
            pytest.skip(str(error))
    lengths_there = np.minimum(clips.frames, CONTEXT)
    there = {
        int(n): set().union(*(crops_of(clips.codes(i), n) for i in range(len(clips.frames))))
        for n in np.unique(lengths_there)
    }
    seen: set[bytes] = set()
    for _ in range(40):
        codes, lengths = next(batches)
        assert codes.dtype == torch.int64 and codes.shape[2] <= CONTEXT
        for row, length in zip(codes.numpy(), lengths.tolist(), strict=True):
            assert (row[:, length:] == 0).all()
            crop = np.ascontiguousarray(row[:, :length]).tobytes()
            assert crop in there[length]
            seen.add(crop)
    assert len(seen) > 40, "not the same few all the time"


def test_the_store_holds_the_codes_that_the_peers_serve(clips) -> None:
    store = TokenStore(clips.folder)
    for clip in range(len(store)):
        assert np.array_equal(store.codes(clip), clips.codes(clip).T)
