"""What must be the same when a codec's training is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audiolm.codec.settings import check_settings
from audiolm.model.checkpoint import read_checkpoint
from audiolm.training.codec.module import CODEC_FORMAT, CodecTraining
from audiolm.training.codec.options import ADVERSARIAL, LOSSES, checked_quantization
from audiolm.training.resume import check_resumable


def check_same_codec_run(module: CodecTraining, path: Path, max_steps: int) -> bool:
    """Refuse to resume a checkpoint of another codec, other losses or other data.

    Returns:
        whether its codebooks are fitted already.

    Raises:
        ValueError: naming the setting that differs.
    """
    checkpoint = read_checkpoint(path)
    found = checkpoint.get("audiolm_codec_format")
    if found is None:
        raise ValueError(
            f"{path} is not a checkpoint of a codec; take one that train_codec.py wrote"
        )
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
    codec = check_settings(settings["settings"])
    groups = {
        "codec_model": codec,
        "losses": LOSSES | settings["losses"],
        "quantization": checked_quantization(settings["quantization"], codec),
        "adversarial": ADVERSARIAL | settings["adversarial"],
        "data": settings.get("data") or {},
    }
    named = {f"{group}.{key}": v for group, part in groups.items() for key, v in part.items()}
    return {
        **named,
        **{key: settings.get(key) for key in ("warmup", "mel_floor", "mel_rise", "seed")},
    }
