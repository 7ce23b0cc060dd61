"""What scripts/app.py starts: the model, those to compare it with, and the page."""

from __future__ import annotations

import importlib.util
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from audiolm.app.workshop import Workshop
from audiolm.cli.build import make_sampling
from audiolm.cli.errors import user_line
from audiolm.files import check_writable, user_path
from audiolm.run_folder import RUNS, RunFolder, find_checkpoint, runs_below
from audiolm.synthesis.synthesizer import Synthesizer

if TYPE_CHECKING:
    from audiolm.app.page import App


def check_gradio() -> None:
    """Refuse to start without Gradio; and keep it from calling home, once it is imported.

    Raises:
        ValueError: it is not installed.
    """
    if importlib.util.find_spec("gradio") is None:
        raise ValueError("the app needs the package gradio; run pip install -e '.[app]'")
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.getLogger("httpx").setLevel(logging.WARNING)  # of requests to its own server


def make_workshop(cfg: DictConfig) -> Workshop:
    """The model that the config names, and the other runs below runs/.

    Raises:
        FileNotFoundError: there is none.
        OSError: `out` may not be written to.
        ValueError: a file that is no checkpoint.
    """
    checkpoint = find_checkpoint(cfg.ckpt_path)
    out = None if cfg.out is None else user_path(cfg.out)
    check_writable(out or RunFolder.of(checkpoint).path, "out", folder=True)
    load = partial(Synthesizer.load, device=cfg.device, codec_repository=cfg.codec_repository)
    return Workshop(
        load(checkpoint),
        load,
        other_checkpoints(checkpoint, [] if cfg.compare is None else cfg.compare),
        sampling=make_sampling(cfg),
        out=out,
        max_seconds=cfg.max_seconds,
        fixed={"engine": cfg.engine, "weights": cfg.weights},
    )


def other_checkpoints(checkpoint: Path, named: list[str] | str) -> dict[str, Path]:
    """By name: those that `compare` names, then those of the runs below runs/, without the one.

    Raises:
        FileNotFoundError: there is none in a folder that is named.
    """
    paths = [named] if isinstance(named, str) else named
    found = {str(path): find_checkpoint(path) for path in paths}
    for folder in sorted(runs_below(RUNS), reverse=True):
        run = RunFolder.as_typed(folder)
        if run.last_checkpoint.is_file() and not run.trains_a_codec():
            found.setdefault(str(run.path), run.chosen_checkpoint())
    return {name: path for name, path in found.items() if path.resolve() != checkpoint.resolve()}


def make_app(cfg: DictConfig, workshop: Workshop) -> App:
    """The page, with the config's values at first."""
    from audiolm.app.page import App  # not before it is known that Gradio is there

    first = {name: cfg[name] for name in ("num_samples", "duration", "seed")}
    return App(workshop, first, lambda error: user_line(error, "app"))
