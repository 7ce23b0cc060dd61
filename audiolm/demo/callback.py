"""What a run on the demo set has learnt, printed at its end."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

from audiolm.audio import find_audio_files
from audiolm.codec import EncodecCodec
from audiolm.demo.melodies import BITS_A_PIECE, PIECE_DURATION
from audiolm.demo.report import comparison, score_recordings, score_samples
from audiolm.files import replacing
from audiolm.generation import Sampling
from audiolm.model.checkpoint import load_checkpoint
from audiolm.run_folder import (
    best_checkpoint,
    best_validation,
)

DEMO_SAMPLES = 20
CEILING_PIECES = 40


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
    trained = load_checkpoint(best_checkpoint(run_dir))
    seeds = [seed + i for i in range(DEMO_SAMPLES)]
    trained.model.to(codec.device)
    samples = score_samples(trained, codec, seeds, sampling, run_dir / "pieces")
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
        "validation": best_validation(run_dir),
        "set_bits_per_second": BITS_A_PIECE / PIECE_DURATION,
        "samples": samples.metrics(),
        "ceiling": ceiling.metrics(),
        "seconds": seconds,
    }
    with replacing(run_dir / "scores.json") as temporary:
        temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    print(comparison(samples, ceiling, DEMO_SAMPLES))
    print(f"pieces    {run_dir / 'pieces'}")
    print(f"scores    {run_dir / 'scores.json'}")
    print(f"took      {', '.join(f'{name} {s:.0f} s' for name, s in seconds.items())}")
