"""The configs, composed outside of Hydra's own run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
if not CONFIGS.is_dir():  # the package is installed apart from the repository that the script is of
    CONFIGS = Path(sys.argv[0]).resolve().parent.parent / "configs"


def compose(config_name: str, overrides: list[str], with_hydra: bool = False) -> DictConfig:
    """The config with these overrides, outside of Hydra's own run; with Hydra's own part or not."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, overrides=overrides, return_hydra_config=with_hydra)


def all_keys(cfg: Any, prefix: str = "") -> set[str]:
    keys = set()
    for key in cfg:
        full = f"{prefix}{key}"
        keys.add(full)
        value = cfg._get_node(key)
        if isinstance(value, DictConfig) and not value._is_none():
            keys |= all_keys(value, f"{full}.")
    return keys
