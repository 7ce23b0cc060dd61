"""A store of random codes: what it costs to serve and to learn them is that of any others.

Letters: K codebooks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from audiolm.benchmarks.peers import Clips
from audiolm.files import atomic_file, hash64
from audiolm.tokens.shards import CLIPS, code_dtype
from audiolm.tokens.store import INDEX, begin_store, commit_index


def random_clips(
    folder: Path, count: int, bounds: Sequence[int], codec: Mapping[str, Any]
) -> Clips:
    """Write `count` clips to a new folder. bounds: frames that a clip has, from and to.
    codec: the identity of theirs."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    codebooks, size = codec["num_codebooks"], codec["codebook_size"]
    frames = rng.integers(bounds[0], bounds[1] + 1, count)
    rows = rng.integers(0, size, (int(frames.sum()), codebooks)).astype(code_dtype(size))
    begin_store(folder, dict(codec), codebooks, size, codec["frame_rate"])
    with atomic_file(folder / f"{CLIPS}-0.npy") as file:
        np.save(file, rows)
    index = np.zeros(count, INDEX)
    index["frames"] = frames
    index["offset"] = np.cumsum(frames) - frames
    index["id_hash"] = [hash64(f"{i:09d}") for i in range(count)]
    index["split_hash"] = index["id_hash"]
    commit_index(folder, [f"{CLIPS}-0"], index, ({"id": f"{i:09d}"} for i in range(count)))
    return Clips(folder, rows, index["offset"].copy(), frames)
