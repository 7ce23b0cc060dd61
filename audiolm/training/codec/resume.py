"""What must be the same when a codec's training is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from audiolm.codec.settings import check_settings
from audiolm.files import hash64
from audiolm.model.checkpoint import read_checkpoint
from audiolm.tokens import ClipSet
from audiolm.training.codec.data import Waveforms
from audiolm.training.codec.module import CODEC_FORMAT, CodecTraining
from audiolm.training.codec.options import ADVERSARIAL, LOSSES, checked_quantization
from audiolm.training.resume import NOT_SAID, check_same_settings, compare_clips


def check_same_codec_run(module: CodecTraining, path: Path) -> bool:
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
    check_same_settings(path, then, now)
    return bool(checkpoint["state_dict"]["model.quantizer.vq.layers.0._codebook.inited"])


def keep_recordings(
    module: CodecTraining, waveforms: Waveforms, resume_from: Path | None
) -> list[str]:
    """Have the module's checkpoints say which recordings it is trained on.

    Args:
        module: that is trained.
        waveforms: the recordings.
        resume_from: the checkpoint of a run that is resumed.

    Returns:
        what is to be said where they are not those of the checkpoint, in lines.

    Raises:
        ValueError: more than half of those of the checkpoint are not there.
    """
    rms = [f"{level:.3g}" for level in waveforms.rms]
    lengths = waveforms.lengths.tolist()
    keys = np.array([hash64(f"{n} {r}") for n, r in zip(lengths, rms, strict=True)], np.uint64)
    ids = np.array([hash64(name) for name in waveforms.ids], np.uint64)
    now = ClipSet.of_keys(keys, waveforms.lengths, [ids])
    module.hparams["data"]["clips"] = now.settings()
    if resume_from is None:
        return []
    data = read_checkpoint(resume_from)["hyper_parameters"].get("data") or {}
    if "clips" not in data:
        return [] if data.get("path") == str(waveforms.folder.resolve()) else [NOT_SAID]
    remedy = f"pass the recordings of the run, which were at data.path={data['path']}"
    return compare_clips(resume_from, data["clips"], now, keys, str(waveforms.folder), remedy)


def comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in a resumed run, under the names that a user sets."""
    codec = check_settings(settings["settings"])
    groups = {
        "codec_model": codec,
        "losses": LOSSES | settings["losses"],
        "quantization": checked_quantization(settings["quantization"], codec),
        "adversarial": ADVERSARIAL | settings["adversarial"],
        "data": {
            k: v for k, v in (settings.get("data") or {}).items() if k not in ("path", "clips")
        },
    }
    named = {f"{group}.{key}": v for group, part in groups.items() for key, v in part.items()}
    return {
        **named,
        **{key: settings.get(key) for key in ("warmup", "mel_floor", "mel_rise", "seed")},
    }
