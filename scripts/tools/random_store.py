"""A token store of random codes, to see what training from a large one takes.

    python scripts/tools/random_store.py DIR --hours 10000
    python scripts/train.py data=store data.path=DIR codec.num_codebooks=2

As if of the bundled codec: two codebooks of 256 codes at 50 frames a second, 0.36 MB an hour. It
takes the memory of one shard and of the index. For training only: prepare cannot add to it.
"""

from __future__ import annotations

from audiolm.cli.loading import end_loading, start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

import argparse
from pathlib import Path

from audiolm.benchmarks.large_store import CODEBOOKS, make_large_store
from audiolm.codec import load_bundled

if __name__ == "__main__":
    end_loading()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--shortest", type=float, default=10.0, help="seconds of a clip")
    parser.add_argument("--longest", type=float, default=10.0)
    given = parser.parse_args()
    bundled = load_bundled(CODEBOOKS).identity()
    make_large_store(given.folder, given.hours, given.shortest, given.longest, bundled)
