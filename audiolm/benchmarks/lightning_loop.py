"""What Lightning, logging and data add to a training step.

One trainer as `scripts/train.py` sets it up trains on a store of random codes. After every few
steps it stands still, and the same model takes as many bare steps, on one batch in one loop. So
both train the same weights with the same optimiser, in turns.

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
from tqdm import tqdm

from audiolm.benchmarks.disturbance import Sample, Stopwatch
from audiolm.benchmarks.random_store import random_clips
from audiolm.benchmarks.rounds import Candidate, Measurement, measurements
from audiolm.benchmarks.sizes import PATTERN, ModelSize
from audiolm.benchmarks.trainee import UNIT, Trainee, our_module, trainee_of
from audiolm.tokens.store import TokenStore
from audiolm.training import (
    LanguageModelTraining,
    MetricsCSV,
    StepProgressBar,
    TokenData,
)

LOOP, BARE = "Lightning, logging and data", "the bare step"
CLIPS = 200


def lightning_loop(
    size: ModelSize,
    batch_size: int,
    model: Mapping[str, Any],
    optim: Mapping[str, Any],
    trainer: Mapping[str, Any],
    steps: int,
    rounds: int,
    show_progress: bool = True,
) -> list[Measurement]:
    """Measurements of `LOOP`, compared with the bare step, and of `BARE`.

    model: arguments of `AudioLM` beside those of the size. trainer: arguments of Lightning's
    `Trainer`, but that every `steps` steps are logged. steps: of a sample.
    """
    with TemporaryDirectory(prefix="audiolm-benchmark-") as temporary:
        folder = Path(temporary)
        frames = (size.frames, 4 * size.frames)
        clips = random_clips(folder / "store", CLIPS, frames, size.codec)
        module = our_module(size, model, optim)
        data = TokenData(
            TokenStore(clips.folder), size.frames, batch_size, valid_fraction=0.0, pattern=PATTERN
        )
        total = (rounds + 1) * 2
        with tqdm(total=total, desc="Lightning", unit="sample", disable=not show_progress) as bar:
            turns = _Turns(steps, bar.update)
            settings = {
                **trainer,
                "max_steps": (rounds + 1) * steps + 1,
                "log_every_n_steps": steps,
                "default_root_dir": folder,
                "enable_checkpointing": False,  # which are seldom
                "callbacks": [StepProgressBar(), turns],
                "logger": [MetricsCSV(folder)],
            }
            _fit(settings, module, data)
        codes = steps * batch_size * size.num_codebooks * size.frames
        # The first round has warmed up.
        samples = {name: taken[1:] for name, taken in turns.samples.items()}
        candidates = [
            Candidate(LOOP, None, codes, UNIT, against=BARE),
            Candidate(BARE, None, codes, UNIT),
        ]
        return measurements(candidates, samples)


def _fit(settings: Mapping[str, Any], module: pl.LightningModule, data: TokenData) -> None:
    """Train, with what the trainer prints kept from the terminal."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            pl.Trainer(**settings).fit(module, data)
    except SystemExit:
        # Lightning's own answer to Ctrl-C.
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, on_interrupt)


class _Turns(pl.Callback):
    """Times `steps` steps of the trainer, then `steps` bare ones, and so on."""

    def __init__(self, steps: int, sampled: Callable[[], object]) -> None:
        self.steps, self.sampled = steps, sampled
        self.samples: dict[str, list[Sample]] = {LOOP: [], BARE: []}
        self._bare: Trainee | None = None
        self._watch, self._running = Stopwatch(), ExitStack()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        # The first step is in no sample.
        if (trainer.global_step - 1) % self.steps:
            return
        if self._bare is None:
            assert isinstance(pl_module, LanguageModelTraining)
            self._bare = trainee_of(BARE, pl_module, batch, trainer.optimizers[0])
        else:
            self._running.close()
            with Stopwatch() as watch:
                self._bare.steps(self.steps, bf16=trainer.precision == "bf16-mixed")
            for name, sample in ((LOOP, self._watch.sample), (BARE, watch.sample)):
                self.samples[name].append(sample)
                self.sampled()
        self._watch = self._running.enter_context(Stopwatch())
