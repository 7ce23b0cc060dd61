"""What a training's config builds: module, callbacks, trainer and loggers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch
from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers.logger import Logger
from omegaconf import DictConfig, OmegaConf

from audiolm.cli.build import make_sampling
from audiolm.cli.store import store_weights
from audiolm.codec import Codec, EncodecCodec
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.training import (
    EMA,
    AtomicCheckpointIO,
    LanguageModelTraining,
    MetricsCSV,
    SampleCallback,
    StepProgressBar,
    best_precision,
    make_wandb_logger,
)


def is_conditional(cfg: DictConfig) -> bool:
    """Whether the model is to be conditioned on something."""
    return bool(cfg.conditioning.labels or cfg.conditioning.text or cfg.conditioning.vector)


def make_module(
    cfg: DictConfig, codec: EncodecCodec, vocabulary: ConditionVocabulary | None = None
) -> LanguageModelTraining:
    """The untrained model of the config, for the codec's codes and its conditions."""
    model: Any = OmegaConf.to_container(cfg.model, resolve=True)
    optim: Any = OmegaConf.to_container(cfg.optim, resolve=True)
    torch.manual_seed(cfg.seed)
    return LanguageModelTraining(
        model=model,
        pattern=cfg.pattern.name,
        codec=codec.identity(),
        context_frames=round(cfg.context * codec.frame_rate),
        optim=optim,
        conditioning=None if vocabulary is None else vocabulary.settings(),
        history_noise=cfg.history_noise,
        seed=cfg.seed,
        data=describe_data(cfg, codec),
    )


def describe_data(cfg: DictConfig, codec: EncodecCodec) -> dict[str, Any]:
    """Where the codes come from and how they are dealt out, as plain data with absolute paths."""
    data: Any = OmegaConf.to_container(cfg.data, resolve=True)
    del data["source"]  # names code, which no checkpoint should
    if "path" in data:
        data["path"] = str(Path(data["path"]).resolve())
    stores = store_weights(cfg, codec)
    return {
        **data,
        "stores": {str(Path(folder).resolve()): weight for folder, weight in stores.items()},
        "accumulate_grad_batches": cfg.trainer.accumulate_grad_batches,
    }


def save_codec_copy(codec: EncodecCodec, run_dir: Path) -> None:
    """Keep a local codec beside the checkpoints, so that the folder is complete."""
    if codec.identity()["kind"] == "local":
        codec.save(run_dir / "codec")


def make_callbacks(cfg: DictConfig, codec: Codec, run_dir: Path) -> list[Callback]:
    """The callbacks of the config; those whose switch is null are omitted."""
    options = cfg.callbacks
    callbacks: list[Callback] = [
        StepProgressBar(),
        instantiate(options.checkpoint),
    ]
    if options.best_checkpoint is not None:
        callbacks.append(instantiate(options.best_checkpoint))
    if options.ema.decay is not None:
        callbacks.append(EMA(options.ema.decay))
    if options.early_stopping.patience is not None:
        stopping = EarlyStopping("valid/nats_per_code", patience=options.early_stopping.patience)
        callbacks.append(stopping)
    samples = SampleCallback(
        codec, run_dir / "samples", sampling=make_sampling(cfg), seed=cfg.seed, **options.samples
    )
    callbacks.append(samples)
    return callbacks


def make_trainer(cfg: DictConfig, run_dir: Path, callbacks: list[Callback]) -> Trainer:
    """Lightning's trainer, with whole checkpoints; it gets its loggers later."""
    for key in ("max_steps", "accumulate_grad_batches", "val_check_interval"):
        if cfg.trainer[key] < 1:
            raise ValueError(f"trainer.{key}={cfg.trainer[key]} must be at least 1")
    if cfg.trainer.precision == "auto":
        cfg.trainer.precision = best_precision(cfg.trainer.accelerator)
    trainer: Trainer = instantiate(
        cfg.trainer,
        default_root_dir=run_dir,
        callbacks=callbacks,
        logger=False,
        plugins=[AtomicCheckpointIO()],
        _convert_="all",
    )
    return trainer


def make_loggers(cfg: DictConfig, run_dir: Path) -> list[Logger]:
    """metrics.csv always, and W&B unless it is off."""
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    name = f"{cfg.name} {run_dir.name}"
    wandb = make_wandb_logger(run_dir, cfg.logger.project, name, cfg.logger.mode, config)
    return [MetricsCSV(run_dir)] if wandb is None else [MetricsCSV(run_dir), wandb]


def exit_interrupted(trainer: Trainer, run_dir: Path) -> NoReturn:
    """Say how to go on, and exit as a program that was stopped by Ctrl-C does."""
    print(
        f"stopped after step {trainer.global_step:,} of {trainer.max_steps:,}; to go on, run the "
        f"same command with ckpt_path=last hydra.run.dir={shlex.quote(str(run_dir))}"
    )
    sys.exit(130)
