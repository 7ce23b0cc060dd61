"""What a user writes behind a script's name: any path, any text, and values of the right kind."""

from __future__ import annotations

import re

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf

from audiolm.cli.compose import CONFIGS, compose
from audiolm.cli.numbers import number_of
from audiolm.files import user_path

# Overrides that hold a path of the user's, which may have any name, or a pattern of such names.
PATHS = (
    "audio",
    "ckpt_path",
    "codec.name",
    "codec.path",
    "codec.repository",
    "codec_path",
    "codec_repository",
    "compare",
    "data.name",
    "data.path",
    "data.pattern",
    "data.root",
    "data.store",
    "data.test",
    "data.valid",
    "hydra.run.dir",
    "init_from",
    "out",
    "path",
    "prompt",
    "run",
    "text_encoder_path",
)


def take_conditions(arguments: list[str]) -> tuple[dict[str, str | None], list[str]]:
    """The conditions of a sample, conditioning.COLUMN=VALUE, and the other arguments.

    Columns and values are the user's, and may be anything: they are not overrides of Hydra's.

    Raises:
        ValueError: for no column or no value.
    """
    conditioning: dict[str, str | None] = {}
    others = []
    for argument in arguments:
        key, equals, value = argument.lstrip("+").partition("=")
        group, dot, column = key.partition(".")
        if group != "conditioning" or not equals:
            others.append(argument)
        elif not (dot and column):
            raise ValueError(
                f"{argument}: give a column of the model's conditions, such as conditioning.label=7"
            )
        elif not value:
            raise ValueError(f"{key} is empty; give a value, or omit it")
        else:
            conditioning[column] = None if value == "null" else value.replace("${", r"\${")
    return conditioning, others


def expand_home(argument: str) -> str:
    """The override of a path with its ~ as a home folder; any other argument as it is."""
    key, _, value = argument.partition("=")
    if key not in PATHS or key == "data.pattern" or not value.startswith("~"):
        return argument
    return f"{key}={user_path(value)}"


def quote_path(argument: str) -> str:
    """Quote the value of an override that is a path: a name may be a number, or hold ( , or =."""
    key, equals, value = argument.partition("=")
    is_list = key == "compare" and value[:1] == "["
    if not equals or key not in PATHS or value == "null" or value[:1] in ("'", '"') or is_list:
        return argument
    if not value:
        raise ValueError(f"{key} is empty; pass a path, or {key}=null for none")
    # Backslashes count for Hydra before a quote only, and OmegaConf would look ${...} up.
    escaped = re.sub(r"(\\*)'", lambda match: match[1] * 2 + r"\'", value)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped).replace("${", r"\${")
    return f"{key}='{escaped}'"


def unquoted(value: str) -> str:
    """The text that an override's value stands for, where it is quoted; else the value."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return value
    text = OverridesParser.create().parse_override(f"value={value}").value()
    return str(text).replace(r"\${", "${")


def given_settings() -> list[str]:
    """Names of the settings and groups on the command line, in a run of Hydra's."""
    overrides = list(HydraConfig.get().overrides.task)
    return [o.key_or_group for o in OverridesParser.create().parse_overrides(overrides)]


def unquote_path(argument: str) -> str:
    """The override as the user typed it, before `quote_path`."""
    key, _, value = argument.partition("=")
    plain = f"{key}={value[1:-1]}"
    return plain if value[:1] == "'" and quote_path(plain) == argument else argument


def check_types(cfg: DictConfig, config_name: str) -> None:
    """Refuse a value of another kind than the default: a word for a truth value, one for a list.

    Of numbers, `audiolm.cli.numbers` says what they may be.

    Raises:
        ValueError: naming key, value and what is expected.
    """
    state = GlobalHydra.instance().hydra
    overrides = list(HydraConfig.get().overrides.task)
    parsed = OverridesParser.create().parse_overrides(overrides)
    groups = [
        str(o.input_line) for o in parsed if (CONFIGS / o.get_key_element().lstrip("+~")).is_dir()
    ]
    defaults = compose(config_name, groups)
    GlobalHydra.instance().hydra = state
    for override in parsed:
        key = override.key_or_group
        default = OmegaConf.select(defaults, key, throw_on_missing=False)
        value = OmegaConf.select(cfg, key)
        if isinstance(default, bool) and not isinstance(value, bool):
            raise ValueError(f"{key}={value} must be true or false")
        if (
            isinstance(default, ListConfig)
            and not isinstance(value, ListConfig)
            and number_of(key) is None
        ):
            raise ValueError(f"{key}={value} must be a list, such as {default}")
