"""Train an EnCodec on a folder of recordings: python scripts/train_codec.py data.path=DIR"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig, OmegaConf

from audiolm.codec.local import save_local
from audiolm.generation.checkpoint import read_checkpoint
from audiolm.training import GracefulInterrupt, StepProgressBar
from audiolm.training.codec import CodecTraining
from audiolm.training.reconstructions import ReconstructionCallback
from audiolm.training.waveforms import WaveformData, Waveforms
from command_line import start
from train import (
    alone_in,
    checkpoint_to_resume,
    is_helper_process,
    make_loggers,
    make_trainer,
)


def main(cfg: DictConfig) -> None:
    run_dir = Path(cfg.run_dir)
    if run_dir.is_relative_to(Path.cwd()):
        run_dir = run_dir.relative_to(Path.cwd())
    resume_from = checkpoint_to_resume(cfg, run_dir)
    options: Any = OmegaConf.to_container(cfg, resolve=True)
    module = CodecTraining(
        settings=options["codec_model"],
        losses=options["losses"],
        quantization=options["quantization"],
        adversarial=options["adversarial"],
        optim=options["optim"],
        clip=cfg.clip,
        seed=cfg.seed,
    )
    interrupt = GracefulInterrupt(run_dir / "checkpoints" / "last.ckpt")
    trainer = make_trainer(cfg, run_dir, [*make_callbacks(cfg, run_dir), interrupt])
    with alone_in(run_dir):
        data = make_data(options, module)
        if not is_helper_process():
            print(describe(module, data, trainer))
        trainer.loggers = make_loggers(cfg, run_dir)
        trainer.fit(module, data, ckpt_path=resume_from)
    report(trainer, module, run_dir, interrupt.interrupted)


def make_data(options: dict[str, Any], module: CodecTraining) -> WaveformData:
    """The recordings of the config, decoded once."""
    data = dict(options["data"])
    settings = module.settings
    waveforms = Waveforms(
        Path(data.pop("path")),
        Path(data.pop("cache")),
        settings["sample_rate"],
        settings["channels"],
    )
    for name, reason in waveforms.skipped.items():
        print(f"left out  {name}: {reason}")
    hop = int(module.model.encoder.hop_length)
    return WaveformData(waveforms, hop, seed=options["seed"], **data)


def make_callbacks(cfg: DictConfig, run_dir: Path) -> list[Callback]:
    options = cfg.callbacks
    return [
        StepProgressBar(),
        instantiate(options.checkpoint),
        instantiate(options.best_checkpoint),
        ReconstructionCallback(run_dir / "reconstructions", **options.reconstructions),
    ]


def describe(module: CodecTraining, data: WaveformData, trainer: Trainer) -> str:
    """What is going to be trained, on what."""
    settings, rate = module.settings, data.waveforms.sample_rate
    hop = int(module.model.encoder.hop_length)
    parameters = sum(p.numel() for p in module.model.parameters())
    bits = settings["n_q"] * (settings["bins"] - 1).bit_length() * rate / hop / 1000

    def amount(spans: Any) -> str:
        return f"{len(spans):,} recordings, {spans['frames'].sum() / rate / 3600:.2f} h"

    lines = [
        "plan",
        f"  codec       {parameters:,} parameters, {rate} Hz, {rate / hop:g} frames/s, "
        f"{settings['n_q']} codebooks of {settings['bins']} codes: {bits:g} kbit/s",
        f"  train       {amount(data.train_spans)}",
        f"  held out    {amount(data.valid_spans)}",
        f"  step        {data.batch_size} segments of {data.train_segments.length / rate:.2f} s",
        f"  run         {trainer.max_steps:,} steps, quantized from step "
        f"{round(module.quantization['start'] * trainer.max_steps):,} on",
    ]
    return "\n".join(lines)


def report(trainer: Trainer, module: CodecTraining, run_dir: Path, interrupted: bool) -> None:
    """Write the codec; say where it is, and what to run next."""
    if not trainer.is_global_zero:
        return
    if interrupted:
        print(
            f"stopped after step {trainer.global_step:,} of {trainer.max_steps:,}; to go on, run "
            f"the same command with ckpt_path=last hydra.run.dir={shlex.quote(str(run_dir))}"
        )
        sys.exit(130)
    best = run_dir / "checkpoints" / "best.ckpt"
    checkpoint = read_checkpoint(best if best.exists() else run_dir / "checkpoints" / "last.ckpt")
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in checkpoint["state_dict"].items()
        if name.startswith("model.")
    }
    path = save_local(module.settings, weights, run_dir / "codec" / "codec")
    print(f"finished  {trainer.global_step:,} steps")
    print(f"codec     {path}")
    print(f"metrics   {run_dir / 'metrics.csv'}")
    print(
        f"next      python scripts/train.py data=folder data.path=DIR codec=local "
        f"codec.path={shlex.quote(str(path.parent))}"
    )


if __name__ == "__main__":
    start("train_codec", main)
