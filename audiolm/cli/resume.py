"""A run that is resumed has its own settings, but for what the command says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from audiolm.cli.compose import CONFIGS, all_keys, compose
from audiolm.cli.overrides import PATHS, quote_path, unquoted
from audiolm.hub import is_hub_name
from audiolm.run_folder import RunFolder, is_helper_process, is_model_folder

# Of the start, not of the run.
_NOT_SETTINGS = ("ckpt_path", "run_dir", "hydra.run.dir")
_SCRIPTS = {True: "train_codec.py", False: "train.py"}


def settings_of_the_run(arguments: list[str], config_name: str) -> list[str]:
    """The arguments of a training, with the settings of the run that they resume before them.

    Those that the command itself gives count, and one that it leaves out is the run's and not the
    default. A folder as `ckpt_path` stands for the last checkpoint of the run in it.

    Args:
        arguments: of the command line, not quoted yet.
        config_name: "train" or "train_codec".

    Raises:
        ValueError, FileNotFoundError: there is no run to resume, or it is the other script's.
    """
    given = _by_key(arguments)
    ckpt_path = given.get("ckpt_path", "null")
    if ckpt_path == "null" or {"-m", "--multirun"} & set(arguments):
        return arguments
    run, arguments = _run_to_resume(ckpt_path, given, arguments, config_name)
    if run is None:
        return arguments
    codec = config_name == "train_codec"
    if run.record.is_dir() and run.trains_a_codec() != codec:
        raise ValueError(
            f"ckpt_path={ckpt_path}: {run.path} is a run of {_SCRIPTS[not codec]}; resume it with "
            f"scripts/{_SCRIPTS[not codec]}"
        )
    own = _kept(recorded_overrides(run), arguments, config_name)
    taken = [override for override in own if override not in map(quote_path, arguments)]
    flags = any(argument.startswith("-") for argument in arguments)
    if taken and not flags and not is_helper_process():
        print(f"settings  those of {run.path}: {' '.join(taken)}")
    return [*own, *arguments]


def recorded_overrides(run: RunFolder) -> list[str]:
    """What the command line of a run said, as Hydra's overrides; nothing where that is not known.

    Raises:
        ValueError: the record is damaged.
    """
    file = run.record / "overrides.yaml"
    if not file.is_file():
        return []
    try:
        overrides: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False) or []
    except Exception:  # what a YAML parser raises for a damaged file depends on its bytes
        overrides = None
    if not isinstance(overrides, list) or not all(isinstance(o, str) for o in overrides):
        raise ValueError(
            f"{file} is not a list of overrides; put it in order, or move it away and pass all "
            f"settings of the run"
        )
    return overrides


def _run_to_resume(
    ckpt_path: str, given: dict[str, str], arguments: list[str], config_name: str
) -> tuple[RunFolder | None, list[str]]:
    """The run that a checkpoint is of, and the arguments with a folder as Hydra's own."""
    run_dir = given.get("hydra.run.dir")
    path = Path(ckpt_path)
    if is_hub_name(ckpt_path) or (path.is_dir() and is_model_folder(path)):
        raise ValueError(
            f"ckpt_path={ckpt_path} is an exported model, which holds no run to resume; to begin a "
            f"new run with its weights, pass init_from={ckpt_path}"
        )
    if ckpt_path == "last":
        if run_dir is not None:
            return RunFolder(Path(run_dir)), arguments
        newest = RunFolder.newest(name=_name_of_the_run(arguments, config_name))
        if newest is None:
            return None, arguments
        return newest, [*arguments, f"hydra.run.dir={newest.path}"]
    if not path.is_dir():
        return RunFolder.of(path), arguments
    run = RunFolder(path)
    if not run.last_checkpoint.is_file():
        raise FileNotFoundError(
            f"ckpt_path={ckpt_path} holds no run to resume: it has no checkpoints/last.ckpt; give "
            f"a folder such as runs/NAME/TIME, or a checkpoint file"
        )
    others = [argument for argument in arguments if _key(argument) != "ckpt_path"]
    if run_dir is None:
        return run, [*others, "ckpt_path=last", f"hydra.run.dir={path}"]
    return run, [*others, f"ckpt_path={run.last_checkpoint}"]


def _name_of_the_run(arguments: list[str], config_name: str) -> str:
    """The name that the arguments give a run, which may follow from a choice in them."""
    overrides = [quote_path(argument) for argument in arguments if not argument.startswith("-")]
    cfg = compose(config_name, [o for o in overrides if "=" in o], with_hydra=True)
    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(cfg)
    try:
        return str(cfg.name)
    finally:
        HydraConfig.instance().cfg = before


def _kept(own: list[str], arguments: list[str], config_name: str) -> list[str]:
    """The run's own overrides without those that the arguments take the place of."""
    given, before = _by_key(arguments), _by_key(own)
    own = [o for o in own if _key(o) not in given and _key(o) not in _NOT_SETTINGS]
    for group, choice in given.items():
        if not (CONFIGS / group).is_dir() or before.get(group) == choice:
            continue
        # Another choice: its settings have other meanings, or are not there.
        within = [o for o in own if _key(o).startswith(f"{group}.")]
        if within:
            known = all_keys(compose(config_name, [f"{group}={choice}"]))
            gone = {o for o in within if _key(o) not in known or _key(o) in PATHS}
            own = [o for o in own if o not in gone]
    return own


def _by_key(arguments: Sequence[str]) -> dict[str, str]:
    """Values by key, of arguments that are overrides."""
    pairs = (argument.partition("=") for argument in arguments if not argument.startswith("-"))
    return {key.lstrip("+~"): unquoted(value) for key, equals, value in pairs if equals}


def _key(argument: str) -> str:
    return argument.lstrip("+~").partition("=")[0]
