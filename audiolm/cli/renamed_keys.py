"""Settings that had another name before: the old one is answered with the new one."""

from __future__ import annotations

RENAMED: dict[str, dict[str, str]] = {
    "prepare": {"shard": "part", "num_shards": "num_parts"},
}
"""By the name of the script: the old key and the new one."""


def check_renamed(argument: str, config_name: str) -> None:
    """Refuse an override of a key that has another name now.

    Args:
        argument: one of the command line, such as "shard=0".
        config_name: of the script, such as "prepare".

    Raises:
        ValueError: naming the new key.
    """
    key, equals, value = argument.lstrip("+").partition("=")
    new = RENAMED.get(config_name, {}).get(key)
    if equals and new is not None:
        raise ValueError(f"{key} is called {new} now; pass {new}={value}")
