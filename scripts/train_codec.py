"""Train an EnCodec on recordings: python scripts/train_codec.py data=folder data.path=DIR"""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig, OmegaConf

from audiolm.cli.app import start
from audiolm.cli.training import exit_interrupted, make_loggers, make_trainer
from audiolm.codec.local import save_local
from audiolm.codec.settings import check_settings
from audiolm.demo import make_melodies
from audiolm.demo.melodies import is_demo
from audiolm.model.checkpoint import read_checkpoint
from audiolm.run_folder import best_checkpoint, checkpoint_to_resume, lock_run_folder
from audiolm.training import GracefulInterrupt, StepProgressBar, make_optimizer
from audiolm.training.codec.data import (
    WaveformData,
    Waveforms,
    check_segment_settings,
    segment_length,
)
from audiolm.training.codec.module import CODEC_FORMAT, CodecTraining
from audiolm.training.codec.options import (
    ADVERSARIAL,
    LOSSES,
    QUANTIZATION,
    check_trainer,
    segment_options,
)
from audiolm.training.codec.reconstructions import ReconstructionCallback
from audiolm.training.resume import check_resumable

WAVEFORMS = Path("data/waveforms")


def main(cfg: DictConfig) -> None:
    run_dir = Path(cfg.run_dir)
    if run_dir.is_relative_to(Path.cwd()):
        run_dir = run_dir.relative_to(Path.cwd())
    # What can be wrong is found before hours of recordings are decoded for it.
    resume_from = checkpoint_to_resume(cfg.ckpt_path, run_dir, cfg.name)
    check_trainer(cfg.trainer, cfg.data.batch_size, cfg.clip)
    # The discriminator's rate follows the steps of the run, also before its own first one.
    warnings.filterwarnings("ignore", message=r"Detected call of `lr_scheduler.step\(\)`")
    module = make_module(cfg)
    fitted = resume_from is not None and check_same_run(module, resume_from, cfg.trainer.max_steps)
    interrupt = GracefulInterrupt(run_dir / "checkpoints" / "last.ckpt")
    trainer = make_trainer(cfg, run_dir, [*make_callbacks(cfg, run_dir), interrupt])
    if trainer.world_size > 1:
        raise ValueError(
            f"trainer.devices={cfg.trainer.devices}: a codec is trained on one device; pass "
            f"trainer.devices=1"
        )
    with lock_run_folder(run_dir):
        data = make_data(cfg, module)
        plan = describe(module, data, trainer, fitted)
        print(plan if resume_from is None else f"{plan}\n  resumed     from {resume_from}")
        trainer.loggers = make_loggers(cfg, run_dir)
        trainer.fit(module, data, ckpt_path=resume_from)
    report(trainer, module, run_dir, interrupt.interrupted)


def make_module(cfg: DictConfig) -> CodecTraining:
    """The untrained codec of the config, once all of its settings have been checked."""
    if cfg.data.source is None:
        raise ValueError("a store holds codes and no recordings; pass data=folder data.path=DIR")
    path = cfg.data.path  # MissingMandatoryValue here, and not "???" below
    if path is None:
        raise ValueError("data.path=null must be a folder")
    options: Any = OmegaConf.to_container(cfg, resolve=True)
    data = segment_options(options)
    check_segment_settings(**data)
    module = CodecTraining(
        settings=options["codec_model"],
        losses=options["losses"],
        quantization=options["quantization"],
        adversarial=options["adversarial"],
        optim=options["optim"],
        warmup=cfg.warmup,
        mel_floor=options["mel_floor"],
        mel_rise=cfg.mel_rise,
        clip=cfg.clip,
        seed=cfg.seed,
        data=data | {"path": str(Path(path).resolve()), "weights": data["weights"] or {}},
    )
    make_optimizer(module.model, cfg.trainer.max_steps, **module.optim)
    hop = int(module.model.encoder.hop_length)
    length = segment_length(data["segment"], module.settings["sample_rate"], hop)
    module.check_plan(length, cfg.trainer.max_steps)
    return module


