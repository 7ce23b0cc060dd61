"""Encode a folder while it is killed again and again, and compare with an undisturbed run.

    python scripts/tools/kill_prepare.py FOLDER OUT [--kills 20] [--num-workers 1]

makes OUT/undisturbed and OUT/killed with the bundled codec. After every kill -9 the store must
either not open or hold what the undisturbed one does, and at the end it must. Where it is finished
before all kills are done, it is begun anew. The rework is how much longer all runs took together
than as many undisturbed ones as were finished.
"""

from __future__ import annotations

from audiolm.cli.loading import end_loading, start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from audiolm.tokens import TokenStore


def main() -> None:
    end_loading()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, help="folder to make, or to make anew")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--section-seconds", type=float, default=120.0)
    parser.add_argument("--shard-seconds", type=float, default=20.0)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)  # encode, in a child
    options = parser.parse_args()
    if options.store is not None:
        encode(options)
        return
    for name in ("undisturbed", "killed"):
        shutil.rmtree(options.out / name, ignore_errors=True)

    run(options, "undisturbed", None)  # the check's cache and the system's are filled
    shutil.rmtree(options.out / "undisturbed")
    whole = run(options, "undisturbed", None)
    print(f"undisturbed: {whole:.1f} s")
    expected = contents(options.out / "undisturbed")

    rng = random.Random(options.seed)
    killed, spent, finished = options.out / "killed", 0.0, 0
    for kill in range(1, options.kills + 1):
        after = rng.uniform(0, whole / 3)
        spent += run(options, "killed", after)
        try:
            assert contents(killed) == expected, "a store opens that lacks something"
        except (FileNotFoundError, ValueError) as error:
            assert "run prepare" in str(error), error
            state = f"{len(list(killed.glob('s*.jsonl')))} shards"
        else:
            state = "finished"
            finished += 1
            shutil.rmtree(killed)
        print(f"kill {kill:2} after {after:6.2f} s: {state}", flush=True)
    spent += run(options, "killed", None)
    assert contents(killed) == expected, "the stores differ"
    rework = spent - whole * (finished + 1)
    print(
        f"the same store after {options.kills} kills, finished {finished + 1} times; "
        f"rework {rework:.1f} s, {rework / options.kills:.1f} s a kill"
    )


def run(options: argparse.Namespace, name: str, kill_after: float | None) -> float:
    """Encode in a child that is killed so many seconds after it began; how long it encoded."""
    command = [sys.executable, __file__, options.folder, options.out]
    for option in ("num_workers", "section_seconds", "shard_seconds"):
        command += [f"--{option.replace('_', '-')}", str(getattr(options, option))]
    command += ["--store", options.out / name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begins\n", "the child fails"
        started = time.monotonic()
        try:
            child.wait(kill_after)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        assert kill_after is not None or child.returncode == 0, "the child fails"
        return time.monotonic() - started


def encode(options: argparse.Namespace) -> None:
    from audiolm.codec import load_bundled
    from audiolm.datasets.checks.check import check_clips
    from audiolm.datasets.checks.rules import Rules
    from audiolm.datasets.folder import folder_clips
    from audiolm.tokens import prepare_store

    report = check_clips(
        folder_clips(options.folder),
        options.out / "checked",
        Rules(),
        num_workers=0,
        show_progress=False,
    )
    codec = load_bundled()
    print("begins", flush=True)
    prepare_store(
        report,
        codec,
        options.store,
        num_workers=options.num_workers,
        section_seconds=options.section_seconds,
        shard_seconds=options.shard_seconds,
        show_progress=False,
    )


def contents(path: Path) -> list[Any]:
    """Everything a store says of its clips, in its order, but for how they lie in shards."""
    store = TokenStore(path)
    header = json.loads((path / "store.json").read_text())
    records = (path / header["records"]["name"]).read_bytes()
    codes = [store.codes(i).tobytes() for i in range(len(store))]
    columns = [
        store.index[name].tolist()
        for name in ("id_hash", "split_hash", "split", "frames", "record")
    ]
    return [records, codes, columns, store.total_frames]


if __name__ == "__main__":
    main()
