"""A run's folder: its checkpoints, its codec, what was measured, and which run is the newest."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

RUNS = Path("runs")


def is_helper_process() -> bool:
    """Whether Lightning started this process to train beside the first one."""
    return int(os.environ.get("LOCAL_RANK", 0)) > 0


def checkpoint_to_resume(ckpt_path: str | None, run_dir: Path, name: str) -> Path | None:
    """The file that ckpt_path names; "last" is that of the run's folder.

    name: of the run, for the message.
    """
    last = run_dir / "checkpoints" / "last.ckpt"
    if ckpt_path is None:
        if last.exists() and not is_helper_process():
            raise ValueError(
                f"{run_dir} holds a run already; go on with it by ckpt_path=last, or choose "
                f"another hydra.run.dir"
            )
        return None
    path = last if ckpt_path == "last" else Path(ckpt_path)
    if not path.is_file():
        what = f"no run named {name} to go on with" if ckpt_path == "last" else "no such file"
        raise FileNotFoundError(
            f"ckpt_path={ckpt_path}: {what}; pass hydra.run.dir=DIR of the run, or the "
            f"checkpoint file itself"
        )
    return path


def best_validation(run_dir: Path) -> dict[str, float]:
    """Metrics of the validation with the lowest loss, by name without "valid/"."""
    path = run_dir / "metrics.csv"
    if not path.is_file():  # after fewer steps than are logged
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get("valid/nats_per_code")]
    if not rows:
        return {}
    best = min(rows, key=lambda row: float(row["valid/nats_per_code"]))
    return {
        name.removeprefix("valid/"): float(value)
        for name, value in best.items()
        if name.startswith("valid/") and value
    }


@contextmanager
def lock_run_folder(run_dir: Path) -> Iterator[None]:
    """Keep the run's folder for this training; two in one folder would mix their files."""
    if is_helper_process():
        yield
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(run_dir / ".lock", timeout=0):
            yield
    except Timeout:
        raise ValueError(
            f"another training runs in {run_dir}; choose another hydra.run.dir"
        ) from None


def newest_run(runs: Path = RUNS, name: str | None = None) -> Path | None:
    """The folder of the run whose last checkpoint is the youngest.

    name: only those in runs/NAME; None: of all trainings of language models.
    """
    files = [
        file
        for pattern in ("*/*", "*")
        for file in runs.glob(f"{pattern}/checkpoints/last.ckpt")
        if (file.relative_to(runs).parts[0] == name if name else not _is_codec_run(file))
    ]
    newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
    return None if newest is None else newest.parents[1]


def _is_codec_run(checkpoint: Path) -> bool:
    """Whether train_codec.py wrote it: its config, which lies beside, has a codec to train."""
    config = checkpoint.parents[1] / ".hydra" / "config.yaml"
    return config.is_file() and "codec_model:" in config.read_text(encoding="utf-8").split("\n")


def best_checkpoint(run_dir: Path) -> Path:
    """The best one of a run, or its last where there is no validation set."""
    best = run_dir / "checkpoints" / "best.ckpt"
    return best if best.is_file() else run_dir / "checkpoints" / "last.ckpt"


def find_checkpoint(ckpt_path: str | None) -> Path:
    """The file named, or the best one of the newest run."""
    if ckpt_path not in (None, "last"):
        return Path(ckpt_path)
    run = newest_run()
    if run is None:
        raise FileNotFoundError(
            f"no run with a checkpoint in {RUNS.resolve()}; run scripts/train.py first, or pass "
            f"ckpt_path=FILE"
        )
    return best_checkpoint(run)


def codec_folders(checkpoint: Path) -> list[Path]:
    """Where a run carries its local codec: the run's folder, or beside a checkpoint sent alone."""
    folder = checkpoint.resolve().parent
    return [f for f in (folder.parent / "codec", folder / "codec", folder) if f.is_dir()]


def run_folder(checkpoint: Path) -> Path:
    """The run's folder; for a checkpoint that was sent alone, the one that it lies in."""
    folder = checkpoint.parent
    return folder.parent if folder.name == "checkpoints" else folder


def out_folder(out: str | None, checkpoint: Path) -> Path:
    """The folder named, or a new one of this moment in the checkpoint's run."""
    if out is not None:
        return Path(out)
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return run_folder(checkpoint) / "generated" / now
