"""Settings that were given and change nothing beside others, which is not what was meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from omegaconf import DictConfig, OmegaConf

_NO_SAMPLES = ("callbacks.samples.num_samples", (None, 0))

# The settings, and what makes them unused: another setting, and those of its values.
_UNUSED: tuple[tuple[tuple[str, ...], str, tuple[Any, ...]], ...] = (
    (
        ("sampling.temperature", "sampling.top_k", "sampling.top_p", "sampling.min_p"),
        "sampling.greedy",
        (True,),
    ),
    (("sampling.repetition_share",), "sampling.repetition_window", (None,)),
    (("callbacks.samples.every_n_steps", "callbacks.samples.duration"), *_NO_SAMPLES),
    (("adversarial.[!e]*",), "adversarial.enabled", (False,)),
    (("data.valid_segment", "data.num_valid"), "data.valid_fraction", (0, 0.0)),
    (("logger.project",), "logger.mode", ("disabled",)),
)
# In the script of that name only.
_UNUSED_IN: dict[str, tuple[tuple[tuple[str, ...], str, tuple[Any, ...]], ...]] = {
    "train": ((("sampling.*",), *_NO_SAMPLES),),
    "evaluate": ((("duration", "seed", "audit", "sampling.*"), "num_samples", (0,)),),
}


def unused_settings(given: Iterable[str], cfg: DictConfig, config_name: str) -> Iterator[str]:
    """A line for each setting given that changes nothing.

    Args:
        given: names of settings, as on the command line.
        cfg: the whole config.
        config_name: of the script.
    """
    rules = (*_UNUSED, *_UNUSED_IN.get(config_name, ()))
    for key in given:
        for patterns, other, values in rules:
            if not any(fnmatchcase(key, pattern) for pattern in patterns):
                continue
            value = OmegaConf.select(cfg, other, default="not there")
            # True is equal to 1, and False to 0.
            if any(value == unused and type(value) is type(unused) for unused in values):
                shown = "null" if value is None else str(value).lower()
                yield f"{key} changes nothing with {other}={shown}"
                break
