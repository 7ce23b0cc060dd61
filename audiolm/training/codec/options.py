"""The options of training a codec, completed and checked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from audiolm.limits import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, SHARE_ABOVE_0, SHARE_BELOW_1
from audiolm.training.codec.data import check_segment_settings

LOSSES: dict[str, float] = {
    "time": 1.0,  # L1, as a share of the mean magnitude
    "mel": 1.0,  # L1 + L2 of log-mel spectra
    "commitment": 0.25,
    "latents": 0.1,  # of latents whose mean square is above 1
    # Share of the gradient at the latents, beside 1 for all that comes through the decoder.
    "spectrum": 1.0,  # of a frame, predicted from its latents by a linear layer
}


ADVERSARIAL: dict[str, Any] = {
    "enabled": False,
    "start": 0.0,  # share of the steps before which there is no discriminator
    "adversarial": 3.0,  # weight of passing for real
    "features": 3.0,  # weight of the distance of the discriminator's features
    "filters": 32,
    "n_ffts": [1024, 2048, 512],
    "update_probability": 0.667,  # of the discriminator at a step, so that it does not win
    "lr": 3e-4,
}


QUANTIZATION: dict[str, Any] = {
    "start": 0.65,  # share of the steps before which the latents get noise instead
    "noise": [0.0, 0.4],  # its standard deviation, as a share of the latents' rms
    # Share of the steps from which encoder and codebooks stay as they are; 1 is never. Between
    # `start` and it, all are trained together on codes.
    "freeze_encoder": 0.75,
    "levels": None,  # numbers of codebooks to sample from; None is n_q, its half, ... to 2
    "decay": 0.99,  # of the averages that codebooks follow
    "dead_below": 0.15,  # a code used less than this share of the mean is replaced
    "init_segments": 4096,  # whose latents codebooks are fitted to: with few, they fit chance
}

_SHARES = ("start", "decay", "dead_below")


def _completed(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise ValueError(f"{name}.{unknown[0]} is unknown; the keys are {', '.join(defaults)}")
    return {**defaults, **given}


def checked_losses(given: Mapping[str, float]) -> dict[str, float]:
    weights = _completed("losses", given, LOSSES)
    for name, weight in weights.items():
        NOT_NEGATIVE.check(f"losses.{name}", weight)
    if not weights["time"] + weights["mel"] > 0:
        raise ValueError("losses.time=0 and losses.mel=0: nothing to train on; raise one above 0")
    return weights


def checked_adversarial(given: Mapping[str, Any]) -> dict[str, Any]:
    options = _completed("adversarial", given, ADVERSARIAL)
    limits = {
        **{"start": SHARE_BELOW_1, "update_probability": SHARE_ABOVE_0, "lr": POSITIVE},
        **{"adversarial": NOT_NEGATIVE, "features": NOT_NEGATIVE},
    }
    for name, limit in limits.items():
        limit.check(f"adversarial.{name}", options[name])
    return options


def checked_quantization(given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    options = _completed("quantization", given, QUANTIZATION)
    n_q: int = settings["n_q"]
    halves = [n_q >> i for i in range(n_q.bit_length()) if n_q >> i >= 2] or [n_q]
    levels = options["levels"] or halves
    if not all(isinstance(level, int) for level in levels):
        raise ValueError(f"quantization.levels={levels}: must be whole numbers of codebooks")
    if min(levels) < 1 or max(levels) != settings["n_q"]:
        raise ValueError(
            f"quantization.levels={levels}: must be numbers of codebooks up to n_q="
            f"{settings['n_q']}, which must be among them, such as [{settings['n_q']}]"
        )
    noise = list(options["noise"])
    for share in noise:
        NOT_NEGATIVE.check("quantization.noise", share)
    if len(noise) != 2 or noise[0] > noise[1]:
        raise ValueError(f"quantization.noise={noise}: must be two shares, low and high")
    limits = {"init_segments": COUNT, **dict.fromkeys(_SHARES, SHARE_BELOW_1)}
    for name, limit in limits.items():
        limit.check(f"quantization.{name}", options[name])
    start, freeze = options["start"], options["freeze_encoder"]
    if isinstance(freeze, bool):  # in checkpoints of before: from the start on, or never
        freeze = options["freeze_encoder"] = start if freeze else 1.0
    SHARE.check("quantization.freeze_encoder", freeze)
    if freeze < start:
        raise ValueError(
            f"quantization.freeze_encoder={freeze}: must not be before quantization.start={start}, "
            f"from which on there are codebooks to keep"
        )
    return options | {"levels": list(levels)}


def checked_floor(mel_floor: Sequence[float]) -> tuple[float, float]:
    if len(mel_floor) != 2 or not all(-100 < floor <= 0 for floor in mel_floor):
        raise ValueError(f"mel_floor={list(mel_floor)}: must be two levels in dB, 0 or below")
    return float(mel_floor[0]), float(mel_floor[1])


def check_trainer(trainer: Any, batch_size: int, clip: float) -> None:
    """Refuse what Lightning's trainer can do for other models only.

    trainer: its settings, of which one may be changed. batch_size, clip: for the messages.
    """
    # A run that is shorter than the way to its first validation would have none.
    trainer.val_check_interval = min(trainer.val_check_interval, trainer.max_steps)
    if trainer.accumulate_grad_batches != 1:
        raise ValueError(
            f"trainer.accumulate_grad_batches={trainer.accumulate_grad_batches}: a codec is "
            f"trained without; raise data.batch_size={batch_size}"
        )
    if trainer.gradient_clip_val is not None:
        raise ValueError(
            f"trainer.gradient_clip_val={trainer.gradient_clip_val}: a codec's gradients are "
            f"clipped by clip={clip}; keep trainer.gradient_clip_val=null"
        )
    if trainer.precision not in ("32-true", "32", 32):
        raise ValueError(
            f"trainer.precision={trainer.precision}: a codec is trained in 32-true only, since "
            f"spectra and codebooks lose too much in less"
        )


def segment_options(data: dict[str, Any]) -> dict[str, Any]:
    """The part of the settings of `data` that says what is cut from the recordings."""
    known = inspect.signature(check_segment_settings).parameters
    return {key: value for key, value in data.items() if key in known}
