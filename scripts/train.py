"""Train a language model over audio tokens: python scripts/train.py [group=choice] [key=value]"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from omegaconf import DictConfig, OmegaConf

from audiolm.batches.conditions import read_vocabulary
from audiolm.cli.app import start
from audiolm.cli.build import make_codec, make_sampling
from audiolm.cli.compose import CONFIGS
from audiolm.cli.store import codes
from audiolm.cli.training import (
    exit_interrupted,
    is_conditional,
    make_callbacks,
    make_loggers,
    make_module,
    make_trainer,
    save_codec_copy,
)
from audiolm.demo.callback import score_demo
from audiolm.demo.melodies import is_demo
from audiolm.generation.engines.build import find_compiler
from audiolm.generation.sampling import check_sampling
from audiolm.run_folder import (
    best_checkpoint,
    best_validation,
    checkpoint_to_resume,
    is_helper_process,
    lock_run_folder,
)
from audiolm.tokens import Mix
from audiolm.tokens.baselines import Baselines
from audiolm.training import (
    GracefulInterrupt,
    TokenData,
    check_data_settings,
    describe_plan,
    make_optimizer,
    measure_baselines,
)
from audiolm.training.resume import check_same_run, checkpoint_vocabulary


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
        find_compiler()  # its absence is found now, and reported in one line

    with lock_run_folder(run_dir):
        clock = [time.perf_counter()]
        stores = codes(cfg, codec)
        if is_conditional(cfg):  # the words stand in the stores
            mix = stores if isinstance(stores, Mix) else Mix([stores])
            conditioning: Any = OmegaConf.to_container(cfg.conditioning, resolve=True)
            words = read_vocabulary(
                mix, cfg.data.valid_fraction, module.hparams["context_frames"], **conditioning
            )
            if resume_from is not None and words is not None:
                words = checkpoint_vocabulary(words, resume_from)
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
        baselines = measure_baselines(data)
        if not is_helper_process():
            save_codec_copy(codec, run_dir)
            plan = describe_plan(module, data, baselines, trainer, cfg.callbacks.ema.decay)
            print(plan if resume_from is None else f"{plan}\n  resumed     from {resume_from}")
        trainer.loggers = make_loggers(cfg, run_dir)
        trainer.fit(module, data, ckpt_path=resume_from)
        clock.append(time.perf_counter())
    report(trainer, run_dir, baselines, interrupt.interrupted)
    if is_demo(cfg.data) and cfg.callbacks.samples.num_samples and trainer.is_global_zero:
        score_demo(run_dir, codec, cfg.data.path, make_sampling(cfg), cfg.seed, clock)
    if trainer.is_global_zero:
        print(f"next      {command_to_generate(best_checkpoint(run_dir), cfg, data)}")


def report(trainer: Trainer, run_dir: Path, baselines: Baselines, interrupted: bool) -> None:
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
            f"unigram {baselines.unigram_mean:.3f}, uniform {baselines.uniform:.3f}"
        )
    if (run_dir / "samples").is_dir():
        print(f"samples   {run_dir / 'samples'}")
    if (run_dir / "metrics.csv").is_file():  # not after fewer steps than are logged
        print(f"metrics   {run_dir / 'metrics.csv'}")


def command_to_generate(checkpoint: Path, cfg: DictConfig, data: TokenData) -> str:
    """The command that generates with the run's sampling and its first sample's conditions."""
    words = [f"ckpt_path={checkpoint}"]
    for told in data.examples(1):
        known = data.conditions.vocabulary.labels if data.conditions else {}
        for column, value in told.items():
            # Not a vector, which is no argument of a command, nor a name that validation clips
            # have.
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
