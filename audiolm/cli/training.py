"""What every training's config builds: callbacks, trainer and loggers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers.logger import Logger
from omegaconf import DictConfig, OmegaConf

from audiolm.cli.compose import CONFIGS
from audiolm.cli.interrupt import STOPPED
from audiolm.cli.overrides import unquote_path
from audiolm.cli.record import RunRecord
from audiolm.cli.report import write_report
from audiolm.report.record import recorded_session
from audiolm.run_folder import RunFolder, is_helper_process
from audiolm.training import (
    AtomicCheckpointIO,
    GracefulInterrupt,
    MetricsCSV,
    best_precision,
    make_wandb_logger,
)


@runtime_checkable
class Reporting(Protocol):
    """A callback that has something to say once a run is over."""

    def report(self) -> None: ...


def make_callbacks(
    configs: Mapping[str, DictConfig | None], given: Mapping[str, Mapping[str, Any]]
) -> list[Callback]:
    """The callbacks of a config, but for those that are null or have a setting that is null.

    Args:
        configs: of each callback, by the name that the config has for it.
        given: by the same names, the arguments that no config can hold.
    """
    return [
        # A partial first: what is given would become a config itself.
        instantiate(config, _partial_=True, _convert_="all")(**given.get(name, {}))
        for name, config in configs.items()
        if config is not None and None not in config.values()
    ]


def files_of_callbacks(run: RunFolder) -> dict[str, dict[str, Any]]:
    """Where the callbacks of every training write, as arguments of `make_callbacks`."""
    return {
        "checkpoint": {"dirpath": run.checkpoints},
        "best_checkpoint": {"dirpath": run.checkpoints},
        "interrupt": {"checkpoint_path": run.last_checkpoint},
    }


def make_trainer(cfg: DictConfig, run: RunFolder, callbacks: list[Callback]) -> Trainer:
    """Lightning's trainer, with whole checkpoints; it gets its loggers later."""
    if cfg.trainer.precision == "auto":
        cfg.trainer.precision = best_precision(cfg.trainer.accelerator)
    trainer: Trainer = instantiate(
        cfg.trainer,
        default_root_dir=run.path,
        callbacks=callbacks,
        logger=False,
        plugins=[AtomicCheckpointIO()],
        _convert_="all",
    )
    return trainer


def make_loggers(cfg: DictConfig, run: RunFolder) -> list[Logger]:
    """metrics.csv always, and W&B unless it is off."""
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    name, group = f"{cfg.name} {run.path.name}", None
    hydra = HydraConfig.get()
    if hydra.mode == RunMode.MULTIRUN:
        name, group = f"{name} {hydra.job.override_dirname}".rstrip(), str(hydra.sweep.dir)
    wandb = make_wandb_logger(
        run.path, cfg.logger.project, name, cfg.logger.mode, config, group=group
    )
    return [MetricsCSV(run.path)] if wandb is None else [MetricsCSV(run.path), wandb]


def resumed_lines(resume_from: Path | None, record: RunRecord) -> list[str]:
    """Of the plan of a resumed run: from where, and what differs from its own settings."""
    if resume_from is None:
        return []
    return [f"  resumed     from {resume_from}", *record.changes(resume_from)]


@contextmanager
def recorded(run: RunFolder, trainer: Trainer, resumed_from: Path | None) -> Iterator[None]:
    """Keep the command, machine and versions of this training, and how it ends, for its report."""
    if is_helper_process():
        yield
        return
    hydra = HydraConfig.get()
    typed = [unquote_path(override) for override in hydra.overrides.task]
    command = ["python", f"scripts/{hydra.job.name}.py", *typed]

    def progress() -> dict[str, Any]:
        return {"step": trainer.global_step, "interrupted": was_interrupted(trainer)}

    with recorded_session(run, command, CONFIGS.parent, resumed_from, progress):
        yield


def was_interrupted(trainer: Trainer) -> bool:
    """Whether Ctrl-C stopped the training."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return any(isinstance(c, GracefulInterrupt) and c.interrupted for c in callbacks)


def exit_if_interrupted(trainer: Trainer, run: RunFolder) -> None:
    """After Ctrl-C say how to resume, and exit as a program that was stopped by it does."""
    if was_interrupted(trainer):
        write_report(run)
        _exit_interrupted(trainer, run)


def _exit_interrupted(trainer: Trainer, run: RunFolder) -> NoReturn:
    print(
        f"stopped after step {trainer.global_step:,} of {trainer.max_steps:,}; to resume, run the "
        f"same command with ckpt_path=last hydra.run.dir={shlex.quote(str(run.path))}"
    )
    sys.exit(STOPPED)
