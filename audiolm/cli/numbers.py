"""Every setting that is a number, and what it may be: checked at the start, before hours of work.

What depends on more than the setting itself (the model, the recordings, another setting) is checked
where that is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from audiolm.generation.sampling import MAX_GUIDANCE, TEMPERATURES
from audiolm.limits import (
    COUNT,
    COUNT_OR_NONE,
    DURATION,
    HALF,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    Limits,
)

MANY = math.inf


class Number(NamedTuple):
    """What a setting may be.

    null: whether it may be null. lengths: how many numbers it may hold, the least and the most;
    (0, 0) for one that is no list. alone: whether one that is a list may be a number too. words:
    what it may be beside numbers.
    """

    limits: Limits
    null: bool = False
    lengths: tuple[float, float] = (0, 0)
    alone: bool = False
    words: tuple[str, ...] = ()
    remedy: str = ""


_PROCESSES = Limits(0, 4096, whole=True)
_DAY = 86400.0
_SECONDS = Limits(0, _DAY, above=True)
_DECIBELS = Limits(-200, 0)
_SIZE = Number(COUNT)
_SIZES = Number(COUNT, lengths=(0, MANY))

NUMBERS: dict[str, Number] = {
    "seed": Number(SEED),
    "context": Number(_SECONDS),
    # import_model.py
    "context_seconds": Number(_SECONDS, null=True),
    "max_tokens": _SIZE,
    "history_noise": Number(HALF),
    # generate.py and evaluate.py
    "num_samples": Number(Limits(0, 10**9, whole=True)),
    "best_of": _SIZE,
    "duration": Number(DURATION),
    "prompt_duration": Number(POSITIVE, null=True, remedy="null takes all of the prompt"),
    "sampling.temperature": Number(
        Limits(*TEMPERATURES),
        lengths=(1, MANY),
        alone=True,
        remedy="for the most probable codes pass sampling.greedy=true",
    ),
    "sampling.top_k": Number(COUNT, null=True, remedy="null for all codes"),
    "sampling.top_p": Number(SHARE_ABOVE_0, null=True, remedy="null for all codes"),
    "sampling.min_p": Number(SHARE_ABOVE_0, null=True, remedy="null for all codes"),
    "sampling.repetition_window": Number(COUNT, null=True, remedy="null for no look back"),
    "sampling.repetition_share": Number(
        SHARE_ABOVE_0, remedy="to turn the rule off pass sampling.repetition_window=null"
    ),
    "sampling.guidance": Number(Limits(0, MAX_GUIDANCE), remedy="1 is off"),
    # app.py
    "port": Number(Limits(1, 65535, whole=True), null=True, remedy="null for a free one"),
    "max_seconds": Number(POSITIVE),
    # The data
    "part": Number(COUNT_OR_NONE),
    "num_parts": _SIZE,
    "prepare.check_workers": Number(_PROCESSES, null=True),
    "prepare.num_workers": Number(_PROCESSES),
    "prepare.num_checks": Number(COUNT_OR_NONE),
    "rules.max_dropped": Number(SHARE),
    "rules.*.threshold": Number(Limits(-1e9, 1e9)),
    "data.num_melodies": _SIZE,
    "data.valid_fraction": Number(SHARE_BELOW_1),
    "data.batch_size": Number(Limits(1, 10**6, whole=True)),
    "data.num_workers": Number(_PROCESSES),
    "data.num_valid": Number(COUNT_OR_NONE),
    "data.segment": Number(_SECONDS),
    "data.valid_segment": Number(_SECONDS),
    "data.level": Number(_DECIBELS, lengths=(2, 2)),
    "data.augment.speed": Number(HALF),
    "data.augment.tilt": Number(SHARE),
    "data.augment.noise": Number(SHARE),
    "data.augment.room": Number(SHARE),
    # The model
    "model.embed_dim": _SIZE,
    "model.num_layers": _SIZE,
    "model.num_heads": _SIZE,
    "model.feedforward_dim": Number(COUNT, null=True),
    "pattern.delays": Number(Limits(0, 4096, whole=True), null=True, lengths=(1, MANY)),
    "model.*dropout": Number(SHARE_BELOW_1),
    "conditioning.drop": Number(SHARE_BELOW_1),
    "conditioning.text_layers": Number(COUNT_OR_NONE),
    "conditioning.max_text": Number(COUNT),
    "codec.num_codebooks": Number(COUNT, null=True),
    "codec.bandwidth": Number(POSITIVE),
    # The training
    "optim.lr": Number(POSITIVE),
    "optim.weight_decay": Number(NOT_NEGATIVE),
    "optim.betas": Number(SHARE_BELOW_1, lengths=(2, 2)),
    "optim.warmup_steps": Number(COUNT_OR_NONE),
    "optim.final_lr_ratio": Number(NOT_NEGATIVE),
    "trainer.devices": Number(
        Limits(-1, 4096, whole=True), lengths=(1, MANY), alone=True, words=("auto",)
    ),
    "trainer.max_steps": _SIZE,
    "trainer.accumulate_grad_batches": _SIZE,
    "trainer.val_check_interval": _SIZE,
    "trainer.log_every_n_steps": Number(COUNT_OR_NONE),
    "trainer.num_sanity_val_steps": Number(Limits(-1, 10**9, whole=True)),
    "trainer.check_val_every_n_epoch": Number(COUNT, null=True),
    "trainer.gradient_clip_val": Number(NOT_NEGATIVE, null=True),
    "callbacks.checkpoint.every_n_train_steps": _SIZE,
    "callbacks.ema.decay": Number(SHARE_BELOW_1, null=True, remedy="such as 0.999, or null"),
    "callbacks.early_stopping.patience": Number(COUNT_OR_NONE, null=True),
    "callbacks.samples.every_n_steps": Number(COUNT_OR_NONE),
    "callbacks.*.num_samples": Number(COUNT_OR_NONE, remedy="0 for none"),
    "callbacks.samples.duration": Number(_SECONDS),
    # The training of a codec
    "codec_model.ratios": Number(COUNT, lengths=(1, MANY)),
    "codec_model.lstm": Number(COUNT_OR_NONE),
    "codec_model.sample_rate": _SIZE,
    "codec_model.channels": _SIZE,
    "codec_model.n_*": _SIZE,
    "codec_model.decoder_filters": Number(COUNT, null=True),
    "codec_model.decoder_residual_layers": Number(COUNT_OR_NONE, null=True),
    "codec_model.dimension": _SIZE,
    "codec_model.compress": _SIZE,
    "codec_model.bins": _SIZE,
    "losses.*": Number(NOT_NEGATIVE),
    "quantization.start": Number(SHARE_BELOW_1),
    "quantization.freeze_encoder": Number(SHARE),
    "quantization.noise": Number(NOT_NEGATIVE, lengths=(2, 2)),
    "quantization.levels": Number(COUNT, null=True, lengths=(1, MANY)),
    "quantization.decay": Number(SHARE_BELOW_1),
    "quantization.dead_below": Number(SHARE_BELOW_1),
    "quantization.init_segments": _SIZE,
    "adversarial.start": Number(SHARE_BELOW_1),
    "adversarial.update_probability": Number(SHARE_ABOVE_0),
    "adversarial.filters": _SIZE,
    "adversarial.n_ffts": Number(COUNT, lengths=(1, MANY)),
    "adversarial.lr": Number(POSITIVE),
    "adversarial.adversarial": Number(NOT_NEGATIVE),
    "adversarial.features": Number(NOT_NEGATIVE),
    "warmup": Number(SHARE),
    "mel_floor": Number(_DECIBELS, lengths=(2, 2)),
    "mel_rise": Number(POSITIVE),
    "clip": Number(POSITIVE),
    # benchmark.py
    "rounds": _SIZE,
    "*.rounds": _SIZE,
    "compared.*": _SIZE,
    "train.batch_size": _SIZE,
    "train.lightning_steps": Number(COUNT_OR_NONE),
    "generate.frames": _SIZE,
    "generate.prompt_frames": _SIZE,
    "generate.batches": _SIZES,
    "generate.large.*": _SIZE,
    "generate.large_codebooks": _SIZES,
    "*.large_frames": _SIZE,
    "*.top_k": _SIZE,
    "length.contexts": _SIZES,
    "length.frames": _SIZES,
    "length.last": _SIZE,
    "length.step_frames": _SIZE,
    "length.window": _SIZE,
    "encode.lengths": Number(_SECONDS, lengths=(0, MANY)),
    "encode.*_seconds": Number(_SECONDS),
    "encode.*_workers": Number(_PROCESSES),
    "data.context": Number(_SECONDS),
    "data.clips": _SIZE,
}
"""By the setting's name, or a pattern of such names; the first one that fits holds."""


