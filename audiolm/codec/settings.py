"""An EnCodec of any size, described by a flat dict of plain values, and the network built from it.

The networks are `encodec`'s own (Défossez et al., "High Fidelity Neural Audio Compression",
arXiv:2210.13438); nothing of them is written again here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from encodec.model import EncodecModel
from encodec.modules.seanet import SEANetDecoder, SEANetEncoder
from encodec.quantization.vq import ResidualVectorQuantizer

NORMS = ("weight_norm", "time_group_norm", "none")

REQUIRED: dict[str, type] = {
    "sample_rate": int,  # Hz
    "channels": int,  # 1 or 2
    "n_filters": int,  # width of the first layer; doubles with every ratio
    "dimension": int,  # width of the latents that are quantized
    "ratios": list,  # strides in the decoder's order; their product is the hop
    "n_residual_layers": int,
    "true_skip": bool,
    "compress": int,  # how much narrower the residual branches are
    "lstm": int,  # layers, 0 for none
    "causal": bool,
    "norm": str,
    "n_q": int,  # residual codebooks the quantizer has
    "bins": int,  # codes in a codebook
}
OPTIONAL: dict[str, Any] = {
    "segment": None,  # seconds; cut into segments, each normalised by its level (see segments.py)
}


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, complete and in plain types, or say what is wrong with them.

    Keys are those of `REQUIRED`, and of `OPTIONAL`, which have defaults.

    Raises:
        ValueError: one line with the value, the limit and the remedy.
    """
    missing = [key for key in REQUIRED if key not in settings]
    unknown = [key for key in settings if key not in REQUIRED and key not in OPTIONAL]
    if missing or unknown:
        parts = [f"{', '.join(missing)} missing"] if missing else []
        parts += [f"{', '.join(map(str, unknown))} unknown"] if unknown else []
        raise ValueError(
            f"codec settings: {'; '.join(parts)}; the keys are {', '.join([*REQUIRED, *OPTIONAL])}"
        )
    checked: dict[str, Any] = {}
    for key, kind in REQUIRED.items():
        value = settings[key]
        if kind is int:
            value = _whole(key, value, least=0 if key in ("lstm", "n_residual_layers") else 1)
        elif kind is list:
            if not isinstance(value, list | tuple) or not value:
                raise ValueError(
                    f"codec setting {key}={value!r}: give a list of strides, [8,5,4,2]"
                )
            value = [_whole(key, v, least=1) for v in value]
        elif not isinstance(value, kind):
            raise ValueError(f"codec setting {key}={value!r}: must be a {kind.__name__}")
        checked[key] = value
    checked["segment"] = _seconds("segment", settings.get("segment"))
    _check_values(checked)
    return checked


def _seconds(key: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(
            f"codec setting {key}={value!r}: must be seconds above 0, or null for none"
        )
    return float(value)


def _whole(key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise ValueError(f"codec setting {key}={value!r}: must be a whole number")
    if value < least:
        raise ValueError(f"codec setting {key}={value!r}: must be at least {least}")
    return int(value)


def _check_values(s: Mapping[str, Any]) -> None:
    hop = math.prod(s["ratios"])
    if s["channels"] > 2:
        raise ValueError(f"codec setting channels={s['channels']}: must be 1 (mono) or 2 (stereo)")
    if s["bins"] < 2 or s["bins"] & (s["bins"] - 1):
        raise ValueError(f"codec setting bins={s['bins']}: must be a power of two, such as 1024")
    if hop > s["sample_rate"]:
        raise ValueError(
            f"codec setting ratios={s['ratios']}: their product is {hop} samples a frame, more "
            f"than a second at sample_rate={s['sample_rate']}; choose smaller ratios"
        )
    if s["compress"] > s["n_filters"]:
        raise ValueError(
            f"codec setting compress={s['compress']}: must not be more than "
            f"n_filters={s['n_filters']}, or the residual branches have no channels"
        )
    if s["norm"] not in NORMS:
        raise ValueError(f"codec setting norm={s['norm']!r}: must be one of {', '.join(NORMS)}")
    if s["norm"] == "time_group_norm" and (s["causal"] or s["segment"] is None):
        raise ValueError(
            "codec setting norm='time_group_norm': it looks at the whole input, so it needs "
            "causal=false and a segment (seconds), for instance segment=1.0"
        )
    if s["segment"] is not None:
        _check_segment(s, hop)


def _check_segment(s: Mapping[str, Any], hop: int) -> None:
    segment = s["segment"]
    frames = segment * s["sample_rate"] / hop
    if frames < 4 or abs(frames - round(frames)) > 1e-6:
        near = max(4, round(frames)) * hop / s["sample_rate"]
        raise ValueError(
            f"codec setting segment={segment}: is {frames:g} frames of {hop} samples, must be a "
            f"whole number of at least 4; {near:g} s would do"
        )
    if s["bins"] < 512:
        raise ValueError(
            f"codec setting bins={s['bins']}: a codec with segments keeps their level in a "
            "codebook of 512 steps, so it needs at least 512"
        )


def build_model(settings: Mapping[str, Any]) -> EncodecModel:
    """Build the network that `settings` describe, with random weights and codebooks of zeros.

    For use, give it weights (`EncodecCodec` does); for training, take its parts, `encoder`,
    `quantizer` and `decoder`.

    Raises:
        ValueError: from `check_settings`.
    """
    s = check_settings(settings)
    shape = {
        key: s[key]
        for key in (
            *("channels", "dimension", "n_filters", "n_residual_layers", "ratios", "norm"),
            *("causal", "true_skip", "compress", "lstm"),
        )
    }
    with warnings.catch_warnings():
        # encodec 0.1.1 uses torch's older weight_norm on purpose: its files have those names.
        warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)
        encoder, decoder = SEANetEncoder(**shape), SEANetDecoder(**shape)
    quantizer = ResidualVectorQuantizer(dimension=s["dimension"], n_q=s["n_q"], bins=s["bins"])
    return EncodecModel(
        encoder,
        decoder,
        quantizer,
        target_bandwidths=[],  # its bandwidth arithmetic rounds down: we choose by number
        sample_rate=s["sample_rate"],
        channels=s["channels"],
        normalize=s["segment"] is not None,
        segment=s["segment"],
    )
