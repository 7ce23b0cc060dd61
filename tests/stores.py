"""A small codec without weights, folders of recordings made by code, and stores of known codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from audiolm.codec import Margins
from audiolm.datasets.checks.check import check_clips
from audiolm.datasets.checks.report import CheckReport
from audiolm.datasets.checks.rules import Rule, Rules
from audiolm.datasets.clip import SPLIT_NAMES, Clip, SkippedClip
from audiolm.datasets.folder import folder_clips
from audiolm.files import hash64
from audiolm.tokens import PrepareSummary, TokenStore, prepare_store
from audiolm.tokens.shards import CLIPS, ShardWriter, scan_shards
from audiolm.tokens.store import INDEX, begin_store, commit_index

ANYTHING = Rules(
    max_dropped=1.0,
    silent=Rule("off", -70.0),
    too_short=Rule("off", 0.1),
    duplicate=Rule("report"),
)
"""Leaves out nothing that can be decoded."""


class FakeCodec:
    """Codes by numpy alone (safe after a fork).

    A code depends on every sample of its frame and of the ones beside it, and on where in a group
    of 4 frames it is, so that a recording that is cut wrong has other codes.
    """

    sample_rate, channels, hop_length = 8000, 1, 80
    device = torch.device("cpu")
    margins = Margins(grid=4, left=1, right=1)

    def __init__(self, fingerprint: str = "fake", num_codebooks: int = 2, size: int = 300) -> None:
        self.fingerprint = fingerprint
        self.num_codebooks = num_codebooks
        self.codebook_size = size
        self.frame_rate = self.sample_rate / self.hop_length
        self.encoded: list[int] = []  # samples of each clip that went through
        self.before_batch: Callable[[], None] = lambda: None

    def identity(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, "num_codebooks": self.num_codebooks}

    def encode(self, waveform: Tensor) -> Tensor:
        return torch.stack([self._codes(clip) for clip in waveform])

    def encode_batch(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        self.before_batch()
        for clip in waveforms:
            if float(clip[0, 0]) == -1.0:
                raise ValueError("this codec dislikes\nclips that start at -1")
        self.encoded += [clip.shape[1] for clip in waveforms]
        return [self._codes(clip) for clip in waveforms]

    def decode(self, codes: Tensor, num_samples: int | None = None) -> Tensor:
        raise NotImplementedError

    def _codes(self, clip: Tensor) -> Tensor:
        samples = np.round(clip[0].numpy().astype(np.float64) * 32768).astype(np.int64)
        samples = np.pad(samples, (0, -len(samples) % self.hop_length))
        own = samples.reshape(-1, self.hop_length) @ np.arange(1, self.hop_length + 1)
        beside = np.pad(own, 1)
        frames = own + 3 * beside[:-2] + 5 * beside[2:] + 7 * (np.arange(len(own)) % 4)
        books = np.arange(1, self.num_codebooks + 1)[:, None]
        return torch.from_numpy(frames[None] * books % self.codebook_size)


@pytest.fixture
def codec() -> FakeCodec:
    return FakeCodec()


@pytest.fixture
def make_codec() -> type[FakeCodec]:
    return FakeCodec


def check(clips: Iterable[Clip | SkippedClip], cache: Path, rules: Rules = ANYTHING) -> CheckReport:
    return check_clips(clips, cache, rules, num_workers=0, show_progress=False)


def prepare_folder(folder: Path, codec: Any, store: Path, **changes: Any) -> PrepareSummary:
    """Check and encode a folder, in batches and sections of a second, each a shard."""
    settings = {"batch_seconds": 2.0, "section_seconds": 1.0, "shard_seconds": 0.0}
    report = check(folder_clips(folder), folder.parent / "checked")
    return prepare_store(report, codec, store, show_progress=False, **settings | changes)


def store_contents(path: Path) -> list[Any]:
    """Everything a store says of its clips, in its order, but for how they lie in shards."""
    store = TokenStore(path)
    header = json.loads((path / "store.json").read_text())
    records = (path / header["records"]["name"]).read_bytes()
    codes = [store.codes(i).tolist() for i in range(len(store))]
    names = ("id_hash", "split_hash", "split", "frames", "record")
    columns = [store.index[name].tolist() for name in names]
    return [records, codes, columns, store.total_frames, store.hours]


@pytest.fixture
def check_clips_here(tmp_path: Path) -> Callable[..., CheckReport]:
    """check_clips_here(clips): a report that leaves out nothing that can be decoded."""
    return lambda clips: check(clips, tmp_path / "checked")


@pytest.fixture
def prepare() -> Callable[..., PrepareSummary]:
    return prepare_folder


@pytest.fixture
def contents() -> Callable[[Path], list[Any]]:
    return store_contents


def write_tone(path: Path, num_samples: int, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(seed).integers(-9000, 9000, num_samples).astype(np.int16)
    soundfile.write(path, samples, FakeCodec.sample_rate, subtype="PCM_16")


@pytest.fixture
def write_recording() -> Callable[..., None]:
    return write_tone


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """24 files of 0.01 to 1 s and one of 3 s, in folders, with names that need care."""
    folder = tmp_path / "recordings"
    rng = np.random.default_rng(0)
    for i in range(24):
        name = f"sub {i % 3}/é{i}.wav" if i % 2 else f"b{i}.wav"
        write_tone(folder / name, int(rng.integers(80, 8000)), seed=i)
    write_tone(folder / "long.wav", 24_011, seed=99)
    return folder


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., TokenStore]:
    """A store of given codes: make_store({id: codes (K, T)}, splits={id: name}, num_shards=2).

    groups: {id: what the clip shares the split of}; a clip that is not there goes by its id.
    """
    made = 0

    def make(
        clips: dict[str, np.ndarray],
        splits: dict[str, str] | None = None,
        groups: dict[str, str] | None = None,
        size: int = 300,
        num_shards: int = 1,
        frame_rate: float = 100.0,
    ) -> TokenStore:
        nonlocal made
        folder = tmp_path / f"made-{made}"
        folder.mkdir()
        made += 1
        num_codebooks = next(iter(clips.values())).shape[0]
        begin_store(folder, {"fingerprint": "made"}, num_codebooks, size, frame_rate)
        writer = ShardWriter(folder, CLIPS, num_codebooks, size, max_seconds=1e9)
        ids = sorted(clips)
        for number in range(num_shards):
            for clip_id in ids[number::num_shards]:
                writer.add([(hash64(clip_id), clips[clip_id])])
            writer.close()
        encoded = scan_shards(folder, num_codebooks, size)
        keys = np.array([hash64(clip_id) for clip_id in ids], np.uint64)
        found = encoded.rows[encoded.find(keys)]
        index = np.zeros(len(ids), INDEX)
        for name in ("shard", "offset", "frames"):
            index[name] = found[name]
        index["id_hash"] = [hash64(clip_id) for clip_id in ids]
        index["split_hash"] = [hash64((groups or {}).get(clip_id, clip_id)) for clip_id in ids]
        names = [(splits or {}).get(clip_id) for clip_id in ids]
        index["split"] = [0 if name is None else 1 + SPLIT_NAMES.index(name) for name in names]
        commit_index(folder, encoded.names, index, ({"id": clip_id} for clip_id in ids))
        return TokenStore(folder)

    return make


@pytest.fixture
def random_clips() -> Callable[..., dict[str, np.ndarray]]:
    def make(lengths: Sequence[int], num_codebooks: int = 2, size: int = 300, seed: int = 0) -> Any:
        rng = np.random.default_rng(seed)
        return {
            f"{i:06d}.wav": rng.integers(0, size, (num_codebooks, frames))
            for i, frames in enumerate(lengths)
        }

    return make
