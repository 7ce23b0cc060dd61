"""What an export's config says, completed by what the run of the checkpoint knows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from audiolm.cli.build import make_sampling
from audiolm.cli.overrides import given_settings
from audiolm.export.settings import Export
from audiolm.files import check_writable, user_path
from audiolm.generation import Sampling
from audiolm.model.folder import read_config
from audiolm.run_folder import RunFolder, is_of_model_folder


def export_folder(cfg: DictConfig, checkpoint: Path) -> Path:
    """The folder to write, once it is known that it can be.

    Raises:
        ValueError: none is named, and the checkpoint is of no run that it could go to.
        OSError: it is there already, or may not be written to.
    """
    if cfg.out is None and is_of_model_folder(checkpoint):
        raise ValueError(
            f"{checkpoint.parent} is exported already; pass out=DIR to write it again with other "
            f"settings, or push=OWNER/NAME"
        )
    run = RunFolder.of(checkpoint)
    folder = run.exported if cfg.out is None else user_path(cfg.out)
    check_writable(folder, "out", folder=True, given=cfg.out is not None)
    return folder


def is_export_to_push(cfg: DictConfig, checkpoint: Path) -> bool:
    """Whether an exported folder is named that is to be pushed as it is."""
    return cfg.push is not None and cfg.out is None and is_of_model_folder(checkpoint)


def make_export(cfg: DictConfig, checkpoint: Path) -> Export:
    """The settings of the export; sampling, duration and conditions as the run says.

    Raises:
        ValueError: for settings out of range, or a damaged record of the run.
    """
    conditions, duration = _example(RunFolder.of(checkpoint))
    given = given_settings()
    return Export(
        dtype=cfg.dtype,
        sampling=_sampling(cfg, given, checkpoint),
        num_samples=cfg.num_samples,
        duration=cfg.duration if "duration" in given or duration is None else duration,
        seed=cfg.seed,
        conditions=conditions,
        license=None if cfg.license is None else str(cfg.license),
        title=None if cfg.title is None else str(cfg.title),
        repository=cfg.push,
        codec_repository=cfg.codec_repository,
    )


def _sampling(cfg: DictConfig, given: list[str], checkpoint: Path) -> Sampling:
    """What the command gives, and else what the run was listened to with."""
    own = _recorded_sampling(checkpoint)
    chosen = dataclasses.asdict(make_sampling(cfg))
    taken = {n: v for n, v in own.items() if n in chosen and f"sampling.{n}" not in given}
    return Sampling(**{**chosen, **taken})


def _recorded_sampling(checkpoint: Path) -> dict[str, Any]:
    if is_of_model_folder(checkpoint):
        return read_config(checkpoint.parent)["sampling"] or {}
    file = RunFolder.of(checkpoint).record / "config.yaml"
    if not file.is_file():
        return {}
    try:
        found: Any = OmegaConf.to_container(OmegaConf.load(file))
    except Exception as error:  # what a YAML parser raises for a damaged file depends on its bytes
        raise ValueError(f"{file} is not a config; put it in order, or move it away") from error
    sampling = found.get("sampling") if isinstance(found, dict) else None
    return sampling if isinstance(sampling, dict) else {}


def _example(run: RunFolder) -> tuple[dict[str, str], float | None]:
    """Conditions of a sample and its duration, as the run's own command to generate has them."""
    try:
        arguments = json.loads(run.plan.read_text(encoding="utf-8"))["generate"]
        pairs = dict(str(argument).split("=", 1) for argument in arguments)
        duration = float(pairs["duration"]) if "duration" in pairs else None
    except (OSError, ValueError, LookupError, TypeError):
        return {}, None  # not there, or not as training writes it
    named = {k.removeprefix("conditioning."): v for k, v in pairs.items() if "conditioning." in k}
    return named, duration
