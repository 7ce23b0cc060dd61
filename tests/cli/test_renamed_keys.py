"""Settings that had another name: the old one is answered with the new one."""

from __future__ import annotations

import pytest

from audiolm.cli.compose import all_keys, compose
from audiolm.cli.renamed_keys import RENAMED, check_renamed


@pytest.mark.parametrize("argument", ["shard=1", "+shard=1"])
def test_an_old_key_is_answered_with_the_new_one(argument: str) -> None:
    with pytest.raises(ValueError, match=r"^shard is called part now; pass part=1$"):
        check_renamed(argument, "prepare")


def test_other_arguments_pass() -> None:
    for argument in ("part=1", "num_parts=2", "shard", "data.shard=1", "--multirun"):
        check_renamed(argument, "prepare")
    check_renamed("shard=1", "train")  # which never had it: Hydra answers


def test_new_keys_are_there_and_old_ones_are_not() -> None:
    for script, renamed in RENAMED.items():
        keys = set(all_keys(compose(script, [])))
        assert set(renamed.values()) <= keys and not set(renamed) & keys
