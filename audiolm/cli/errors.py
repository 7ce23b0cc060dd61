"""Errors as one line."""

from __future__ import annotations

import re

from hydra.errors import HydraException
from omegaconf.errors import (
    InterpolationToMissingValueError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from audiolm.cli.compose import all_keys, compose
from audiolm.cli.groups import choices_of
from audiolm.files import nearest, one_line


def user_line(error: BaseException, config_name: str) -> str | None:
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
        if is_short_of_memory(cause):
            return (
                f"out of memory ({_one_line(str(cause))[:200]}); lower data.batch_size, context, "
                f"duration, num_samples or the size of the model, of those that there are"
            )
        if isinstance(cause, OSError) and cause.filename is not None and cause.strerror:
            return _one_line(f"{one_line(str(cause.filename))}: {cause.strerror}; check that path")
        if isinstance(cause, ValueError | OSError | FloatingPointError):
            if isinstance(cause, HydraException):  # some of Hydra's own are ValueErrors too
                return _config_line(str(cause), config_name)
            return _one_line(str(cause))
        if isinstance(cause, TypeError) and "__init__() got an unexpected keyword" in str(cause):
            return f"{_one_line(str(cause))}; take the '+' override of that name away"
        cause = cause.__cause__
    return None


def is_short_of_memory(error: BaseException) -> bool:
    """Whether it is Python's error of memory, a GPU's, or that of torch's allocator on a CPU."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    said = isinstance(error, RuntimeError) and (
        "can't allocate memory" in str(error) or "not enough memory" in str(error)
    )
    return named or said


def _config_line(message: str, config_name: str) -> str:
    """A message of Hydra's, in one line, with the nearest right name of a misspelt override."""
    unknown = re.search(r"Could not override '([^']+)'|Key '([^']+)' is not in struct", message)
    full_key = re.search(r"full_key: (\S+)", message)
    if unknown:
        key = full_key.group(1) if full_key else next(k for k in unknown.groups() if k)
        return _unknown_key(key, config_name)
    group = re.search(r"Could not find '([^/']+)/([^']+)'", message)
    if group:
        choices = choices_of(group.group(1), config_name)
        near = nearest(group.group(2), choices)
        return f"{group.group(1)}={group.group(2)} is unknown{near}; choose {', '.join(choices)}"
    group = re.search(r"Could not override '?(\w+)'?.*\n?.*No match in the defaults list", message)
    if group:
        return _unknown_key(group.group(1), config_name)
    return _one_line(message)


def _unknown_key(key: str, config_name: str) -> str:
    near = nearest(key, sorted(all_keys(compose(config_name, []))))
    return f"{key} is not a setting{near}; see all with --cfg job"


def _one_line(message: str) -> str:
    return " ".join(message.split())
