"""W&B that asks nothing and cannot end a training.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from audiolm.run_folder import RunFolder

_MODES = ("auto", "online", "offline", "disabled")


def make_wandb_logger(
    run_dir: str | Path,
    project: str = "audiolm",
    name: str | None = None,
    mode: str = "auto",
    config: dict[str, Any] | None = None,
    init_timeout: float = 20.0,
    finish_timeout: float = 60.0,
    **init: Any,
) -> Logger | None:
    """Start the W&B run of a run folder, or resume it; its files go to `run_dir`/wandb.

    Prints one line: the run's address, or how to upload it later, or why there is none.

    Args:
        run_dir: the run's folder. It keeps the run's id, so that a resumed run is the same one.
        project: W&B project.
        name: shown name of the run; None lets W&B make one up.
        mode: "auto" is what WANDB_MODE says, else "online". "online" turns to "offline" where
            nobody is logged in or the server does not answer. "disabled" gives None.
        config: settings to show with the run.
        init_timeout: seconds to wait for the server at the start.
        finish_timeout: seconds to wait at the end for uploads; W&B's default is for ever, which is
            what a lost network takes. What is missing then can be uploaded with `wandb sync`.
        init: more arguments of `wandb.init`, such as entity, group, tags or notes.

    Returns:
        None if disabled, if W&B does not work at all, and on all ranks but the first.

    Raises:
        ValueError: for an unknown mode.
    """
    if mode not in _MODES:
        raise ValueError(f"logger.mode={mode!r} must be one of {', '.join(_MODES)}")
    if mode == "auto":
        mode = os.environ.get("WANDB_MODE") or "online"
    if mode == "disabled" or getattr(rank_zero_only, "rank", 0) != 0:
        return None
    folder = RunFolder(Path(run_dir).absolute()).wandb
    upload = f"upload later with: wandb sync {shlex.quote(str(folder))}/offline-run-*"
    try:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        # Silent means that no question is asked either. For wandb as a whole, as the log-in comes
        # before the run has settings of its own.
        wandb.setup(wandb.Settings(silent=True))
        # W&B's own telemetry tells of a rejected key in lines of its own, at the end of the run.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        arguments: dict[str, Any] = {
            **init,
            "project": project,
            "name": name,
            "config": config,
            "dir": str(folder.parent),
            "id": _run_id(folder),
            "resume": "allow",
            "settings": wandb.Settings(
                silent=True,
                console="off",  # capturing it would take the progress bar apart
                init_timeout=init_timeout,
                finish_timeout=finish_timeout,
            ),
        }
        run = _start_run(mode, upload, arguments)
        return TolerantWandbLogger(experiment=run, save_dir=str(folder.parent), project=project)
    except Exception as error:
        print(f"W&B is off ({_first_line(error)}); metrics.csv has all numbers", flush=True)
        return None


def _start_run(mode: str, upload: str, arguments: dict[str, Any]) -> Any:
    """W&B's run, offline where it cannot be online; `upload` says what to do about that."""
    import wandb

    if mode in ("offline", "dryrun"):
        run = wandb.init(mode="offline", **arguments)
        print(f"W&B is offline; {upload}", flush=True)
        return run
    try:
        run = wandb.init(mode="online", **arguments)
        print(f"W&B: {run.url}", flush=True)
    except Exception as error:
        # The start that failed still holds the run's id, in a process of W&B's own.
        wandb.teardown()
        wandb.setup(wandb.Settings(silent=True))
        run = wandb.init(mode="offline", **arguments)
        print(f"W&B is offline ({_first_line(error)}); {upload}", flush=True)
    return run


class TolerantWandbLogger(WandbLogger):
    """Lightning's logger, but an error of W&B gives one line, once, and the training continues."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._has_failed = False
        # As Lightning does for a run that it starts: the x axis is the step of the training, which
        # a resumed run continues, and not W&B's count of calls.
        self.experiment.define_metric("trainer/global_step")
        self.experiment.define_metric("*", step_metric="trainer/global_step", step_sync=True)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        with self._tolerance():
            super().log_metrics(metrics, step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        with self._tolerance():
            super().log_hyperparams(params)

    def finalize(self, status: str) -> None:
        """End the run with the training: another one in this process would be taken for it."""
        with self._tolerance():
            super().finalize(status)
            self.experiment.finish()

    def log_clips(
        self,
        name: str,
        waveforms: Sequence[Tensor],
        sample_rate: int,
        captions: Sequence[str],
        pictures: Sequence[str | Path],
        step: int,
    ) -> None:
        """See `log_audio`."""
        with self._tolerance():
            import wandb

            clips = [
                wandb.Audio(waveform.detach().cpu().float().numpy().T, sample_rate, caption)
                for waveform, caption in zip(waveforms, captions, strict=True)
            ]
            images = [
                wandb.Image(str(picture), caption=caption)
                for picture, caption in zip(pictures, captions, strict=True)
            ]
            self.log_metrics({name: clips, f"{name}_spectrogram": images}, step)

    @contextmanager
    def _tolerance(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                print(
                    f"W&B failed ({_first_line(error)}); training continues, "
                    f"metrics.csv has all numbers",
                    flush=True,
                )


def log_audio(
    loggers: Iterable[Logger],
    name: str,
    waveforms: Sequence[Tensor],
    sample_rate: int,
    captions: Sequence[str],
    pictures: Sequence[str | Path],
    step: int,
) -> None:
    """Log clips that can be played, with their pictures, to W&B where it is among the loggers.

    Args:
        loggers: `trainer.loggers`.
        name: of the panel; the pictures go to NAME_spectrogram.
        waveforms: one (C, N) a clip, in [-1, 1].
        sample_rate: Hz.
        captions: one a clip.
        pictures: one image file a clip.
        step: of the training.
    """
    for logger in loggers:
        if isinstance(logger, TolerantWandbLogger):
            logger.log_clips(name, waveforms, sample_rate, captions, pictures, step)


def _run_id(folder: Path) -> str:
    file = folder / "run_id.txt"
    if not file.exists():
        partial = file.with_name(".run_id.txt.partial")
        partial.write_text(secrets.token_hex(4), encoding="utf-8")
        os.replace(partial, file)
    return file.read_text(encoding="utf-8").strip()


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return line if len(line) <= 120 else line[:117] + "..."