def number_of(key: str) -> Number | None:
    """What the setting of that name may be; None for one that is not a number."""
    return next((n for pattern, n in NUMBERS.items() if fnmatchcase(key, pattern)), None)


def check_numbers(cfg: DictConfig) -> None:
    """Refuse a number that no work could be done with, whatever it was set by.

    Raises:
        ValueError: naming setting, value, limit and remedy in one line.
    """
    for key, value in settings(cfg):
        number = number_of(key)
        if number is not None and value not in number.words:
            _check(key, value, number)


def settings(cfg: DictConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name and value of all settings that hold no others; lists as lists.

    Not those that are still to be set, nor what a source of recordings is built from: it repeats
    settings of its own group.
    """
    for name in cfg:
        if not isinstance(name, str):  # a store of data.mix may be called 7
            continue
        key = f"{prefix}{name}"
        if key in ("data.source", "data.callbacks") or OmegaConf.is_missing(cfg, name):
            continue
        if OmegaConf.is_interpolation(cfg, name) and number_of(key) is None:
            continue  # such as the folder of the run, which there is in a run alone
        value = cfg[name]
        if isinstance(value, DictConfig) and number_of(key) is None:
            yield from settings(value, f"{key}.")
        else:
            yield key, OmegaConf.to_container(value) if OmegaConf.is_list(value) else value


def _check(key: str, value: Any, number: Number) -> None:
    least, most = number.lengths
    if value is None:
        if number.null:
            return
    elif most and isinstance(value, list):
        if not least <= len(value) <= most:
            wanted = f"{most} numbers" if least == most else f"{least} numbers or more"
            raise ValueError(f"{key}={value} must be a list of {wanted}")
        for each in value:
            number.limits.check(key, each, number.remedy)
        return
    elif most and not number.alone:
        raise ValueError(f"{key}={value} must be a list, each {number.limits}")
    number.limits.check(key, value, number.remedy)
