"""A run's folder, and the one place that spells the names in it:

runs/NAME/TIME/
  .hydra/config.yaml        the composed config; .hydra/overrides.yaml what was said for it
  metrics.csv               every logged number
  checkpoints/last.ckpt     what a stopped run resumes from
  checkpoints/best.ckpt     lowest validation loss
  codec/                    a local codec, so that the folder is complete
  text_encoder/             of a model that reads texts by one, likewise
  samples/                  generated while training
  reconstructions/          of a codec's training
  pieces/  scores.json      of a run on the demo set
  generated/TIME/           by scripts/generate.py
  evaluation.json           by scripts/evaluate.py
  plan.json  sessions.json  what was planned, and each start: machine, versions, command
  listen/                   recordings beside their codes decoded, from the store
  exported/                 by scripts/export.py: an exported model's folder
  report.html               all of this on one page
  wandb/                    the W&B run

An exported model's folder, wherever it lies, has config.json and model.safetensors (see
`audiolm.model.folder`), and its codec beside them.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from audiolm.files import user_path
from audiolm.hub import hub_folder, is_hub_name, model_of_snapshot
from audiolm.locks import FileLock

RUNS = Path("runs")
LAST, BEST = "last.ckpt", "best.ckpt"
MODEL_CONFIG, MODEL_WEIGHTS = "config.json", "model.safetensors"
TEXT_ENCODER = "text_encoder"
_LOCK = ".lock"


def is_helper_process() -> bool:
    """Whether Lightning started this process to train beside the first one."""
    return int(os.environ.get("LOCAL_RANK", 0)) > 0


def time_stamp() -> str:
    """This moment as the name of a folder."""
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def claim_folder(wanted: Path) -> Path:
    """Make a new folder of this name, or of the next one that is free: NAME, NAME-2, NAME-3, ...

    No two processes get the same one, also on a disk that several machines share.

    Raises:
        OSError: it cannot be made.
    """
    wanted.parent.mkdir(parents=True, exist_ok=True)
    more = (wanted.with_name(f"{wanted.name}-{number}") for number in itertools.count(2))
    claimed = wanted
    while True:
        try:
            claimed.mkdir()
            return claimed
        except FileExistsError:
            claimed = next(more)


def missing_folders(path: Path) -> list[Path]:
    """Of a folder and those that it lies in, the ones that are not there, the innermost first."""
    return list(itertools.takewhile(lambda folder: not folder.exists(), (path, *path.parents)))


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that hold nothing, or nothing but the lock of a run."""
    for folder in folders:
        try:
            if [path.name for path in folder.iterdir()] == [_LOCK]:
                (folder / _LOCK).unlink()
            folder.rmdir()
        except OSError:  # it holds something, or was never made
            return


def runs_below(folder: Path) -> Iterator[Path]:
    """Folders of runs with a checkpoint, at any depth: of NAME/TIME, GROUP/NAME/TIME, of sweeps."""
    for path, names, _ in os.walk(folder):
        if (Path(path) / "checkpoints").is_dir():
            names.clear()  # what a run holds is not looked through
            yield Path(path)
            continue
        # Links are not followed, but a run that one leads to counts.
        yield from (
            run for name in names if (run := Path(path) / name).is_symlink() and is_run(run)
        )


def is_run(folder: Path) -> bool:
    """Whether it holds checkpoints."""
    return (folder / "checkpoints").is_dir()


def is_model_folder(folder: Path) -> bool:
    """Whether it holds an exported model."""
    return (folder / MODEL_CONFIG).is_file() and not is_run(folder)


def is_of_model_folder(checkpoint: Path) -> bool:
    """Whether this file stands for an exported model, and not for a training's checkpoint."""
    return checkpoint.name in (MODEL_CONFIG, MODEL_WEIGHTS)


