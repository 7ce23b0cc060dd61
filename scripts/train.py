"""Train a language model over audio tokens: python scripts/train.py [group=choice] [key=value]"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers.logger import Logger
from omegaconf import DictConfig, OmegaConf

from audiolm.batches.conditions import read_vocabulary
from audiolm.codec import Codec, EncodecCodec
from audiolm.demo.callback import score_demo
from audiolm.demo.melodies import is_demo
from audiolm.generation.engines.build import find_compiler
from audiolm.generation.sampling import check_sampling
from audiolm.model.checkpoint import check_format, read_checkpoint
from audiolm.model.condition_vocabulary import Vocabulary
from audiolm.run_folder import (
    alone_in,
    best_checkpoint,
    best_validation,
    checkpoint_to_resume,
    is_helper_process,
)
from audiolm.tokens import Mix
from audiolm.tokens.baselines import Yardsticks
from audiolm.training import (
    EMA,
    AtomicCheckpointIO,
    GracefulInterrupt,
    LanguageModelTraining,
    MetricsCSV,
    SampleCallback,
    StepProgressBar,
    TokenData,
    best_precision,
    check_data_settings,
    describe_plan,
    make_optimizer,
    make_wandb_logger,
    measure_yardsticks,
)
from command_line import CONFIGS, make_sampling, start
from prepare import codes, make_codec, store_weights

# Which clips a step is trained on follows from these; a resumed run has the same.
DATA_SETTINGS = ("path", "mix", "group", "valid_fraction", "batch_size")
# Settings of the model that say how it computes, not what.
HOW_NOT_WHAT = ("kernel", "gradient_checkpointing")


def main(cfg: DictConfig) -> None:
    run_dir = Path(cfg.run_dir)
    if run_dir.is_relative_to(Path.cwd()):
        run_dir = run_dir.relative_to(Path.cwd())  # as the user would type it
    # What can be wrong is found before hours of recordings are encoded for it.
    resume_from = checkpoint_to_resume(cfg.ckpt_path, run_dir, cfg.name)
    check_data_settings(cfg.data.batch_size, cfg.data.valid_fraction)
    codec = make_codec(cfg)
    module = make_module(cfg, codec)
    make_optimizer(module.model, cfg.trainer.max_steps, **module.optim)
    if resume_from is not None and not is_conditional(cfg):
        check_same_run(module, resume_from, cfg.trainer.max_steps)
    interrupt = GracefulInterrupt(run_dir / "checkpoints" / "last.ckpt")
    trainer = make_trainer(cfg, run_dir, [*make_callbacks(cfg, codec, run_dir), interrupt])
    if cfg.compile:
        find_compiler()  # its absence is found now, and told in one line

    with alone_in(run_dir):
        clock = [time.perf_counter()]
        stores = codes(cfg, codec)
        if is_conditional(cfg):  # the words stand in the stores
            mix = stores if isinstance(stores, Mix) else Mix([stores])
            conditioning: Any = OmegaConf.to_container(cfg.conditioning, resolve=True)
            words = read_vocabulary(
                mix, cfg.data.valid_fraction, module.hparams["context_frames"], **conditioning
            )
            if resume_from is not None and words is not None:
                words = words_of_the_run(words, resume_from)
            module = make_module(cfg, codec, words)
            if resume_from is not None:
                check_same_run(module, resume_from, cfg.trainer.max_steps)
        if cfg.callbacks.samples.num_samples:
            check_sampling(make_sampling(cfg), module.model, module.vocabulary)
        if cfg.compile:
            module.model.compile()
        data = TokenData(
            stores,
            context_frames=module.hparams["context_frames"],
            batch_size=cfg.data.batch_size,
            valid_fraction=cfg.data.valid_fraction,
            seed=cfg.seed,
            num_workers=cfg.data.num_workers,
            pattern=cfg.pattern.name,
            end_token=module.model.end_token,
            vocabulary=module.vocabulary,
        )
        clock.append(time.perf_counter())
        yardsticks = measure_yardsticks(data)
        if not is_helper_process():
            carry_codec_along(codec, run_dir)
            plan = describe_plan(module, data, yardsticks, trainer, cfg.callbacks.ema.decay)
            print(plan if resume_from is None else f"{plan}\n  resumed     from {resume_from}")
        trainer.loggers = make_loggers(cfg, run_dir)
        trainer.fit(module, data, ckpt_path=resume_from)
        clock.append(time.perf_counter())
    report(trainer, run_dir, yardsticks, interrupt.interrupted)
    if is_demo(cfg.data) and cfg.callbacks.samples.num_samples and trainer.is_global_zero:
        score_demo(run_dir, codec, cfg.data.path, make_sampling(cfg), cfg.seed, clock)
    if trainer.is_global_zero:
        print(f"next      {command_to_generate(best_checkpoint(run_dir), cfg, data)}")


def is_conditional(cfg: DictConfig) -> bool:
    """Whether the model is to be told something of the clips."""
    return bool(cfg.conditioning.labels or cfg.conditioning.text or cfg.conditioning.vector)


def make_module(
    cfg: DictConfig, codec: EncodecCodec, words: Vocabulary | None = None
) -> LanguageModelTraining:
    """The untrained model of the config, for the codec's codes and the words it is told."""
    model: Any = OmegaConf.to_container(cfg.model, resolve=True)
    optim: Any = OmegaConf.to_container(cfg.optim, resolve=True)
    torch.manual_seed(cfg.seed)
    return LanguageModelTraining(
        model=model,
        pattern=cfg.pattern.name,
        codec=codec.identity(),
        context_frames=round(cfg.context * codec.frame_rate),
        optim=optim,
        conditioning=None if words is None else words.settings(),
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


def words_of_the_run(words: Vocabulary, path: Path) -> Vocabulary:
    """Those of the run to go on with, where it has the same columns: its data may have grown."""
    then = read_checkpoint(path)["hyper_parameters"].get("conditioning")
    if then is None:
        return words
    known = Vocabulary.from_settings(then)
    if (known.columns, known.vector_size) != (words.columns, words.vector_size):
        return words
    return dataclasses.replace(known, drop=words.drop, text_layers=words.text_layers)


def check_same_run(module: LanguageModelTraining, path: Path, max_steps: int) -> None:
    """Refuse to go on with a checkpoint of another model, codec or order of the data."""
    checkpoint = read_checkpoint(path)
    check_format(checkpoint, path)
    then, now = (comparable(h) for h in (checkpoint["hyper_parameters"], dict(module.hparams)))
    check_resumable(path, then, now, checkpoint["global_step"], max_steps)


def check_resumable(
    path: Path, then: dict[str, Any], now: dict[str, Any], step: int, max_steps: int
) -> None:
    """Refuse a checkpoint of other settings than the run's, or at its end already."""
    for key in now:
        if then.get(key) != now[key]:
            raise ValueError(
                f"{path} was trained with {key}={then.get(key)}, this run has {now[key]}; pass the "
                f"settings of the run to go on with, or start a new one without ckpt_path"
            )
    if step >= max_steps:
        raise ValueError(
            f"{path} is at step {step} already; to train on, raise trainer.max_steps={max_steps}"
        )


def comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in a resumed run, under the names that a user sets."""
    codec = settings["codec"]
    data = settings["data"] or {}
    return {
        **{f"model.{k}": v for k, v in settings["model"].items() if k not in HOW_NOT_WHAT},
        "pattern": settings["pattern"],
        "context": round(settings["context_frames"] / codec["frame_rate"], 2),
        "codec": f"{codec['fingerprint']} with {codec['num_codebooks']} codebooks",
        **comparable_conditions(settings.get("conditioning")),
        "history_noise": settings.get("history_noise", 0.0),
        "seed": settings["seed"],
        "trainer.accumulate_grad_batches": data.get("accumulate_grad_batches"),
        **{f"data.{k}": data.get(k) for k in DATA_SETTINGS if k in data},
    }


def comparable_conditions(conditioning: dict[str, Any] | None) -> dict[str, Any]:
    """Of the words of a run: the columns and how they are read."""
    words = None if conditioning is None else Vocabulary.from_settings(conditioning)
    return {
        "conditioning.labels": list(words.labels) if words else [],
        "conditioning.text": words and words.text,
        "conditioning.vector": words and words.vector,
        "conditioning.drop": words and words.drop,
        "conditioning.text_layers": words and words.text_layers,
    }


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


def report(trainer: Trainer, run_dir: Path, yardsticks: Yardsticks, interrupted: bool) -> None:
    """Where the result is, and what to run next."""
    if not trainer.is_global_zero:
        return
    if interrupted:
        exit_interrupted(trainer, run_dir)
    step = trainer.global_step
    early = f" of {trainer.max_steps:,}: the validation loss no longer fell"
    print(f"finished  {step:,} steps{early if step < trainer.max_steps else ''}")
    best = best_validation(run_dir).get("nats_per_code")
    if best is not None:
        print(
            f"best      validation loss {best:.3f} nats per code, "
            f"unigram {yardsticks.unigram_mean:.3f}, uniform {yardsticks.uniform:.3f}"
        )
    if (run_dir / "samples").is_dir():
        print(f"samples   {run_dir / 'samples'}")
    if (run_dir / "metrics.csv").is_file():  # not after fewer steps than are logged
        print(f"metrics   {run_dir / 'metrics.csv'}")


def exit_interrupted(trainer: Trainer, run_dir: Path) -> NoReturn:
    """Say how to go on, and exit as a program that was stopped by Ctrl-C does."""
    print(
        f"stopped after step {trainer.global_step:,} of {trainer.max_steps:,}; to go on, run the "
        f"same command with ckpt_path=last hydra.run.dir={shlex.quote(str(run_dir))}"
    )
    sys.exit(130)


def command_to_generate(checkpoint: Path, cfg: DictConfig, data: TokenData) -> str:
    """The command that draws with the run's own sampling, told what its first sample is told."""
    words = [f"ckpt_path={checkpoint}"]
    for told in data.examples(1):
        known = data.conditions.vocabulary.labels if data.conditions else {}
        for column, value in told.items():
            # Not a vector, which is no argument of a command, nor a name that held-out clips have.
            if isinstance(value, str) and value in known.get(column, [value]):
                words.append(f"conditioning.{column}={value}")
        words.append(f"duration={cfg.context:g}")  # at most: it ends by itself
    usual = OmegaConf.load(CONFIGS / "sampling" / "default.yaml")
    sampling: Any = OmegaConf.to_container(cfg.sampling, resolve=True)
    for name, value in sampling.items():
        if value != usual[name]:
            words.append(f"sampling.{name}={json.dumps(value, separators=(',', ':'))}")
    return shlex.join(["python", "scripts/generate.py", *words])


if __name__ == "__main__":
    start("train", main)
