"""What the scripts share: Hydra's start, and errors as one line.

Only scripts know Hydra; below them all is plain arguments.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    InterpolationToMissingValueError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from audiolm.allocator import keep_freed_memory
from audiolm.files import nearest
from audiolm.generation import Sampling
from audiolm.run_folder import RUNS, newest_run

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
# Settings with a default that null turns off.
NULLABLE = (
    "callbacks.ema.decay",
    "quantization.levels",
    "sampling.top_k",
    "trainer.gradient_clip_val",
    "trainer.check_val_every_n_epoch",
)
# Settings of one number that may be a list, one for each codebook.
LISTS = ("sampling.temperature",)
# Overrides that hold a path of the user's, which may have any name, or a pattern of such names.
PATHS = (
    "audio",
    "ckpt_path",
    "codec.path",
    "codec.repository",
    "codec_repository",
    "data.name",
    "data.path",
    "data.pattern",
    "data.root",
    "data.store",
    "data.test",
    "data.valid",
    "hydra.run.dir",
    "out",
    "prompt",
)


def start(config_name: str, main: Callable[[DictConfig], None]) -> None:
    """Run `main` on the composed config; what the user got wrong ends in one line and exit code 2.

    A traceback is shown for other errors, and for all of them with HYDRA_FULL_ERROR=1.
    """
    keep_freed_memory()
    # Cached, so that the time in it is the same wherever it is looked up.
    OmegaConf.register_new_resolver("run_dir", _run_dir, replace=True, use_cache=True)
    # Advertisements, a warning about Lightning's own use of torch,
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    # and two that every resumed and every short run would show.
    for message in (".*treespec, LeafSpec", ".*exists and is not empty", ".*logging interval"):
        warnings.filterwarnings("ignore", message=message)
    wants_traceback = bool(os.environ.get("HYDRA_FULL_ERROR"))

    @contextmanager
    def errors_in_one_line() -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as stop:
            print(str(stop) or "stopped", file=sys.stderr)
            sys.exit(130)
        except Exception as error:
            line = _user_line(error, config_name)
            if line is None or wants_traceback:
                raise
            print(f"error: {line}", file=sys.stderr)
            sys.exit(2)

    told: dict[str, str | None] = {}

    def checked(cfg: DictConfig) -> None:
        with errors_in_one_line():  # before Hydra sees them, which prints a line of its own
            _check_types(cfg, config_name)
            if told:
                cfg.conditioning = told
            main(cfg)

    run = hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(checked)
    # Hydra then hands errors of the config on, instead of printing them with a hint of its own.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        with errors_in_one_line():
            if config_name == "generate":
                words, sys.argv[1:] = _take_told(sys.argv[1:])
                told.update(words)
            sys.argv[1:] = [_quote_path(argument) for argument in sys.argv[1:]]
            run()
    finally:
        if not wants_traceback:
            del os.environ["HYDRA_FULL_ERROR"]


def _take_told(arguments: list[str]) -> tuple[dict[str, str | None], list[str]]:
    """What a model is told, conditioning.COLUMN=WORDS, and the other arguments.

    Columns and words are the user's, and may be anything: they are no overrides of Hydra's.

    Raises:
        ValueError: for no column or no words.
    """
    told: dict[str, str | None] = {}
    others = []
    for argument in arguments:
        key, equals, words = argument.lstrip("+").partition("=")
        group, dot, column = key.partition(".")
        if group != "conditioning" or not equals:
            others.append(argument)
        elif not (dot and column):
            raise ValueError(
                f"{argument}: here it is told what to say, by the columns of the model, such as "
                f"conditioning.label=7"
            )
        elif not words:
            raise ValueError(f"{key} is empty; give a word, or leave it away")
        else:
            told[column] = None if words == "null" else words.replace("${", r"\${")
    return told, others


def _quote_path(argument: str) -> str:
    """Quote the value of an override that is a path: a name may be a number, or hold ( , or =."""
    key, equals, value = argument.partition("=")
    if not equals or key not in PATHS or value == "null" or value[:1] in ("'", '"'):
        return argument
    if not value:
        raise ValueError(f"{key} is empty; pass a path, or {key}=null for none")
    # Backslashes count for Hydra before a quote only, and OmegaConf would look ${...} up.
    escaped = re.sub(r"(\\*)'", lambda match: match[1] * 2 + r"\'", value)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped).replace("${", r"\${")
    return f"{key}='{escaped}'"


def make_sampling(cfg: DictConfig) -> Sampling:
    """How codes are drawn, of the config's group of that name.

    Raises:
        ValueError: for settings out of range.
    """
    settings: Any = OmegaConf.to_container(cfg.sampling, resolve=True)
    return Sampling(**settings)


def _run_dir(name: str, ckpt_path: str | None) -> str:
    """runs/NAME/TIME, or the newest run of that name when it is to be gone on with."""
    if ckpt_path == "last":
        newest = newest_run(name=name)
        if newest is not None:
            return str(newest)
    return str(RUNS / name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))


def _user_line(error: BaseException, config_name: str) -> str | None:
    """One line for what the user can mend; None for an error that is ours."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MissingMandatoryValue):
            key = str(cause.full_key or cause.key)
            return f"{key} is not set; pass {key}=..."
        if isinstance(cause, InterpolationToMissingValueError):
            key = str(cause).partition("Missing mandatory value: ")[2].split()[0]
            return f"{key} is not set; pass {key}=..."
        if isinstance(cause, HydraException | OmegaConfBaseException) and cause.__cause__ is None:
            return _config_line(str(cause), config_name)
        if type(cause).__name__ == "MisconfigurationException":  # Lightning's own
            return _one_line(str(cause))
        if isinstance(cause, ValueError | OSError | FloatingPointError):
            if isinstance(cause, HydraException):  # some of Hydra's own are ValueErrors too
                return _config_line(str(cause), config_name)
            return _one_line(str(cause))
        if isinstance(cause, TypeError) and "__init__() got an unexpected keyword" in str(cause):
            return f"{_one_line(str(cause))}; take the '+' override of that name away"
        cause = cause.__cause__
    return None


def _config_line(message: str, config_name: str) -> str:
    """A message of Hydra's, in one line, with the nearest right name of a misspelt override."""
    unknown = re.search(r"Could not override '([^']+)'|Key '([^']+)' is not in struct", message)
    full_key = re.search(r"full_key: (\S+)", message)
    if unknown:
        key = full_key.group(1) if full_key else next(k for k in unknown.groups() if k)
        return _unknown_key(key, config_name)
    group = re.search(r"Could not find '([^/']+)/([^']+)'", message)
    if group:
        choices = sorted(file.stem for file in (CONFIGS / group.group(1)).glob("*.yaml"))
        near = nearest(group.group(2), choices)
        return f"{group.group(1)}={group.group(2)} is unknown{near}; choose {', '.join(choices)}"
    group = re.search(r"Could not override '?(\w+)'?.*\n?.*No match in the defaults list", message)
    if group:
        return _unknown_key(group.group(1), config_name)
    return _one_line(message)


def _unknown_key(key: str, config_name: str) -> str:
    near = nearest(key, sorted(_all_keys(_compose(config_name, []))))
    return f"{key} is no setting{near}; see all with --cfg job"


def _all_keys(cfg: Any, prefix: str = "") -> set[str]:
    keys = set()
    for key in cfg:
        full = f"{prefix}{key}"
        keys.add(full)
        value = cfg._get_node(key)
        if isinstance(value, DictConfig) and not value._is_none():
            keys |= _all_keys(value, f"{full}.")
    return keys


def _compose(config_name: str, overrides: list[str]) -> DictConfig:
    """The config with these overrides, outside of Hydra's own run."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(config_name, overrides=overrides)


def _check_types(cfg: DictConfig, config_name: str) -> None:
    """Refuse a value of another kind than the default: a word for a number, a part for a whole.

    Raises:
        ValueError: naming key, value and what is expected.
    """
    state = GlobalHydra.instance().hydra
    overrides = list(HydraConfig.get().overrides.task)
    parsed = OverridesParser.create().parse_overrides(overrides)
    groups = [
        str(o.input_line) for o in parsed if (CONFIGS / o.get_key_element().lstrip("+~")).is_dir()
    ]
    defaults = _compose(config_name, groups)
    GlobalHydra.instance().hydra = state
    for override in parsed:
        key = override.key_or_group
        default = OmegaConf.select(defaults, key, throw_on_missing=False)
        value = OmegaConf.select(cfg, key)
        if default is None or value == "auto" or (value is None and key in NULLABLE):
            continue
        if isinstance(default, bool):
            fits, wanted = isinstance(value, bool), "true or false"
        elif isinstance(default, int):
            # trainer.devices=[0,1] is a choice of Lightning's.
            fits = isinstance(value, int | ListConfig) and not isinstance(value, bool)
            wanted = f"a whole number, such as {default}"
        elif isinstance(default, float):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
            fits = fits or (key in LISTS and isinstance(value, ListConfig))
            wanted = f"a number, such as {default}"
        elif isinstance(default, ListConfig):
            fits, wanted = isinstance(value, ListConfig), f"a list, such as {default}"
        else:
            continue
        if not fits:
            raise ValueError(f"{key}={value} must be {wanted}")


def _one_line(message: str) -> str:
    return " ".join(message.split())
