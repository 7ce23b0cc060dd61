"""What makes a clip unfit to train on, and what is done with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

ACTIONS = ("drop", "report", "off")

FAULTS = ("source", "unreadable", "truncated", "not_finite")
"""Rules without a choice, since what breaks them cannot be decoded: a row that its source could not
use, and the rules of `measure.Fault`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """action: "drop" the clip, keep and "report" it, or "off". threshold: see `Rules`."""

    action: str
    threshold: float | None = None


@dataclass(frozen=True)
class Rules:
    """What is done with clips that break a rule.

    max_dropped: share of the hours that one rule may drop; more is refused.
    silent: rms about the mean, in dBFS, below the threshold.
    out_of_phase: of what is mixed for the codec, the level of the mean over channels beside that of
        the channels, in dB, below the threshold; see `mixed`.
    unscaled: peak above the threshold, where full scale is 1: integers that were saved as floats.
    too_short, very_long: seconds below, above the threshold.
    clipped: share of the samples that are, above the threshold; see `measure.Measurement`.
    offset: mean of a channel, as a share of full scale, above the threshold.
    missing: seconds above the threshold that lack in the middle, by the times of its packets.
    trailing: bytes above the threshold behind the samples that the header counts, not read.
    duplicate: the same decoded audio as another clip.
    text_missing: no text, or a blank one.
    Raises ValueError for an action or a threshold that is none.
    """

    max_dropped: float = 0.5
    silent: Rule = field(default=Rule("drop", -70.0))
    out_of_phase: Rule = field(default=Rule("drop", -20.0))
    unscaled: Rule = field(default=Rule("drop", 16.0))
    too_short: Rule = field(default=Rule("drop", 0.1))
    very_long: Rule = field(default=Rule("report", 3600.0))
    clipped: Rule = field(default=Rule("report", 0.001))
    offset: Rule = field(default=Rule("report", 0.02))
    missing: Rule = field(default=Rule("report", 0.02))
    trailing: Rule = field(default=Rule("report", 0.0))
    duplicate: Rule = field(default=Rule("drop"))
    text_missing: Rule = field(default=Rule("off"))

    def __post_init__(self) -> None:
        if not _is_number(self.max_dropped) or not 0 <= self.max_dropped <= 1:
            raise ValueError(
                f"rules.max_dropped={self.max_dropped} must be a share of the hours, from 0 to 1"
            )
        for name in self.names():
            rule = self[name]
            if rule.action not in ACTIONS:
                raise ValueError(
                    f"rules.{name}.action={rule.action} is not one of {', '.join(ACTIONS)}"
                )
            if (rule.threshold is None) != (_default(name).threshold is None):
                needs = "needs a number" if rule.threshold is None else "is not a setting"
                raise ValueError(f"rules.{name}.threshold={rule.threshold} {needs}")
            if rule.threshold is not None and not _is_number(rule.threshold):
                raise ValueError(
                    f"rules.{name}.threshold={rule.threshold} must be a number, "
                    f"such as {_default(name).threshold}"
                )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The rules with a choice."""
        return tuple(f.name for f in fields(cls) if f.name != "max_dropped")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Rules:
        """From {"max_dropped": 0.5, "silent": {"action": "drop", "threshold": -70.0}, ...}.

        What is not named has its default. Raises ValueError for a rule or a setting that is none.
        """
        settings: dict[str, Any] = {}
        for name, value in config.items():
            if name == "max_dropped":
                settings[name] = value
                continue
            if name in FAULTS:
                raise ValueError(
                    f"rules.{name} is not a setting: such files cannot be decoded and are always "
                    "skipped; rules.max_dropped=1 continues however many they are"
                )
            if name not in cls.names():
                raise ValueError(f"rules.{name} is not one of {', '.join(cls.names())}")
            if not isinstance(value, Mapping):
                raise ValueError(f"rules.{name}={value} must be settings, {_example(name)}")
            unknown = set(value) - {"action", "threshold"}
            if unknown:
                raise ValueError(
                    f"rules.{name}.{min(unknown)} is not a setting; {_example(name)} are"
                )
            default = _default(name)
            action = value.get("action", default.action)
            if action is False:  # YAML takes a bare `off` for it
                action = "off"
            settings[name] = Rule(action, value.get("threshold", default.threshold))
        return cls(**settings)

    def __getitem__(self, name: str) -> Rule:
        """A rule by name; those of `FAULTS` drop."""
        if name in FAULTS:
            return Rule("drop")
        rule = getattr(self, name)
        assert isinstance(rule, Rule), name
        return rule

    def broken(self, name: str, measured: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these `MEASURED` rows break a rule of `ON_SOUND`, also one that is off."""
        value, threshold = _QUANTITIES[name](measured), self[name].threshold
        assert threshold is not None, name
        return value > threshold if name in _UPPER else value < threshold

    def reason(self, name: str, measured: NDArray[Any]) -> str:
        """Why the one clip of this `MEASURED` row breaks a rule on the sound, in one line."""
        value = float(_QUANTITIES[name](measured))
        return _REASONS[name].format(value=value, threshold=self[name].threshold)


