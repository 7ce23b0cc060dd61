"""`init_from`: the model that a run begins with, and what of its settings the run takes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from audiolm.cli.compose import changed_settings
from audiolm.cli.overrides import given_settings
from audiolm.run_folder import find_checkpoint
from audiolm.training.lm.initial_weights import FREE, InitialModel, read_initial_model


def initial_model(cfg: DictConfig, resume_from: Path | None) -> InitialModel | None:
    """The model to begin with, whose settings the config takes over; None without `init_from`.

    Of a run that is resumed it is the run's own checkpoint, which has these settings, and the model
    that it once began with need not be there any more.

    Raises:
        FileNotFoundError, ValueError: as `find_checkpoint` and `read_initial_model`; also for a
            setting on the command line that the weights do not allow.
    """
    if cfg.init_from is None:
        return None
    named = str(cfg.init_from)
    path = find_checkpoint(named) if resume_from is None else resume_from
    initial = read_initial_model(path, named)
    _take_model(cfg, initial)
    _take_layout(cfg, initial)
    return initial


def has_own_codec(cfg: DictConfig) -> bool:
    """Whether the command line says which codec."""
    return any(key == "codec" or key.startswith("codec.") for key in given_settings())


def _take_model(cfg: DictConfig, initial: InitialModel) -> None:
    """Shape and parts of the model are those of the weights."""
    given = set(given_settings())
    for key, value in initial.fixed_settings.items():
        said = f"model.{key}" in given or ("model" in given and key in cfg.model)
        if said and cfg.model.get(key) != value:
            raise ValueError(
                f"model.{key}={cfg.model.get(key)}: init_from={initial.named} has "
                f"{key}={value}, which its weights are of; omit it"
            )
    with open_dict(cfg):
        for key in [k for k in cfg.model if k not in FREE and k not in initial.fixed_settings]:
            del cfg.model[key]  # it has its default
        cfg.model.update(initial.fixed_settings)


def _take_layout(cfg: DictConfig, initial: InitialModel) -> None:
    """Pattern, context and end token are the model's, unless the run chooses others."""
    given = set(given_settings())
    chosen = given | set(changed_settings(cfg, "train"))
    settings: dict[str, Any] = initial.settings
    if not chosen & {"pattern", "pattern.name", "pattern.delays"}:
        pattern = settings["pattern"]
        named = isinstance(pattern, str)
        with open_dict(cfg):
            cfg.pattern.name = pattern if named else "delay"
            cfg.pattern.delays = None if named else pattern
    if "context" not in chosen:
        cfg.context = settings["context_frames"] / settings["codec"]["frame_rate"]
    if "model.end_token" not in chosen:
        cfg.model.end_token = settings["model"].get("end_token", False)
    own = initial.vocabulary
    if own is not None and own.text is not None and own.text == cfg.conditioning.text:
        if "conditioning.text_layers" in given and cfg.conditioning.text_layers != own.text_layers:
            raise ValueError(
                f"conditioning.text_layers={cfg.conditioning.text_layers}: "
                f"init_from={initial.named} has {own.text_layers}; omit it"
            )
        cfg.conditioning.text_layers = own.text_layers
