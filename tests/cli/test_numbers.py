"""Every setting that is a number has limits, and all scripts look at them first."""

from __future__ import annotations

import math
from typing import Any

import pytest
from omegaconf import OmegaConf

from audiolm.cli.compose import CONFIGS, compose
from audiolm.cli.numbers import NUMBERS, check_numbers, number_of, settings

SCRIPTS = sorted(file.stem for file in CONFIGS.glob("*.yaml"))
# Settings that are null by default, and not numbers.
WORDS = [
    "audio",
    "base_model",
    "ckpt_path",
    "codec.repository",
    "codec_path",
    "codec_repository",
    "compare",
    "conditioning.sequence",
    "conditioning.text",
    "conditioning.vector",
    "data.column",
    "data.config",
    "data.group",
    "data.label_from",
    "data.pattern",
    "data.revision",
    "data.split_from",
    "data.splits",
    "data.store",
    "data.subsets",
    "data.test",
    "data.valid",
    "data.weights",
    "init_from",
    "license",
    "out",
    "prompt",
    "push",
    "run",
    "text_encoder_path",
    "title",
]


def all_settings() -> dict[str, tuple[str, list[str], Any]]:
    """By name: a script and overrides that have the setting, and its value there."""
    found: dict[str, tuple[str, list[str], Any]] = {}
    for script in SCRIPTS:
        groups = [] if script != "train" else ["data", "codec", "trainer", "conditioning", "model"]
        choices = [f"{g}={file.stem}" for g in groups for file in sorted((CONFIGS / g).glob("*"))]
        for overrides in [[], *([choice] for choice in choices if choice != "data=base")]:
            for key, value in settings(compose(script, overrides)):
                if found.get(key, (0, 0, None))[2] is None:
                    found[key] = (script, overrides, value)
    return found


SETTINGS = all_settings()


def is_numeric(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(is_numeric(each) for each in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_every_number_has_limits_and_nothing_else_has() -> None:
    without = [key for key, (_, _, value) in SETTINGS.items() if is_numeric(value)]
    assert [key for key in without if number_of(key) is None] == []
    nulls = [key for key, (_, _, value) in SETTINGS.items() if value is None and key not in WORDS]
    assert [key for key in nulls if number_of(key) is None] == []
    others = [k for k, (_, _, v) in SETTINGS.items() if isinstance(v, bool | str) and v != "auto"]
    assert [key for key in others if number_of(key) is not None] == []
    used = {id(number_of(key)) for key in SETTINGS}
    assert [pattern for pattern, number in NUMBERS.items() if id(number) not in used] == []


def test_the_configs_pass_their_own_limits() -> None:
    for script in SCRIPTS:
        check_numbers(compose(script, []))
    for experiment in ("digits", "speech", "music", "smoke", "overfit"):
        check_numbers(compose("train", [f"experiment={experiment}"]))


@pytest.mark.parametrize("key", [key for key in SETTINGS if number_of(key) is not None])
def test_what_no_work_could_be_done_with_is_refused(key: str) -> None:
    script, overrides, default = SETTINGS[key]
    number = number_of(key)
    assert number is not None
    bad: list[Any] = [math.nan, -math.inf, "many", True, {"a": 1}, [[1]], -1e300, 10**400]
    bad += [10**30] if number.limits.whole else []
    bad += [[]] if number.lengths[0] else []
    bad += [[*default, default[0]]] if number.lengths == (2, 2) else []
    bad += [] if number.null else [None]
    cfg = compose(script, overrides)
    for value in bad:
        OmegaConf.update(cfg, key, value, merge=False, force_add=True)
        with pytest.raises(ValueError, match="must be") as refused:
            check_numbers(cfg)
        assert str(refused.value).startswith(f"{key}") and "\n" not in str(refused.value)
