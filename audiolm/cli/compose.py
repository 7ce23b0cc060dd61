"""The configs, composed outside of Hydra's own run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
if not CONFIGS.is_dir():  # the package is installed apart from the repository that the script is of
    CONFIGS = Path(sys.argv[0]).resolve().parent.parent / "configs"


def compose(config_name: str, overrides: list[str], with_hydra: bool = False) -> DictConfig:
    """The config with these overrides, outside of Hydra's own run; with Hydra's own part or not."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, overrides=overrides, return_hydra_config=with_hydra)


def choices(config_name: str, overrides: list[str]) -> dict[str, Any]:
    """Which file of each group the config with these overrides is made of: {"data": "folder"}."""
    state = GlobalHydra.instance().hydra
    try:
        composed = compose(config_name, overrides, with_hydra=True)
    finally:
        GlobalHydra.instance().hydra = state
    return dict(composed.hydra.runtime.choices)


def all_keys(cfg: Any, prefix: str = "") -> set[str]:
    keys = set()
    for key in cfg:
        full = f"{prefix}{key}"
        keys.add(full)
        value = cfg._get_node(key)
        if isinstance(value, DictConfig) and not value._is_none():
            keys |= all_keys(value, f"{full}.")
    return keys


def changed_settings(cfg: DictConfig, config_name: str) -> dict[str, dict[str, Any]]:
    """The settings of a run that differ from the defaults: by key, "value" and "default"."""
    state = GlobalHydra.instance().hydra
    defaults = flat_settings(compose(config_name, []))
    GlobalHydra.instance().hydra = state
    settings = flat_settings(cfg)
    derived = {key for key in settings if _is_derived(cfg, key)}
    return {
        key: {"value": settings.get(key), "default": defaults.get(key)}
        for key in sorted((settings.keys() | defaults.keys()) - derived)
        # What is chosen on the machine, and where the run goes, are not choices of the user's.
        if defaults.get(key) != "auto"
        and key not in ("run_dir", "ckpt_path")
        and settings.get(key) != defaults.get(key)
    }


def _is_derived(cfg: DictConfig, key: str) -> bool:
    """Whether a setting follows from another one: ${...}."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and OmegaConf.is_interpolation(node, name)


def flat_settings(cfg: DictConfig) -> dict[str, Any]:
    """Every setting by its full key, as plain data; None for one that is not set."""
    flat: dict[str, Any] = {}
    for key in all_keys(cfg):
        try:
            value = OmegaConf.select(cfg, key)
        except OmegaConfBaseException:
            value = None
        if isinstance(value, ListConfig):
            value = OmegaConf.to_container(value)
        if not isinstance(value, DictConfig):
            flat[key] = value
    return flat
