"""A setting that changes nothing beside another is named, and no other one."""

from __future__ import annotations

import pytest

from audiolm.cli.compose import compose
from audiolm.cli.unused import unused_settings


@pytest.mark.parametrize(
    ("script", "overrides", "unused"),
    [
        ("generate", ["sampling.greedy=true", "sampling.top_k=3"], "sampling.greedy=true"),
        ("generate", ["sampling.repetition_share=0.2"], "sampling.repetition_window=null"),
        ("evaluate", ["num_samples=0", "duration=3"], "num_samples=0"),
        ("evaluate", ["num_samples=0", "sampling.top_p=0.9"], "num_samples=0"),
        ("train", ["callbacks.samples=null", "sampling.top_p=0.9"], None),
        ("train", ["callbacks.samples.num_samples=0", "sampling.top_p=0.9"], "num_samples=0"),
        ("train", ["logger=csv", "logger.project=mine"], "logger.mode=disabled"),
        ("train_codec", ["adversarial.lr=1e-3"], "adversarial.enabled=false"),
        ("train_codec", ["data.valid_fraction=0", "data.num_valid=3"], "valid_fraction=0"),
        ("generate", ["sampling.top_k=3", "num_samples=1", "seed=3"], None),
        ("evaluate", ["num_samples=1", "sampling.top_p=0.9", "duration=3"], None),
        ("train_codec", ["adversarial.enabled=true", "adversarial.lr=1e-3"], None),
        ("train_codec", ["adversarial.enabled=false"], None),
    ],
)
def test_what_changes_nothing_is_named(
    script: str, overrides: list[str], unused: str | None
) -> None:
    keys = [override.partition("=")[0] for override in overrides]
    lines = list(unused_settings(keys, compose(script, overrides), script))
    if unused is None:
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith(f"{keys[-1]} changes nothing with ") and line.endswith(unused)
