"""Rules on measurements, and settings that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from audiolm.datasets.checks.measure import MEASURED
from audiolm.datasets.checks.rules import ON_SOUND, Rule, Rules

CONFIG = Path(__file__).resolve().parents[3] / "configs" / "rules" / "default.yaml"


def rows(**values: list[float]) -> np.ndarray:
    made = np.zeros(len(next(iter(values.values()))), MEASURED)
    made["sample_rate"], made["num_samples"], made["rms"] = 1000, 1000, 0.1
    made["mix_rms"] = 0.1
    for name, column in values.items():
        made[name] = column
    return made


def test_the_config_holds_the_defaults():
    config = OmegaConf.to_container(OmegaConf.load(CONFIG))
    assert Rules.from_config(config) == Rules() == Rules.from_config({})
    assert set(config) == {"max_dropped", *Rules.names()}
    for name in Rules.names():
        threshold = Rules()[name].threshold
        assert set(config[name]) == {"action"} | ({"threshold"} if threshold is not None else set())


def test_overrides():
    changed = Rules.from_config({"silent": {"action": "report"}, "too_short": {"threshold": 1}})
    assert changed.silent == Rule("report", -70.0)
    assert changed.too_short == Rule("drop", 1)
    # YAML's `action: off` is False.
    assert Rules.from_config({"silent": {"action": False}}).silent.action == "off"


@pytest.mark.parametrize(
    "config, parts",
    [
        (
            {"silnt": {"action": "drop"}},
            ["rules.silnt", "silent, out_of_phase, unscaled, too_short"],
        ),
        ({"silent": {"action": "delete"}}, ["rules.silent.action=delete", "drop, report, off"]),
        ({"silent": {"action": True}}, ["rules.silent.action=True", "drop, report, off"]),
        ({"silent": {"threshold": "low"}}, ["rules.silent.threshold=low", "number", "-70"]),
        ({"silent": {"threshold": float("nan")}}, ["rules.silent.threshold=nan", "-70"]),
        ({"silent": {"threshold": None}}, ["rules.silent.threshold=None", "number"]),
        ({"duplicate": {"threshold": 1}}, ["rules.duplicate.threshold=1", "not a setting"]),
        ({"silent": {"limit": 1}}, ["rules.silent.limit", "rules.silent.threshold"]),
        ({"silent": "drop"}, ["rules.silent=drop", "rules.silent.action"]),
        ({"unreadable": {"action": "report"}}, ["rules.unreadable", "rules.max_dropped=1"]),
        ({"max_dropped": 2}, ["rules.max_dropped=2", "0 to 1"]),
        ({"max_dropped": "all"}, ["rules.max_dropped=all", "0 to 1"]),
    ],
)
def test_what_is_no_setting_is_answered_in_one_line(config: Any, parts: list[str]):
    with pytest.raises(ValueError) as error:
        Rules.from_config(config)
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)


def test_each_rule_at_its_threshold():
    rules = Rules()
    expected = {
        "silent": (rows(rms=[0.0, 10 ** (-71 / 20), 10 ** (-69 / 20)]), [1, 1, 0]),
        "out_of_phase": (rows(mix_rms=[0.0, 0.0099, 0.0101, 0.1, 0.14]), [1, 1, 0, 0, 0]),
        "unscaled": (rows(peak=[0.1, 1.4, 16.0, 16.1, 32767.0]), [0, 0, 0, 1, 1]),
        "too_short": (rows(num_samples=[1, 99, 100]), [1, 1, 0]),
        "very_long": (rows(num_samples=[3_600_000, 3_600_001]), [0, 1]),
        "clipped": (rows(clipped=[0.0, 0.0009, 0.0011]), [0, 0, 1]),
        "offset": (rows(offset=[0.0, 0.019, 0.021]), [0, 0, 1]),
        "missing": (rows(missing=[0.0, 0.019, 0.021]), [0, 0, 1]),
        "trailing": (rows(trailing=[0, 1, 4096]), [0, 1, 1]),
    }
    assert set(expected) == set(ON_SOUND)
    for name, (measured, broken) in expected.items():
        assert rules.broken(name, measured).tolist() == [bool(value) for value in broken], name
        for row in measured:
            reason = rules.reason(name, row)
            assert "\n" not in reason and ("above" in reason or "below" in reason)
        assert not rules.broken(name, rows(rms=[])).any()
    assert rules.reason("silent", rows(rms=[0.0])[0]) == "silent: rms -inf dBFS, below -70"
