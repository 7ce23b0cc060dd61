"""Train a language model over audio tokens: python scripts/train.py [group=choice] [key=value]"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger
from omegaconf import DictConfig, OmegaConf

from audiolm.codec import Codec, EncodecCodec
from audiolm.generation.checkpoint import check_format, read_checkpoint
from audiolm.training import (
    EMA,
    AtomicCheckpointIO,
    GracefulInterrupt,
    LanguageModelTraining,
    MetricsCSV,
    SampleCallback,
    StepProgressBar,
    TokenData,
    Yardsticks,
    best_precision,
    describe_plan,
    make_wandb_logger,
    measure_yardsticks,
)
from command_line import start
from prepare import encode, make_codec


def main(cfg: DictConfig) -> None:
    run_dir = Path(cfg.run_dir)
    if run_dir.is_relative_to(Path.cwd()):
        run_dir = run_dir.relative_to(Path.cwd())  # as the user would type it
    resume_from = checkpoint_to_resume(cfg, run_dir)
    codec = make_codec(cfg)
    module = make_module(cfg, codec)
    if resume_from is not None:
        check_same_settings(module, resume_from)
    store = encode(cfg, codec)
    data = TokenData(
        store,
        context_frames=module.hparams["context_frames"],
        batch_size=cfg.data.batch_size,
        valid_fraction=cfg.data.valid_fraction,
        seed=cfg.seed,
        num_workers=cfg.data.num_workers,
    )
    carry_codec_along(codec, run_dir)
    interrupt = GracefulInterrupt(run_dir / "checkpoints" / "last.ckpt")
    trainer = make_trainer(cfg, run_dir, [*make_callbacks(cfg, codec, run_dir), interrupt])
    yardsticks = measure_yardsticks(data)
    print(describe_plan(module, data, yardsticks, trainer, cfg.callbacks.ema.decay))
    trainer.fit(module, data, ckpt_path=resume_from)
    report(trainer, run_dir, yardsticks, interrupt.interrupted)


def checkpoint_to_resume(cfg: DictConfig, run_dir: Path) -> Path | None:
    """The file that ckpt_path names; "last" is that of the run's folder."""
    last = run_dir / "checkpoints" / "last.ckpt"
    if cfg.ckpt_path is None:
        if last.exists() and not is_helper_process():
            raise ValueError(
                f"{run_dir} holds a run already; go on with it by ckpt_path=last, or choose "
                f"another hydra.run.dir"
            )
        return None
    path = last if cfg.ckpt_path == "last" else Path(cfg.ckpt_path)
    if not path.is_file():
        raise FileNotFoundError(
            f"ckpt_path={cfg.ckpt_path}: {path} is not there; pass hydra.run.dir=DIR of the run "
            f"to go on with, or the checkpoint file itself"
        )
    return path


def is_helper_process() -> bool:
    """Whether Lightning started this process to train beside the first one."""
    return int(os.environ.get("LOCAL_RANK", 0)) > 0


def make_module(cfg: DictConfig, codec: Codec) -> LanguageModelTraining:
    """The untrained model of the config, for the codec's codes."""
    model: Any = OmegaConf.to_container(cfg.model, resolve=True)
    optim: Any = OmegaConf.to_container(cfg.optim, resolve=True)
    if model["kernel"] == "auto":
        model["kernel"] = "fused" if accelerator(cfg) == "cuda" else "from_scratch"
    torch.manual_seed(cfg.seed)
    return LanguageModelTraining(
        model=model,
        pattern=cfg.pattern.name,
        codec=codec.identity(),
        context_frames=round(cfg.context * codec.frame_rate),
        optim=optim,
        seed=cfg.seed,
    )


