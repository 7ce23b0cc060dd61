"""What a codec's training config builds, and what is said when it is over."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path

from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig
from torch import Tensor

from audiolm.cli.build import plain
from audiolm.cli.report import write_report
from audiolm.cli.store import check
from audiolm.cli.training import files_of_callbacks, make_callbacks, make_trainer
from audiolm.codec.load import BUNDLED
from audiolm.codec.local import is_saved, save_local
from audiolm.files import check_writable, user_path
from audiolm.model.checkpoint import read_checkpoint
from audiolm.run_folder import RunFolder
from audiolm.training import make_optimizer
from audiolm.training.codec.data import (
    WaveformData,
    Waveforms,
    check_segment_settings,
    segment_length,
)
from audiolm.training.codec.initial_weights import load_initial_weights
from audiolm.training.codec.module import CodecTraining
from audiolm.training.codec.options import check_trainer, segment_options
from audiolm.training.codec.resume import keep_recordings
from audiolm.training.resume import check_steps_left

WAVEFORMS = Path("data/waveforms")


def make_codec_module(cfg: DictConfig) -> CodecTraining:
    """The untrained codec of the config, once all of its settings have been checked."""
    check_trainer(cfg.trainer, cfg.data.batch_size, cfg.clip)
    if cfg.data.source is None:
        raise ValueError("a store holds codes and no recordings; pass data=folder data.path=DIR")
    if cfg.data.path is None:  # MissingMandatoryValue for none at all
        raise ValueError("data.path=null must be a folder")
    store = user_path(cfg.data.store or WAVEFORMS)
    check_writable(store, "data.store", folder=True, given=bool(cfg.data.store))
    data = segment_options(plain(cfg.data))
    check_segment_settings(**data)
    path = str(user_path(cfg.data.path).resolve())
    module = CodecTraining(
        settings=plain(cfg.codec_model),
        losses=plain(cfg.losses),
        quantization=plain(cfg.quantization),
        adversarial=plain(cfg.adversarial),
        optim=plain(cfg.optim),
        warmup=cfg.warmup,
        mel_floor=list(cfg.mel_floor),
        mel_rise=cfg.mel_rise,
        clip=cfg.clip,
        seed=cfg.seed,
        data=data | {"path": path, "weights": data["weights"] or {}},
    )
    make_optimizer(module.model, cfg.trainer.max_steps, **module.optim)
    hop = int(module.model.encoder.hop_length)
    length = segment_length(data["segment"], module.settings["sample_rate"], hop)
    module.check_plan(length, cfg.trainer.max_steps)
    return module


def initial_weights(cfg: DictConfig, module: CodecTraining, resume_from: Path | None) -> list[str]:
    """Have a new run begin with the weights of `init_from`; lines of the plan about it."""
    if cfg.init_from is None or resume_from is not None:  # a checkpoint has weights of its own
        return []
    path = BUNDLED if cfg.init_from == "bundled" else user_path(cfg.init_from)
    return [f"  init_from   {load_initial_weights(module, path)}"]


def make_codec_trainer(cfg: DictConfig, run: RunFolder) -> Trainer:
    """Lightning's trainer of one device."""
    # The discriminator's rate follows the steps of the run, also before its own first one.
    warnings.filterwarnings("ignore", message=r"Detected call of `lr_scheduler.step\(\)`")
    given = {**files_of_callbacks(run), "reconstructions": {"folder": run.reconstructions}}
    callbacks: list[Callback] = make_callbacks(cfg.callbacks, given)
    trainer = make_trainer(cfg, run, callbacks)
    if trainer.world_size > 1:
        raise ValueError(
            f"trainer.devices={cfg.trainer.devices}: a codec is trained on one device; pass "
            f"trainer.devices=1"
        )
    return trainer


def make_waveforms(
    cfg: DictConfig, module: CodecTraining, resume_from: Path | None
) -> WaveformData:
    """The recordings of the config, checked, and decoded once; those that a resumed run has.

    Of parts of files, the files.
    """
    channels = module.settings["channels"]
    report = check(cfg, channels=channels)
    waveforms = Waveforms(
        Path(cfg.data.path),
        user_path(cfg.data.store or WAVEFORMS),
        module.settings["sample_rate"],
        channels,
        [clip.path for clip in report.kept],
    )
    for name, reason in waveforms.skipped.items():
        print(f"skipped   {name}: {reason}")
    for line in keep_recordings(module, waveforms, resume_from):
        print(line)
    return WaveformData(
        waveforms,
        int(module.model.encoder.hop_length),
        seed=cfg.seed,
        num_workers=cfg.data.num_workers,
        **segment_options(plain(cfg.data)),
    )


def lacks_its_codec_alone(
    module: CodecTraining, run: RunFolder, resume_from: Path, max_steps: int
) -> bool:
    """Whether a run was stopped behind its last step, before its codec was written.

    Raises:
        ValueError: it is at its last step and has its codec, so that there is nothing to resume.
    """
    step = read_checkpoint(resume_from)["global_step"]
    is_its_end = step >= max_steps and resume_from.resolve() == run.last_checkpoint.resolve()
    if is_its_end and not is_saved(module.settings, _trained_weights(run), _codec_of(run)):
        return True
    check_steps_left(resume_from, step, max_steps)
    return False


def report_codec(ending: str, module: CodecTraining, run: RunFolder) -> None:
    """Write the codec; say how the training ended, where the codec is, and what to run next."""
    path = save_local(module.settings, _trained_weights(run), _codec_of(run))
    print(f"finished  {ending}")
    print(f"codec     {path}")
    print(f"metrics   {run.metrics}")
    print(
        f"next      python scripts/train.py data=folder data.path=DIR codec=local "
        f"codec.path={shlex.quote(str(path.parent))}"
    )
    write_report(run)


def _codec_of(run: RunFolder) -> Path:
    """Where a run's trained codec is, without ending."""
    return run.codec / "codec"


def _trained_weights(run: RunFolder) -> dict[str, Tensor]:
    """Of the codec of a run's best checkpoint."""
    checkpoint = read_checkpoint(run.chosen_checkpoint())
    return {
        name.removeprefix("model."): tensor
        for name, tensor in checkpoint["state_dict"].items()
        if name.startswith("model.")
    }
