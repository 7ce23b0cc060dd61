"""The groups of settings of a script, such as model=small: their choices, and what null means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from audiolm.cli.compose import CONFIGS

NOTHING = {"logger": "csv", "conditioning": "none"}
"""The choice that is meant where a group is null; in the others nothing is left to work with."""

OF_RECORDINGS = ("prepare", "train_codec")
"""The scripts that need recordings, where the others can also do with finished token stores."""


def groups_of(config_name: str) -> dict[str, str | None]:
    """The choice that each group of a script has by default; None where it has none."""
    found: dict[str, str | None] = {}
    config: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{config_name}.yaml"))
    for entry in config["defaults"]:
        if not isinstance(entry, str):
            ((name, _),) = entry.items()
            if not name.startswith(("override ", "optional ")):
                found[name] = entry[name]
    return found


def choices_of(group: str, config_name: str) -> list[str]:
    """What a group can be in a script: experiments are those whose settings the script has, and
    data those that it can work with, which are recordings where there is something to encode."""
    files = sorted(Path(CONFIGS / group).glob("*.yaml"))
    if group == "experiment":
        known = _keys(CONFIGS / f"{config_name}.yaml") | groups_of(config_name).keys()
        files = [file for file in files if _keys(file) <= known]
    if group == "data" and config_name in OF_RECORDINGS:
        files = [file for file in files if _has_recordings(file)]
    return [file.stem for file in files]


def _has_recordings(file: Path) -> bool:
    config: Any = OmegaConf.load(file)
    return config.get("source", "") is not None


def _keys(file: Path) -> set[str]:
    config: Any = OmegaConf.to_container(OmegaConf.load(file))
    return set(config) - {"defaults"}


def resolve_null(argument: str, config_name: str) -> str | None:
    """An override that leaves a group out, GROUP=null or ~GROUP, as one that Hydra has.

    Returns:
        the argument; another one in its place; or None where it changes nothing.

    Raises:
        ValueError: without the group there is nothing to work with.
    """
    key, equals, value = argument.partition("=")
    removed = argument.startswith("~") and not equals
    group = key.lstrip("~+") if removed or (equals and value == "null") else ""
    groups = groups_of(config_name)
    if group not in groups:
        return argument
    if group in NOTHING:
        return f"{group}={NOTHING[group]}"
    if groups[group] is None:
        return None
    choices = choices_of(group, config_name)
    more = "; one alone is turned off by callbacks.NAME=null" if group == "callbacks" else ""
    raise ValueError(
        f"{argument} leaves nothing to work with; choose {', '.join(choices)}, or omit it{more}"
    )
