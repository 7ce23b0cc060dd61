"""A small codec without weights, folders of recordings made by code, and stores of known codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from audiolm.tokens import TokenStore
from audiolm.tokens.shards import ShardWriter, hash64, scan_shards, source_key
from audiolm.tokens.sources import SPLIT_NAMES
from audiolm.tokens.store import INDEX, begin_store, commit_index


class FakeCodec:
    """Codes that depend on every sample of their frame, by numpy alone (safe after a fork)."""

    sample_rate, channels, hop_length = 8000, 1, 80

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

    def encode_stream(self, blocks: Iterable[Tensor]) -> Iterator[Tensor]:
        self.before_batch()
        rest = torch.zeros(1, 0)
        total = 0
        for block in blocks:
            total += block.shape[1]
            rest = torch.from_numpy(np.concatenate([rest.numpy(), block.numpy()], axis=1))
            whole = rest.shape[1] // self.hop_length * self.hop_length
            if whole:
                yield self._codes(rest[:, :whole])
            rest = rest[:, whole:]
        self.encoded.append(total)
        if rest.shape[1]:
            yield self._codes(rest)

    def decode(self, codes: Tensor, num_samples: int | None = None) -> Tensor:
        raise NotImplementedError

    def _codes(self, clip: Tensor) -> Tensor:
        samples = np.round(clip[0].numpy().astype(np.float64) * 32768).astype(np.int64)
        samples = np.pad(samples, (0, -len(samples) % self.hop_length))
        frames = samples.reshape(-1, self.hop_length) @ np.arange(1, self.hop_length + 1)
        books = np.arange(1, self.num_codebooks + 1)[:, None]
        return torch.from_numpy(frames[None] * books % self.codebook_size)


@pytest.fixture
def codec() -> FakeCodec:
    return FakeCodec()


@pytest.fixture
def make_codec() -> type[FakeCodec]:
    return FakeCodec


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
    """A store of given codes: make_store({id: codes (K, T)}, splits={id: name}, shards=2)."""
    made = 0

    def make(
        clips: dict[str, np.ndarray],
        splits: dict[str, str] | None = None,
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
        writer = ShardWriter(folder, num_codebooks, size, max_seconds=1e9)
        ids = sorted(clips)
        for number in range(num_shards):
            for clip_id in ids[number::num_shards]:
                facts = {"id": clip_id, "size": 1, "mtime_ns": 1, "duration": 1.0}
                writer.add([(facts, clips[clip_id])])
            writer.close()
        encoded = scan_shards(folder, num_codebooks, size)
        keys = np.array([source_key(clip_id, 1, 1) for clip_id in ids], np.uint64)
        found = encoded.rows[encoded.find(keys)]
        index = np.zeros(len(ids), INDEX)
        for name in ("shard", "offset", "frames"):
            index[name] = found[name]
        index["id_hash"] = [hash64(clip_id) for clip_id in ids]
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
