"""What a run was started with, in its folder: .hydra/config.yaml and overrides.yaml.

Hydra would write it before the start is known to be a good one, over that of the run that is there.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from audiolm.cli.compose import choices
from audiolm.cli.resume import recorded_overrides
from audiolm.files import replacing
from audiolm.model.checkpoint import read_checkpoint
from audiolm.run_folder import RunFolder, is_helper_process

# Of the start and of the machine, not of what is trained.
_NOT_COMPARED = ("ckpt_path", "run_dir", "name")


class RunRecord:
    """The config of a run as it was composed, before anything of it is decided or filled in.

    Args:
        cfg: which the script may change afterwards.
    """

    def __init__(self, cfg: DictConfig) -> None:
        self._cfg = copy.deepcopy(cfg)
        hydra = HydraConfig.get()
        self._overrides = list(hydra.overrides.task)
        self._choices = {str(group): choice for group, choice in hydra.runtime.choices.items()}
        self._config_name = str(hydra.job.config_name)

    def changes(self, resume_from: Path | None) -> list[str]:
        """What differs from the settings that a checkpoint's run was last trained with, in lines.

        Empty for a new run, and where nothing says what these were. Of a group with another choice,
        such as data=store, what only one of the two choices has is not a change of its own.
        """
        if resume_from is None:
            return []
        run = RunFolder.of(resume_from)
        file = run.record / "config.yaml"
        if not file.is_file():
            return []
        try:
            then = _flat(OmegaConf.load(file))
        except Exception:  # what a YAML parser raises for a damaged file depends on its bytes
            return [f"  changed     unknown: {file} is not a config"]
        now = _flat(self._cfg)
        others = self._other_choices(run)
        of_one_choice = {key for key in now.keys() ^ then.keys() if key.partition(".")[0] in others}
        values = {
            key: (_shown(now, key), _shown(then, key))
            for key in (now.keys() | then.keys()) - of_one_choice
            if then.get(key, _ABSENT) != now.get(key, _ABSENT)
        }
        return [
            f"  changed     {key}={value} (the run had {before})"
            for key, (value, before) in sorted((others | values).items())
        ]

    def _other_choices(self, run: RunFolder) -> dict[str, tuple[str, str]]:
        """The groups of settings of which the run had another choice: that of now, and that."""
        try:
            then = choices(self._config_name, recorded_overrides(run))
        except (ValueError, HydraException, OmegaConfBaseException):
            return {}  # damaged, or of a version whose settings had other names
        return {
            group: (str(choice), str(then[group]))
            for group, choice in self._choices.items()
            if group in self._cfg and then.get(group, choice) != choice
        }

    def write(self, run: RunFolder, resume_from: Path | None) -> None:
        """Put it in the run's folder; one of before that says something else stays beside it."""
        if is_helper_process():
            return
        texts = {
            "config.yaml": OmegaConf.to_yaml(self._cfg),
            "overrides.yaml": OmegaConf.to_yaml(OmegaConf.create(self._overrides)),
        }
        config = run.record / "config.yaml"
        if resume_from is not None and config.is_file() and self.changes(run.last_checkpoint):
            step = read_checkpoint(resume_from)["global_step"]
            for name in texts:
                _keep(run.record / name, step)
        for name, text in texts.items():
            with replacing(run.record / name) as temporary:
                temporary.write_text(text, encoding="utf-8")


_ABSENT = object()


def _keep(file: Path, step: int) -> None:
    """Keep a file of the settings until this step under a name that says so."""
    if file.is_file():
        kept = file.with_name(f"{file.stem}_until_step_{step:08d}{file.suffix}")
        with replacing(kept) as temporary:
            temporary.write_bytes(file.read_bytes())


def _flat(cfg: Any, prefix: str = "") -> dict[str, Any]:
    """Values by full key, of what is compared."""
    values: dict[str, Any] = {}
    plain: Any = OmegaConf.to_container(cfg, resolve=False) if OmegaConf.is_config(cfg) else cfg
    for key, value in plain.items():
        if not prefix and key in _NOT_COMPARED:
            continue
        if isinstance(value, dict):
            values |= _flat(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values


def _shown(values: dict[str, Any], key: str) -> str:
    if key not in values:
        return "nothing"
    value = values[key]
    return "null" if value is None else str(value)