def _decibels(amplitude: NDArray[Any]) -> NDArray[Any]:
    """dB to full scale; -inf for nothing."""
    with np.errstate(divide="ignore"):
        return np.asarray(20 * np.log10(amplitude))


def _mix_level(measured: NDArray[Any]) -> NDArray[Any]:
    """dB of the mono mix beside its channels: 0 where these are alike, also for silence.

    Channels that have nothing in common give -10 log10(channels).
    """
    level = np.where(measured["rms"] > 0, measured["rms"], 1.0)
    return _decibels(np.where(measured["rms"] > 0, measured["mix_rms"], 1.0) / level)


def mixed(measured: NDArray[Any], channels: int) -> NDArray[Any]:
    """`MEASURED` rows as a codec of so many channels gets them: without a mix where it makes none.

    See `audiolm.audio.convert_channels`.
    """
    as_they_are = measured.copy()
    kept = measured["channels"] == channels
    as_they_are["mix_rms"][kept] = measured["rms"][kept]
    return as_they_are


ON_SOUND = (
    *("silent", "out_of_phase", "unscaled", "too_short", "very_long", "clipped", "offset"),
    *("missing", "trailing"),
)
"""Rules that one clip's sound, and what was noticed as it was decoded, decide."""

_QUANTITIES: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "silent": lambda measured: _decibels(measured["rms"]),
    "out_of_phase": lambda measured: _mix_level(measured),
    "unscaled": lambda measured: measured["peak"],
    "too_short": lambda measured: measured["num_samples"] / measured["sample_rate"],
    "very_long": lambda measured: measured["num_samples"] / measured["sample_rate"],
    "clipped": lambda measured: measured["clipped"],
    "offset": lambda measured: measured["offset"],
    "missing": lambda measured: measured["missing"],
    "trailing": lambda measured: measured["trailing"],
}
_UPPER = (
    "unscaled",
    "very_long",
    "clipped",
    "offset",
    "missing",
    "trailing",
)  # limits that are not to be exceeded
_REASONS = {
    "silent": "silent: rms {value:.1f} dBFS, below {threshold:g}",
    "out_of_phase": (
        "out of phase: its channels cancel, the mono mix is at {value:.1f} dB beside them, below "
        "{threshold:g}; keep one channel of it"
    ),
    "unscaled": (
        "unscaled: peak {value:,.0f} where full scale is 1, above {threshold:g}, as of integers "
        "saved as floats; divide it by their full scale"
    ),
    "too_short": "too short: {value:.3f} s, below {threshold:g} s",
    "very_long": "very long: {value:.0f} s, above {threshold:g} s",
    "clipped": "clipped: {value:.2%} of the samples, above {threshold:.2%}",
    "offset": "constant offset: mean {value:.3f} of full scale, above {threshold:g}",
    "missing": (
        "packets are missing: {value:.3f} s in the middle, by the file's own times, above "
        "{threshold:g} s; what is before and behind is joined"
    ),
    "trailing": (
        "{value:,.0f} bytes behind the samples that its header counts, above {threshold:g}, are "
        "not read: a damaged header, or what a program left there"
    ),
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _default(name: str) -> Rule:
    rule = Rules.__dataclass_fields__[name].default
    assert isinstance(rule, Rule), name
    return rule


def _example(name: str) -> str:
    threshold = _default(name).threshold
    return f"rules.{name}.action" + (f" and rules.{name}.threshold" if threshold else "")