@dataclass(frozen=True)
class RunFolder:
    """The files of a run; none of them need be there yet.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def as_typed(cls, path: str | Path) -> RunFolder:
        """The folder as a user would type it: relative where it lies in the working folder."""
        path, here = user_path(path), Path.cwd()
        return cls(path.relative_to(here) if path.is_relative_to(here) else path)

    @classmethod
    def of(cls, checkpoint: Path) -> RunFolder:
        """That of a checkpoint; of one that was sent alone, the folder that it lies in.

        What is made with a model of the hub goes to runs/hub/OWNER--NAME, not into its cache.
        """
        folder = checkpoint.parent
        if (model := model_of_snapshot(folder)) is not None:
            return cls(RUNS / "hub" / model)
        return cls(folder.parent if folder.name == "checkpoints" else folder)

    @classmethod
    def newest(cls, runs: Path = RUNS, name: str | None = None) -> RunFolder | None:
        """The run whose last checkpoint is the youngest.

        name: only those of that name, in runs/NAME/TIME, and in runs/NAME/TIME/NUMBER of a sweep;
            None: of all trainings of language models.
        """
        there = [run for path in runs_below(runs) if (run := cls(path)).last_checkpoint.is_file()]
        if name is None:
            there = [run for run in there if not run.trains_a_codec()]
        else:
            own = runs / name
            there = [run for run in there if run.path.parent == own or run.is_job_of_sweep(own)]
        return max(there, key=lambda run: run.last_checkpoint.stat().st_mtime, default=None)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> Path:
        return self.checkpoints / LAST

    @property
    def best_checkpoint(self) -> Path:
        return self.checkpoints / BEST

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def text_encoder(self) -> Path:
        return self.path / TEXT_ENCODER

    @property
    def codec(self) -> Path:
        return self.path / "codec"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def reconstructions(self) -> Path:
        return self.path / "reconstructions"

    @property
    def pieces(self) -> Path:
        return self.path / "pieces"

    @property
    def scores(self) -> Path:
        return self.path / "scores.json"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def sessions(self) -> Path:
        return self.path / "sessions.json"

    @property
    def listen(self) -> Path:
        return self.path / "listen"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def exported(self) -> Path:
        return self.path / "exported"

    @property
    def wandb(self) -> Path:
        return self.path / "wandb"

    @property
    def record(self) -> Path:
        """The folder of the composed config, under the name that Hydra gives it."""
        return self.path / ".hydra"

    @property
    def all_generated(self) -> Path:
        """The folder of all that was generated without a folder of its own."""
        return self.path / "generated"

    def generated(self) -> Path:
        """A new folder of this moment, for samples; it is made."""
        return claim_folder(self.all_generated / time_stamp())

    def chosen_checkpoint(self) -> Path:
        """The best one, or the last where there is no validation set."""
        return self.best_checkpoint if self.best_checkpoint.is_file() else self.last_checkpoint

    def is_job_of_sweep(self, parent: Path) -> bool:
        """Whether it is one of the numbered runs of a sweep in `parent`."""
        return self.path.name.isdigit() and self.path.parent.parent == parent

    def trains_a_codec(self) -> bool:
        """Whether train_codec.py wrote it: its config has a codec to train."""
        config = self.record / "config.yaml"
        return config.is_file() and "codec_model:" in config.read_text(encoding="utf-8").split("\n")

    def checkpoint_to_resume(self, ckpt_path: str | None, name: str) -> Path | None:
        """The file that ckpt_path names; "last" is the last one of this run.

        Args:
            ckpt_path: None for a new run.
            name: of the run, for the message.

        Raises:
            ValueError: a new run in a folder that holds one.
            FileNotFoundError: no such file.
        """
        if ckpt_path is None:
            if self.last_checkpoint.exists() and not is_helper_process():
                raise ValueError(
                    f"{self.path} holds a run already; resume it with ckpt_path=last, or choose "
                    f"another hydra.run.dir"
                )
            return None
        path = self.last_checkpoint if ckpt_path == "last" else user_path(ckpt_path)
        if not path.is_file():
            what = f"no run named {name} to resume" if ckpt_path == "last" else "no such file"
            raise FileNotFoundError(
                f"ckpt_path={ckpt_path}: {what}; pass hydra.run.dir=DIR of the run, or the "
                f"checkpoint file itself"
            )
        return path

    def best_validation(self) -> dict[str, float]:
        """Metrics of the validation with the lowest loss, by name without "valid/"."""
        if not self.metrics.is_file():  # after fewer steps than are logged
            return {}
        with self.metrics.open(newline="", encoding="utf-8") as file:
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
    def lock(self) -> Iterator[None]:
        """Keep the folder for this training; two in one folder would mix their files.

        Raises:
            ValueError: another training runs in it.
        """
        if is_helper_process():
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / _LOCK)
        if not lock.acquire(timeout=0):
            raise ValueError(
                f"another training runs in {self.path}: {lock.holder()}; choose another "
                f"hydra.run.dir, or wait for it"
            )
        try:
            yield
        finally:
            lock.release()


def find_checkpoint(path: str | Path | None) -> Path:
    """The checkpoint file named, the best one of the run's folder named, or of the newest run.

    Of an exported model's folder, and of a name on the hub (hf://OWNER/NAME), it is the file of the
    weights.

    Raises:
        FileNotFoundError: there is no run, or none in the folder; or the model is not on the hub.
        ValueError: a name that is none of the hub's.
    """
    if path in (None, "last"):
        run = RunFolder.newest()
        if run is None:
            raise FileNotFoundError(
                f"no run with a checkpoint in {RUNS.resolve()}; run scripts/train.py first, or "
                f"name a checkpoint: ckpt_path=FILE, or in Python audiolm.load(FILE)"
            )
        return run.chosen_checkpoint()
    named = hub_folder(str(path)) if is_hub_name(path) else user_path("" if path is None else path)
    if not named.is_dir():
        return named
    if is_model_folder(named) or is_hub_name(path):
        return named / MODEL_WEIGHTS
    found = RunFolder(named).chosen_checkpoint()
    if not found.is_file():
        raise FileNotFoundError(
            f"{named} is not a run's folder: it has no checkpoints/last.ckpt; give one such as "
            f"runs/NAME/TIME, a checkpoint file, or an exported folder, which has {MODEL_CONFIG}"
        )
    return found


def codec_folders(checkpoint: Path) -> list[Path]:
    """Where a run keeps its local codec: the run's folder, or beside a checkpoint sent alone.

    An exported model has it beside its weights, which in the hub's cache may be a link elsewhere.
    """
    if is_of_model_folder(checkpoint):
        return [checkpoint.absolute().parent]
    folder = checkpoint.resolve().parent
    candidates = (RunFolder(folder.parent).codec, RunFolder(folder).codec, folder)
    return [candidate for candidate in candidates if candidate.is_dir()]


def text_encoder_folders(checkpoint: Path) -> list[Path]:
    """Where the text encoder of a model may be that has one: beside its codec."""
    folder = checkpoint.absolute().parent
    if is_of_model_folder(checkpoint):
        return [folder / TEXT_ENCODER]
    return [RunFolder.of(checkpoint).text_encoder, folder / TEXT_ENCODER]


def out_folder(out: str | None, checkpoint: Path) -> Path:
    """The folder named, or a new one of this moment in the checkpoint's run, which is made."""
    return RunFolder.of(checkpoint).generated() if out is None else user_path(out)