def check_same_run(module: CodecTraining, path: Path, max_steps: int) -> bool:
    """Refuse to resume a checkpoint of another codec, other losses or other data.

    Returns whether its codebooks are fitted already.
    """
    checkpoint = read_checkpoint(path)
    found = checkpoint.get("audiolm_codec_format")
    if found is None:
        raise ValueError(f"{path} is no checkpoint of a codec; take one that train_codec.py wrote")
    if found != CODEC_FORMAT:
        raise ValueError(
            f"{path} has format {found}, this version reads {CODEC_FORMAT}; use the version of "
            f"audiolm that wrote it"
        )
    try:
        then = comparable(checkpoint["hyper_parameters"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} lacks a setting or has a wrong one: {error}") from error
    # Checkpoints of before the data was kept in them say nothing about it.
    now = {key: value for key, value in comparable(dict(module.hparams)).items() if key in then}
    check_resumable(path, then, now, checkpoint["global_step"], max_steps)
    return bool(checkpoint["state_dict"]["model.quantizer.vq.layers.0._codebook.inited"])


def comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in a resumed run, under the names that a user sets."""
    groups = {
        "codec_model": check_settings(settings["settings"]),
        "losses": LOSSES | settings["losses"],
        "quantization": QUANTIZATION | settings["quantization"],
        "adversarial": ADVERSARIAL | settings["adversarial"],
        "data": settings.get("data") or {},
    }
    named = {f"{group}.{key}": v for group, part in groups.items() for key, v in part.items()}
    return {
        **named,
        **{key: settings.get(key) for key in ("warmup", "mel_floor", "mel_rise", "seed")},
    }


def make_data(cfg: DictConfig, module: CodecTraining) -> WaveformData:
    """The recordings of the config, decoded once."""
    options: Any = OmegaConf.to_container(cfg, resolve=True)
    if is_demo(cfg.data):
        make_melodies(cfg.data.path, cfg.data.num_melodies)
    waveforms = Waveforms(
        Path(cfg.data.path),
        Path(cfg.data.store or WAVEFORMS),
        module.settings["sample_rate"],
        module.settings["channels"],
    )
    for name, reason in waveforms.skipped.items():
        print(f"skipped   {name}: {reason}")
    hop = int(module.model.encoder.hop_length)
    return WaveformData(
        waveforms,
        hop,
        seed=cfg.seed,
        num_workers=cfg.data.num_workers,
        **segment_options(options),
    )


def make_callbacks(cfg: DictConfig, run_dir: Path) -> list[Callback]:
    options = cfg.callbacks
    return [
        StepProgressBar(),
        instantiate(options.checkpoint),
        instantiate(options.best_checkpoint),
        ReconstructionCallback(run_dir / "reconstructions", **options.reconstructions),
    ]


def describe(module: CodecTraining, data: WaveformData, trainer: Trainer, fitted: bool) -> str:
    """What is going to be trained, on what; `fitted`: a run goes on whose codebooks are fitted."""
    settings, rate = module.settings, data.waveforms.sample_rate
    hop = int(module.model.encoder.hop_length)
    parameters = sum(p.numel() for p in module.model.parameters())
    bits = settings["n_q"] * (settings["bins"] - 1).bit_length() * rate / hop / 1000

    def amount(spans: Any) -> str:
        return f"{len(spans):,} recordings, {spans['frames'].sum() / rate / 3600:.2f} h"

    start = f"from step {round(module.quantization['start'] * trainer.max_steps):,} on"
    if fitted:
        start = "already"
        if module.quantization["freeze_encoder"]:
            start += ", so encoder and codebooks stay as they are"
    lines = [
        "plan",
        f"  codec       {parameters:,} parameters, {rate} Hz, {rate / hop:g} frames/s, "
        f"{settings['n_q']} codebooks of {settings['bins']} codes: {bits:g} kbit/s",
        f"  train       {amount(data.train_spans)}",
        f"  validation  {amount(data.valid_spans)}",
        f"  decoded     {data.waveforms.path}, {data.waveforms.size / 1e6:,.0f} MB; delete it, and "
        f"others there, once trained",
        f"  step        {data.batch_size} segments of {data.train_segments.length / rate:.2f} s",
        f"  run         {trainer.max_steps:,} steps, quantized {start}",
    ]
    return "\n".join(lines)


def report(trainer: Trainer, module: CodecTraining, run_dir: Path, interrupted: bool) -> None:
    """Write the codec; say where it is, and what to run next."""
    if not trainer.is_global_zero:
        return
    if interrupted:
        exit_interrupted(trainer, run_dir)
    checkpoint = read_checkpoint(best_checkpoint(run_dir))
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
