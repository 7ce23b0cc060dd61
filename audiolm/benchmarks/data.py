"""Section `data`: windows of codes served in a second on one core, beside what training takes.

Full windows are crops from a store of recordings that are longer; short clips are served whole,
in batches of like lengths. Beside this package's loader stand loaders of the same codes as one
would write them oneself, and those of other packages where they are installed (`peers`).

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from audiolm.benchmarks.limits import BF16, FP32, READ, SECONDS, limits, times_that_take
from audiolm.benchmarks.peers import PEERS, Batches, Clips, memmap_dataset
from audiolm.benchmarks.random_store import random_clips
from audiolm.benchmarks.report import Section
from audiolm.benchmarks.rounds import Candidate, interleave
from audiolm.benchmarks.trainee import full_batch, trainee_of
from audiolm.codec import EncodecCodec
from audiolm.tokens.store import TokenStore
from audiolm.training import LanguageModelTraining, TokenData, best_precision, make_optimizer

UNIT = "windows/s"
STEP = "training step"
BAR = 20
"""Times the windows that a training step takes, which the loader should serve at least."""


@dataclass(frozen=True)
class DataSettings:
    """context: seconds of a full window. batch_size: full windows of a batch. clips: how many a
    store holds. long, short: from how many to how many seconds those of each store last."""

    context: float = 6.4
    batch_size: int = 16
    clips: int = 2000
    long: tuple[float, float] = (6.4, 32.0)
    short: tuple[float, float] = (0.2, 2.0)
    model: Mapping[str, Any] = field(default_factory=dict)
    pattern: str = "delay"
    optim: Mapping[str, Any] = field(default_factory=dict)


def data_section(
    settings: DataSettings, codec: EncodecCodec, rounds: int, show_progress: bool = True
) -> Section:
    """Serve random codes of the codec's shape, and train on them a little."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with TemporaryDirectory(prefix="audiolm-benchmark-") as folder:
            return _section(settings, codec, Path(folder), rounds, show_progress)
    finally:
        torch.set_num_threads(threads)


def _section(
    settings: DataSettings, codec: EncodecCodec, folder: Path, rounds: int, show_progress: bool
) -> Section:
    context = max(1, round(settings.context * codec.frame_rate))
    long, short = (
        random_clips(
            folder / name,
            settings.clips,
            [max(1, round(bound * codec.frame_rate)) for bound in seconds],
            codec.identity(),
        )
        for name, seconds in (("long", settings.long), ("short", settings.short))
    )
    facts: dict[str, Any] = {
        "window": f"{context} frames of {codec.num_codebooks} codes, {settings.batch_size} a batch",
        "codes": f"{settings.clips:,} clips of {_seconds(settings.long)}, and as many of "
        f"{_seconds(settings.short)}, random",
    }
    step = _training_step(settings, codec, long, context)
    candidates = [*limits(), step]

    plain = "full windows: one memory-mapped array"
    full = _loader(settings, long, context)
    loaders: dict[str, Batches] = {
        plain: memmap_dataset(long, context, settings.batch_size, folder),
        "full windows: this package": full,
    }
    for name, peer in PEERS.items():
        try:
            made = peer(long, context, settings.batch_size, folder)
            next(made)
        except ImportError as error:
            facts[name] = f"not measured: {error}"
            continue
        except Exception as error:  # of a package that is not ours: it must not end the whole run
            facts[name] = f"not measured, it failed: {' '.join(str(error).split())[:200]}"
            continue
        loaders[f"full windows: {name}"] = made
    plain_short = "short clips: one memory-mapped array, padded"
    loaders[plain_short] = memmap_dataset(short, context, settings.batch_size, folder)
    loaders["short clips: this package, like lengths"] = _loader(settings, short, context)

    for name, batches in loaders.items():
        against = plain_short if name.startswith("short") else plain
        clips = short if name.startswith("short") else long
        window = float(np.minimum(clips.frames, context).mean()) * clips.rows[0].nbytes
        against_whom = None if name == against else against
        candidates.append(_served(name, batches, against_whom, window / 1e9))
    found = interleave(candidates, rounds, "data", show_progress)
    rates = {measurement.name: measurement.rate for measurement in found}
    ours = rates["full windows: this package"].median
    facts["loader / training step"] = (
        f"{ours / rates[step.name].median:,.0f} times the windows (at least {BAR} are wanted)"
    )
    for name in (plain_short, "short clips: this package, like lengths"):
        facts[f"padding, {name}"] = f"{_padding(loaders[name]):.1%} of the positions"
    return Section("data", found, facts)


def _served(name: str, batches: Batches, against: str | None, cost: float) -> Candidate:
    """Take windows from an endless iterator of batches. cost: GB of codes a window."""

    def take(windows: int) -> None:
        while windows > 0:
            windows -= len(next(batches)[0])

    windows = 100 * times_that_take(lambda times: take(100 * times), SECONDS)
    return Candidate(name, lambda: take(windows), windows, UNIT, against, READ, cost)


def _padding(batches: Batches, count: int = 200) -> float:
    positions = frames = 0
    for _ in range(count):
        codes, lengths = next(batches)
        positions += codes.shape[0] * codes.shape[2]
        frames += int(lengths.sum())
    return 1 - frames / positions


def _loader(settings: DataSettings, clips: Clips, context: int) -> Batches:
    """Batches as training is given them, without end and without other processes."""
    data = TokenData(
        TokenStore(clips.folder),
        context_frames=context,
        batch_size=settings.batch_size,
        valid_fraction=0.0,
        pattern=settings.pattern,
    )
    # What the loader asks of a trainer.
    data.trainer = SimpleNamespace(  # type: ignore[assignment]
        accumulate_grad_batches=1,
        overfit_batches=0,
        global_rank=0,
        global_step=0,
        max_steps=sys.maxsize,
        world_size=1,
    )
    for batch in data.train_dataloader():
        yield batch["codes"], batch["lengths"]


def _training_step(
    settings: DataSettings, codec: EncodecCodec, clips: Clips, context: int
) -> Candidate:
    """A step of the model on full windows, in the precision that `train` takes on a CPU."""
    limit = BF16 if best_precision("cpu") == "bf16-mixed" else FP32
    torch.manual_seed(0)
    module = LanguageModelTraining(
        model=dict(settings.model),
        pattern=settings.pattern,
        codec=codec.identity(),
        context_frames=context,
        optim=dict(settings.optim),
    )
    optimizer, _ = make_optimizer(module.model, 1000, **settings.optim)
    codes, lengths = next(_loader(settings, clips, context))
    trainee = trainee_of(STEP, module, full_batch(codes, lengths), optimizer)
    bf16 = limit == BF16

    def steps(count: int) -> None:
        trainee.steps(count, bf16)

    with FlopCounterMode(display=False) as counter:
        steps(1)
    gflop = counter.get_total_flops() / len(codes) / 1e9
    name = f"{STEP}, {'bf16' if bf16 else 'fp32'}"
    times = times_that_take(steps, SECONDS)
    return Candidate(name, lambda: steps(times), times * len(codes), UNIT, None, limit, gflop)


def _seconds(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:g} to {bounds[1]:g} s"
