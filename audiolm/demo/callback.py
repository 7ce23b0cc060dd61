"""What a run on the demo set has learnt, printed at its end."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import lightning.pytorch as pl

from audiolm.audio import find_audio_files
from audiolm.codec import EncodecCodec
from audiolm.demo.melodies import BITS_A_PIECE, PIECE_DURATION
from audiolm.demo.report import comparison, score_recordings, score_samples
from audiolm.files import replacing
from audiolm.generation import Sampling
from audiolm.model.checkpoint import load_checkpoint
from audiolm.run_folder import RunFolder

DEMO_SAMPLES = 20
CEILING_PIECES = 40


class DemoCallback(pl.Callback):
    """Scores a run on the demo set once it is over (see `score_demo`).

    Args:
        codec: the run's.
        run_dir: the folder of the run.
        recordings: the folder of the set.
        sampling: of the samples.
        seed: of the first sample.
    """

    def __init__(
        self,
        codec: EncodecCodec,
        run_dir: Path,
        recordings: Path | str,
        sampling: Sampling,
        seed: int = 0,
    ) -> None:
        self.codec, self.run_dir, self.recordings = codec, run_dir, recordings
        self.sampling, self.seed = sampling, seed
        self._clock = [time.perf_counter()]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._clock = [self._clock[0], time.perf_counter()]

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._clock.append(time.perf_counter())

    def report(self) -> None:
        """Say how the best checkpoint does; to be called after the training."""
        score_demo(self.run_dir, self.codec, self.recordings, self.sampling, self.seed, self._clock)


def score_demo(
    run_dir: Path,
    codec: EncodecCodec,
    recordings: Path | str,
    sampling: Sampling,
    seed: int,
    clock: list[float],
) -> None:
    """Score how well samples of the best model keep to the grammar of the demo set.

    Printed, and written to scores.json beside the validation loss and the seconds of each stage.

    Args:
        run_dir: the folder of the run.
        codec: the run's.
        recordings: the folder of the set.
        sampling: of the samples.
        seed: of the first sample; the next has the next.
        clock: at the start, and after encoding and training.
    """
    run = RunFolder(run_dir)
    print(f"scoring   {DEMO_SAMPLES} samples of the best checkpoint", flush=True)
    trained = load_checkpoint(run.chosen_checkpoint())
    seeds = [seed + i for i in range(DEMO_SAMPLES)]
    trained.model.to(codec.device)
    samples = score_samples(trained, codec, seeds, sampling, run.pieces)
    ceiling = score_recordings(find_audio_files(recordings)[:CEILING_PIECES], codec)
    clock = [*clock, time.perf_counter()]
    seconds = dict(
        zip(
            ("set and codes", "training", "samples and scores"),
            (after - before for before, after in pairwise(clock)),
            strict=True,
        )
    )
    metrics = {
        "validation": run.best_validation(),
        "set_bits_per_second": BITS_A_PIECE / PIECE_DURATION,
        "samples": samples.metrics(),
        "ceiling": ceiling.metrics(),
        "seconds": seconds,
    }
    with replacing(run.scores) as temporary:
        temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    print(comparison(samples, ceiling, DEMO_SAMPLES))
    print(f"pieces    {run.pieces}")
    print(f"scores    {run.scores}")
    print(f"took      {', '.join(f'{name} {s:.0f} s' for name, s in seconds.items())}")
