"""The folder of a new run: one of its own, and none that a refused start leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from audiolm.run_folder import claim_folder, is_helper_process, missing_folders, remove_empty


class NewRunFolder(Callback):
    """Hydra's callback that makes the folder of a run, or of a sweep of runs, before Hydra does.

    Hydra takes a folder that is there as it is: two starts in one second would share one.
    """

    made: ClassVar[list[Path]] = []
    """Folders that this start of the script has made, the innermost first."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        if not is_helper_process():
            _claim(config, "run")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        _claim(config, "sweep")


def _claim(config: DictConfig, kind: str) -> None:
    """Make the folder that `hydra.KIND.dir` says; a name of this moment is taken once."""
    HydraConfig.instance().set_config(config)  # the folder's name may follow from a choice of it
    wanted = Path(config.hydra[kind].dir)
    given = any(o.startswith(f"hydra.{kind}.dir=") for o in config.hydra.overrides.hydra)
    NewRunFolder.made[:] = missing_folders(wanted)
    if given or (config.get("ckpt_path") == "last" and wanted.exists()):
        return
    claimed = claim_folder(wanted)
    NewRunFolder.made[:1] = [claimed]
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra[kind].dir = str(claimed)
        # The jobs of a sweep compose their configs anew, from these.
        config.hydra.overrides.hydra.append(f"hydra.{kind}.dir='{claimed}'")


def remove_what_was_made() -> None:
    """After a start that was refused: its folders, as far as nothing has come into them."""
    remove_empty(NewRunFolder.made)
    NewRunFolder.made.clear()