def accelerator(cfg: DictConfig) -> str:
    """ "cuda" or "cpu": what the trainer's "auto" means here."""
    name = cfg.trainer.accelerator
    if name in ("auto", "gpu", "cuda"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    return str(name)


def check_same_settings(module: LanguageModelTraining, path: Path) -> None:
    """Refuse to go on with a checkpoint of another model, codec, pattern or context."""
    checkpoint = read_checkpoint(path)
    check_format(checkpoint, path)
    then = checkpoint["hyper_parameters"]
    now = module.hparams
    for key in ("codec", "pattern", "context_frames", "model"):
        old, new = then[key], now[key]
        if key == "model":  # the kernel is how, not what
            old, new = ({k: v for k, v in d.items() if k != "kernel"} for d in (old, new))
        if key == "codec":
            old, new = ((d["fingerprint"], d["num_codebooks"]) for d in (old, new))
        if old != new:
            raise ValueError(
                f"{path} was trained with {key}={old}, this run has {new}; pass the settings of "
                f"the run to go on with, or start a new one without ckpt_path"
            )


def carry_codec_along(codec: EncodecCodec, run_dir: Path) -> None:
    """Keep a local codec beside the checkpoints, so that the folder is complete."""
    if codec.identity()["kind"] == "local":
        codec.save(run_dir / "codec")


def make_callbacks(cfg: DictConfig, codec: Codec, run_dir: Path) -> list[Callback]:
    """The callbacks of the config; those whose switch is null are left out."""
    options = cfg.callbacks
    callbacks: list[Callback] = [
        StepProgressBar(),
        instantiate(options.checkpoint),
        instantiate(options.best_checkpoint),
    ]
    if options.ema.decay is not None:
        callbacks.append(EMA(options.ema.decay))
    if options.early_stopping.patience is not None:
        stopping = EarlyStopping("valid/nats_per_code", patience=options.early_stopping.patience)
        callbacks.append(stopping)
    sampling: Any = OmegaConf.to_container(cfg.sampling, resolve=True)
    samples = SampleCallback(
        codec, run_dir / "samples", sampling=sampling, seed=cfg.seed, **options.samples
    )
    callbacks.append(samples)
    return callbacks


def make_trainer(cfg: DictConfig, run_dir: Path, callbacks: list[Callback]) -> Trainer:
    """Lightning's trainer with our logging and whole checkpoints."""
    if cfg.trainer.max_steps < 1:
        raise ValueError(f"trainer.max_steps={cfg.trainer.max_steps} must be at least 1")
    loggers: list[Logger] = [MetricsCSV(run_dir)]
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    wandb = make_wandb_logger(
        run_dir, cfg.logger.project, f"{cfg.name} {run_dir.name}", cfg.logger.mode, config
    )
    if wandb is not None:
        loggers.append(wandb)
    if cfg.trainer.precision == "auto":
        cfg.trainer.precision = best_precision(cfg.trainer.accelerator)
    trainer: Trainer = instantiate(
        cfg.trainer,
        default_root_dir=run_dir,
        callbacks=callbacks,
        logger=loggers,
        plugins=[AtomicCheckpointIO()],
        _convert_="all",
    )
    return trainer


def report(trainer: Trainer, run_dir: Path, yardsticks: Yardsticks, interrupted: bool) -> None:
    """Where the result is, and what to run next."""
    if not trainer.is_global_zero:
        return
    step = trainer.global_step
    if interrupted:
        print(
            f"stopped after step {step:,} of {trainer.max_steps:,}; to go on, run the same "
            f"command with ckpt_path=last hydra.run.dir={run_dir}"
        )
        sys.exit(130)
    print(f"finished  {step:,} steps")
    checkpoint = run_dir / "checkpoints" / "last.ckpt"
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint) and callback.best_model_score is not None:
            checkpoint = run_dir / "checkpoints" / Path(callback.best_model_path).name
            print(
                f"best      validation loss {float(callback.best_model_score):.3f} nats per code, "
                f"unigram {yardsticks.unigram_mean:.3f}, uniform {yardsticks.uniform:.3f}"
            )
    print(f"samples   {run_dir / 'samples'}")
    print(f"metrics   {run_dir / 'metrics.csv'}")
    print(f"next      python scripts/generate.py ckpt_path={checkpoint}")


if __name__ == "__main__":
    start("train", main)
