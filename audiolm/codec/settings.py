"""An EnCodec of any size, described by a flat dict of plain values, and the network built from it.

The networks are `encodec`'s own (Défossez et al., "High Fidelity Neural Audio Compression",
arXiv:2210.13438); nothing of them is written again here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from reprlib import repr as short_repr
from typing import Any

from encodec.model import EncodecModel
from encodec.modules.seanet import SEANetDecoder, SEANetEncoder
from encodec.quantization.vq import ResidualVectorQuantizer

from audiolm.files import short

NORMS = ("weight_norm", "time_group_norm", "none")
PAD_MODES = ("reflect", "constant")

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
# Far beyond any codec that is of use. What they bound is the number of layers, which takes time to
# build however small they are, and sizes that no tensor can have.
MOST = {
    "sample_rate": 10_000_000,
    "n_filters": 4096,
    "dimension": 16_384,
    "ratios": 10,  # of them
    "n_residual_layers": 8,
    "lstm": 16,
    "n_q": 256,
    "bins": 2**20,
    "segment": 3600,
}
OF_ENCODER = {"decoder_filters": "n_filters", "decoder_residual_layers": "n_residual_layers"}
"""Settings of the decoder alone, and those that stand for them where they are None."""
OPTIONAL: dict[str, Any] = {
    "segment": None,  # seconds; cut into segments, each normalised by its level (see segments.py)
    # Of a decoder that is larger than the encoder; None is as the encoder has them.
    "decoder_filters": None,
    "decoder_residual_layers": None,
    "pad_mode": "reflect",  # what convolutions see past the ends: the sound mirrored; or "constant"
    "dual_mono": False,  # a mono network for the left and the right of stereo (see dual_mono.py)
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
        parts += [f"{_names(unknown)} unknown"] if unknown else []
        raise ValueError(
            f"codec settings: {'; '.join(parts)}; the keys are {', '.join([*REQUIRED, *OPTIONAL])}"
        )
    checked: dict[str, Any] = {}
    for key, kind in REQUIRED.items():
        value = settings[key]
        if kind is int:
            least = 0 if key in ("lstm", "n_residual_layers") else 1
            value = _whole(key, value, least, MOST.get(key))
        elif kind is list:
            if not isinstance(value, list | tuple) or not value:
                raise ValueError(f"{_given(key, value)}: give a list of strides, [8,5,4,2]")
            if len(value) > MOST[key]:
                raise ValueError(
                    f"{_given(key, value)}: has {len(value):,} strides, at most {MOST[key]} are "
                    "possible; choose fewer and larger ones"
                )
            value = [_whole(key, v, least=1, most=MOST["sample_rate"]) for v in value]
        elif not isinstance(value, kind):
            raise ValueError(f"{_given(key, value)}: must be a {kind.__name__}")
        checked[key] = value
    checked["segment"] = _seconds("segment", settings.get("segment"))
    for key in OF_ENCODER:
        value, of_encoder = settings.get(key), OF_ENCODER[key]
        least = 0 if of_encoder == "n_residual_layers" else 1
        checked[key] = None if value is None else _whole(key, value, least, MOST[of_encoder])
    for key in ("pad_mode", "dual_mono"):
        checked[key] = settings.get(key, OPTIONAL[key])
        if not isinstance(checked[key], type(OPTIONAL[key])):
            wanted = type(OPTIONAL[key]).__name__
            raise ValueError(f"{_given(key, checked[key])}: must be a {wanted}")
    _check_values(checked)
    return checked


def _given(key: str, value: Any) -> str:
    return f"codec setting {key}={short_repr(value)}"


def _names(keys: Sequence[object]) -> str:
    few = ", ".join(short(str(key)) for key in keys[:5])
    return few if len(keys) <= 5 else f"{few} and {len(keys) - 5:,} more"


def _seconds(key: str, value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= MOST[key]:
        raise ValueError(
            f"{_given(key, value)}: must be seconds above 0, at most {MOST[key]:,}, or null for "
            "none"
        )
    return float(value)


def _whole(key: str, value: Any, least: int, most: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise ValueError(f"{_given(key, value)}: must be a whole number")
    if value < least:
        raise ValueError(f"{_given(key, value)}: must be at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{_given(key, value)}: must be at most {most:,}")
    return int(value)


def _check_values(s: Mapping[str, Any]) -> None:
    hop = math.prod(s["ratios"])
    if s["channels"] > 2:
        raise ValueError(f"{_given('channels', s['channels'])}: must be 1 (mono) or 2 (stereo)")
    if s["bins"] < 2 or s["bins"] & (s["bins"] - 1):
        raise ValueError(f"{_given('bins', s['bins'])}: must be a power of two, such as 1024")
    if hop > s["sample_rate"]:
        raise ValueError(
            f"{_given('ratios', s['ratios'])}: their product is {hop} samples a frame, more "
            f"than a second at sample_rate={s['sample_rate']}; choose smaller ratios"
        )
    for key in ("n_filters", "decoder_filters"):
        if s[key] is not None and s["compress"] > s[key]:
            raise ValueError(
                f"{_given('compress', s['compress'])}: must not be more than {key}={s[key]}, or "
                "the residual branches have no channels"
            )
    if s["norm"] not in NORMS:
        raise ValueError(f"{_given('norm', s['norm'])}: must be one of {', '.join(NORMS)}")
    if s["pad_mode"] not in PAD_MODES:
        raise ValueError(
            f"{_given('pad_mode', s['pad_mode'])}: must be one of {', '.join(PAD_MODES)}"
        )
    if s["dual_mono"] and (s["channels"] != 1 or s["segment"] is not None):
        raise ValueError(
            "codec setting dual_mono=true: it is of a mono network without segments; give "
            "channels=1 and segment=null"
        )
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
            f"{_given('bins', s['bins'])}: a codec with segments keeps their level in a "
            "codebook of 512 steps, so it needs at least 512"
        )


def fewest_numbers(settings: Mapping[str, Any]) -> int:
    """How many numbers the weights of a codec of these settings hold, at least: all but a norm's.

    By arithmetic, so that what nothing could hold is never built. `settings` are checked ones.
    """
    codebooks: int = settings["n_q"] * settings["bins"] * settings["dimension"]
    encoder, decoder = settings, _of_decoder(settings)
    return _numbers_of_half(encoder, 2) + _numbers_of_half(decoder, 1) + codebooks


def _numbers_of_half(s: Mapping[str, Any], down: int) -> int:
    """Numbers of an encoder (``down`` 2: its strides double the width) or of a decoder (1)."""
    width: int = s["n_filters"]
    outer, inner = (
        (width, s["dimension"]) if down == 2 else (s["channels"], width * 2 ** len(s["ratios"]))
    )
    count = 7 * s["channels"] * width + outer
    for ratio in reversed(s["ratios"]):
        branch = width // s["compress"]
        layer = 4 * width * branch + branch + width
        shortcut = 0 if s["true_skip"] else width * width + width
        count += s["n_residual_layers"] * (layer + shortcut) + 4 * ratio * width * width
        count += down * width
        width *= 2
    lstms: int = s["lstm"] * (8 * width * width + 8 * width)
    total: int = count + lstms + 7 * width * s["dimension"] + inner
    return total


def _of_decoder(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with the decoder's own in the encoder's places."""
    own = {key: settings[name] for name, key in OF_ENCODER.items() if settings[name] is not None}
    return {**settings, **own}


def build_model(settings: Mapping[str, Any]) -> EncodecModel:
    """Build the network that `settings` describe, with random weights and codebooks of zeros.

    For use, give it weights (`EncodecCodec` does); for training, take its parts, `encoder`,
    `quantizer` and `decoder`.

    Raises:
        ValueError: from `check_settings`.
    """
    s = check_settings(settings)
    names = (
        *("channels", "dimension", "n_filters", "n_residual_layers", "ratios", "norm"),
        *("causal", "true_skip", "compress", "lstm", "pad_mode"),
    )
    of_encoder, of_decoder = ({key: part[key] for key in names} for part in (s, _of_decoder(s)))
    with warnings.catch_warnings():
        # encodec 0.1.1 uses torch's older weight_norm on purpose: its files have those names.
        warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)
        encoder, decoder = SEANetEncoder(**of_encoder), SEANetDecoder(**of_decoder)
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
