"""How a script starts: Hydra, and errors as one line."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import hydra
from omegaconf import DictConfig, OmegaConf

from audiolm.cli.allocator import keep_freed_memory
from audiolm.cli.compose import CONFIGS
from audiolm.cli.errors import user_line
from audiolm.cli.groups import resolve_null
from audiolm.cli.help import help_text, wants_help
from audiolm.cli.interrupt import STOPPED
from audiolm.cli.loading import end_loading
from audiolm.cli.numbers import check_numbers
from audiolm.cli.overrides import (
    check_types,
    expand_home,
    given_settings,
    quote_path,
    take_conditions,
)
from audiolm.cli.renamed_keys import check_renamed
from audiolm.cli.resume import settings_of_the_run
from audiolm.cli.run_folders import remove_what_was_made
from audiolm.cli.termination import interrupt_on_sigterm
from audiolm.cli.unused import unused_settings
from audiolm.run_folder import RUNS, RunFolder, time_stamp

TRAININGS = ("train", "train_codec")


def start(config_name: str, main: Callable[[DictConfig], None]) -> None:
    """Run `main` on the composed config; what the user got wrong ends in one line and exit code 2.

    A traceback is shown for other errors, and for all of them with HYDRA_FULL_ERROR=1.
    """
    end_loading()
    interrupt_on_sigterm()
    write_any_name()
    if wants_help(sys.argv[1:]):
        print(help_text(config_name, sys.modules["__main__"].__doc__))
        return
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
            sys.exit(STOPPED)
        except Exception as error:
            line = user_line(error, config_name)
            if line is None or wants_traceback:
                raise
            print(f"error: {line}", file=sys.stderr)
            sys.exit(2)

    conditioning: dict[str, str | None] = {}

    def checked(cfg: DictConfig) -> None:
        with errors_in_one_line():  # before Hydra sees them, which prints a line of its own
            check_types(cfg, config_name)
            check_numbers(cfg)
            for line in unused_settings(given_settings(), cfg, config_name):
                print(f"note: {line}", file=sys.stderr)
            if conditioning:
                cfg.conditioning = conditioning
            main(cfg)

    run = hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(checked)
    # Hydra then hands errors of the config on, instead of printing them with a hint of its own.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        with errors_in_one_line():
            if config_name == "generate":
                given, sys.argv[1:] = take_conditions(sys.argv[1:])
                conditioning.update(given)
            for argument in sys.argv[1:]:
                check_renamed(argument, config_name)
            resolved = [resolve_null(argument, config_name) for argument in sys.argv[1:]]
            arguments = [expand_home(argument) for argument in resolved if argument is not None]
            if config_name in TRAININGS:
                arguments = settings_of_the_run(arguments, config_name)
            sys.argv[1:] = [quote_path(argument) for argument in arguments]
            run()
    except SystemExit as stop:
        if stop.code:
            remove_what_was_made()
        raise
    finally:
        if not wants_traceback:
            del os.environ["HYDRA_FULL_ERROR"]


def write_any_name() -> None:
    """Have output that its encoding cannot write be escaped, instead of ending the script.

    Names of files are whatever their owner typed, also where a log is written in ASCII; and some
    hold bytes that are no characters in any encoding.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run_dir(name: str, ckpt_path: str | None) -> str:
    """runs/NAME/TIME, or the newest run of that name when it is to be resumed."""
    if ckpt_path == "last":
        newest = RunFolder.newest(name=name)
        if newest is not None:
            return str(newest.path)
    return str(RUNS / name / time_stamp())
