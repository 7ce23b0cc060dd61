"""What a language model's training config builds, and what is said when it is over."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig, OmegaConf
from torch import nn

from audiolm.batches.conditions import (
    check_conditioning,
    conditions_record,
    read_vocabulary,
)
from audiolm.batches.loaders import check_data_settings
from audiolm.cli.build import make_codec, make_sampling, on_fastest_device, plain
from audiolm.cli.compose import CONFIGS, changed_settings
from audiolm.cli.initial_model import has_own_codec
from audiolm.cli.report import write_report
from audiolm.cli.store import check_file, codes, store_weights
from audiolm.cli.training import Reporting, files_of_callbacks, make_callbacks
from audiolm.codec import EncodecCodec, load_codec
from audiolm.codec.local import holds_pair
from audiolm.files import user_path
from audiolm.generation.engines.build import find_compiler
from audiolm.generation.sampling import check_sampling
from audiolm.model.checkpoint import build_model
from audiolm.report.record import copy_listen, summarise_check, write_record
from audiolm.run_folder import RunFolder, codec_folders, is_helper_process
from audiolm.synthesis.conditions import load_text_encoder
from audiolm.text_encoder import copy_text_encoder
from audiolm.tokens import Mix
from audiolm.tokens.baselines import Baselines
from audiolm.training import LanguageModelTraining, TokenData, make_optimizer
from audiolm.training.ending import describe_ending
from audiolm.training.lm.initial_weights import InitialModel, begin_with, origin_of
from audiolm.training.lm.module import check_history_noise
from audiolm.training.lm.record import plan_record
from audiolm.training.resume import (
    changed_clips,
    check_same_run,
    checkpoint_vocabulary,
    describe_clips,
)

NOT_IN_CHECKPOINTS = ("source", "callbacks")  # of `data`: they name code


def make_run_codec(
    cfg: DictConfig, resume_from: Path | None, initial: InitialModel | None = None
) -> EncodecCodec:
    """The codec of the config; where a run is resumed and its codec is gone, the run's own copy.

    Of a run that begins with another model it is that model's, unless the command line says which.

    Raises:
        ValueError: it is another than that of the model that the run begins with.
    """
    if initial is not None and not has_own_codec(cfg):
        found = load_codec(
            initial.settings["codec"], codec_folders(initial.path), cfg.codec.get("repository")
        )
        return on_fastest_device(found)
    codec = _make_own_codec(cfg, resume_from)
    if initial is not None:
        initial.check_codec(codec.identity())
    return codec


def _make_own_codec(cfg: DictConfig, resume_from: Path | None) -> EncodecCodec:
    path = cfg.codec.get("path")
    if resume_from is not None and path is not None and not holds_pair(path):
        copies = [folder for folder in codec_folders(resume_from) if holds_pair(folder)]
        if copies:
            if not is_helper_process():
                print(f"codec     {path} is not there: the run's own copy is used, {copies[0]}")
            cfg.codec.path = str(copies[0])
    return make_codec(cfg)


def module_settings(cfg: DictConfig, codec: EncodecCodec) -> dict[str, Any]:
    """Arguments of `LanguageModelTraining`, but for what the model is conditioned on."""
    return {
        "model": plain(cfg.model),
        "pattern": plain(cfg.pattern).get("delays") or cfg.pattern.name,
        "codec": codec.identity(),
        "context_frames": round(cfg.context * codec.frame_rate),
        "optim": plain(cfg.optim),
        "history_noise": cfg.history_noise,
        "seed": cfg.seed,
        "data": _describe_data(cfg, codec),
    }


def _describe_data(cfg: DictConfig, codec: EncodecCodec) -> dict[str, Any]:
    """Where the codes come from and how they are dealt out, as plain data with absolute paths."""
    data = {key: value for key, value in plain(cfg.data).items() if key not in NOT_IN_CHECKPOINTS}
    if "path" in data:
        data["path"] = str(user_path(data["path"]).resolve())
    stores = store_weights(cfg, codec)
    return {
        **data,
        "stores": {str(user_path(folder).resolve()): weight for folder, weight in stores.items()},
        "accumulate_grad_batches": cfg.trainer.accumulate_grad_batches,
    }


def check_run(cfg: DictConfig, settings: dict[str, Any], resume_from: Path | None) -> None:
    """Refuse what can be known to be wrong before hours of recordings are encoded for it.

    Raises:
        ValueError: in one line.
    """
    check_data_settings(cfg.data.batch_size, cfg.data.valid_fraction)
    build_model(
        settings["model"],
        settings["pattern"],
        settings["codec"],
        settings["context_frames"],
        device="meta",
    )
    check_history_noise(cfg.history_noise)
    make_optimizer(nn.Linear(1, 1), cfg.trainer.max_steps, **settings["optim"])
    conditioning = plain(cfg.conditioning)
    check_conditioning(**conditioning)
    if resume_from is not None:
        check_same_run(settings, conditioning, resume_from, cfg.trainer.max_steps)
    if cfg.compile:
        find_compiler()


def make_module_and_data(
    cfg: DictConfig,
    codec: EncodecCodec,
    settings: dict[str, Any],
    resume_from: Path | None,
    initial: InitialModel | None = None,
) -> tuple[LanguageModelTraining, TokenData, list[str]]:
    """The untrained model, or the one to resume, and its codes, which are encoded first; and what
    the model has of the one that it begins with, in lines.
    """
    mix = _mix_of_the_run(cfg, codec, resume_from)
    settings["data"]["clips"] = describe_clips(mix)
    vocabulary = read_vocabulary(  # its names stand in the stores
        mix,
        cfg.data.valid_fraction,
        settings["context_frames"],
        **plain(cfg.conditioning),
        text_encoder=None if initial is None else initial.text_encoder,
    )
    if resume_from is not None and vocabulary is not None:
        vocabulary = checkpoint_vocabulary(vocabulary, resume_from)
    elif initial is not None and vocabulary is not None:
        vocabulary = initial.extended(vocabulary)
    torch.manual_seed(cfg.seed)
    conditioning = None if vocabulary is None else vocabulary.settings()
    origin = None if initial is None else origin_of(initial)
    module = LanguageModelTraining(**settings, conditioning=conditioning, origin=origin)
    begins = []
    if initial is not None and resume_from is None:
        begins = begin_with(module.model, module.vocabulary, initial)
    if cfg.callbacks.samples is not None and cfg.callbacks.samples.num_samples:
        check_sampling(make_sampling(cfg), module.model, module.vocabulary)
    if cfg.compile:
        module.model.compile()
    data = TokenData(
        mix,
        context_frames=settings["context_frames"],
        batch_size=cfg.data.batch_size,
        valid_fraction=cfg.data.valid_fraction,
        seed=cfg.seed,
        num_workers=cfg.data.num_workers,
        pattern=settings["pattern"],
        end_token=module.model.end_token,
        vocabulary=module.vocabulary,
        text_encoder=None
        if initial is None
        else load_text_encoder(module.vocabulary, initial.path),
    )
    return module, data, begins


def _mix_of_the_run(cfg: DictConfig, codec: EncodecCodec, resume_from: Path | None) -> Mix:
    """The codes to train on; those of a run that is resumed, and what has changed is printed."""
    try:
        store = codes(cfg, codec)
    except (FileNotFoundError, NotADirectoryError) as error:
        if resume_from is None or cfg.data.source is None:
            raise
        raise FileNotFoundError(
            f"{error}; pass data.path=DIR, where the recordings are now, or resume from the codes "
            f"of the run: data=store data.path=STORE"
        ) from error
    mix = store if isinstance(store, Mix) else Mix([store])
    if resume_from is not None:
        lines = changed_clips(resume_from, mix)
        if not is_helper_process():
            print("\n".join(lines), end="\n" if lines else "")
    return mix


def make_lm_callbacks(cfg: DictConfig, codec: EncodecCodec, run: RunFolder) -> list[Callback]:
    """The callbacks of the config, and those that its source of recordings brings."""
    configs = dict(cfg.callbacks)
    if cfg.callbacks.samples is not None and cfg.callbacks.samples.num_samples:
        configs |= cfg.data.get("callbacks", {})  # they score samples
    sampled = {"codec": codec, "sampling": make_sampling(cfg), "seed": cfg.seed}
    given = {
        **files_of_callbacks(run),
        "samples": {**sampled, "folder": run.samples},
        "demo": {**sampled, "run_dir": run.path},
    }
    return make_callbacks(configs, given)


def save_codec_copy(codec: EncodecCodec, run: RunFolder) -> None:
    """Keep a local codec beside the checkpoints, so that the folder is complete."""
    if codec.identity()["kind"] == "local":
        codec.save(run.codec)


def save_text_encoder_copy(data: TokenData, run: RunFolder) -> None:
    """Keep the text encoder of a model that has one beside the checkpoints, likewise."""
    encoder = None if data.conditions is None else data.conditions.text_encoder
    if encoder is not None and encoder.folder.resolve() != run.text_encoder.resolve():
        copy_text_encoder(encoder.folder, run.text_encoder)


def report(
    cfg: DictConfig, trainer: Trainer, run: RunFolder, data: TokenData, baselines: Baselines
) -> None:
    """Where the result is, what the callbacks found, and what to run next."""
    print(f"finished  {describe_ending(trainer)}")
    best = run.best_validation().get("nats_per_code")
    if best is not None:
        print(
            f"best      validation loss {best:.3f} nats per code (baselines: "
            f"unigram {baselines.unigram_mean:.3f}, uniform {baselines.uniform_mean:.3f})"
        )
    if run.samples.is_dir():
        print(f"samples   {run.samples}")
    if run.metrics.is_file():  # not after fewer steps than are logged
        print(f"metrics   {run.metrics}")
    if not run.chosen_checkpoint().is_file():
        print("no checkpoint was kept: callbacks.checkpoint and callbacks.best_checkpoint are off")
        return
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, Reporting):
            callback.report()
    print(f"next      {command_to_generate(run.chosen_checkpoint(), cfg, data)}")
    write_report(run)


def command_to_generate(checkpoint: Path, cfg: DictConfig, data: TokenData) -> str:
    """The command that generates with the run's sampling and its first sample's conditions."""
    arguments = [f"ckpt_path={checkpoint}", *arguments_to_generate(cfg, data)]
    return shlex.join(["python", "scripts/generate.py", *arguments])


def arguments_to_generate(cfg: DictConfig, data: TokenData) -> list[str]:
    """What that command has beside the checkpoint."""
    arguments = []
    for conditions in data.examples(1):
        known = data.conditions.vocabulary.labels if data.conditions else {}
        for column, value in conditions.items():
            # Not a vector, which is not an argument of a command, nor a name that only validation
            # clips have.
            if isinstance(value, str) and value in known.get(column, [value]):
                arguments.append(f"conditioning.{column}={value}")
        arguments.append(f"duration={cfg.context:g}")  # at most: samples have an end token
    usual: Any = OmegaConf.load(CONFIGS / "sampling" / "default.yaml")
    for name, value in plain(cfg.sampling).items():
        if value != usual[name]:
            arguments.append(f"sampling.{name}={json.dumps(value, separators=(',', ':'))}")
    return arguments


def save_plan(
    cfg: DictConfig,
    trainer: Trainer,
    run: RunFolder,
    module: LanguageModelTraining,
    data: TokenData,
    baselines: Baselines,
) -> None:
    """Keep what is planned, and what is known of the recordings, for the run's report."""
    plan = plan_record(module, data, baselines, trainer) | {
        "changed_settings": changed_settings(cfg, "train"),
        "generate": arguments_to_generate(cfg, data),
        "sample_conditions": _sample_conditions(cfg, data),
        "check": None,
    }
    if cfg.data.source is not None and check_file(cfg).is_file():
        checked = json.loads(check_file(cfg).read_text(encoding="utf-8"))
        plan["check"] = summarise_check(checked)
    write_record(run.plan, plan)
    copy_listen(data.mix.stores[0].path, run)


def _sample_conditions(cfg: DictConfig, data: TokenData) -> list[dict[str, str]]:
    """Those of each sample that `SampleCallback` is going to generate."""
    samples = cfg.callbacks.samples
    count = 0 if samples is None else samples.num_samples
    return [conditions_record(values) for values in data.examples(count)]
