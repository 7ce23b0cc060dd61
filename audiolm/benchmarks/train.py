"""Section `train`: steps of training, beside peers of the same size on the same codes.

A step is forward, loss, backward, clipping and AdamW, on one batch that stays the same; what it
takes to serve batches is in `data`, what Lightning adds is measured apart (`lightning_loop`).
bf16 means what it means in `scripts/train.py`: autocast, the weights in fp32.

Letters: B batch, K codebooks, T codec frames, S sequence steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo.config as dynamo
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from audiolm.benchmarks.lightning_loop import BARE, LOOP, lightning_loop
from audiolm.benchmarks.limits import OWN_BF16, OWN_FP32, limits, products_of
from audiolm.benchmarks.musicgen import musicgen, musicgen_loss
from audiolm.benchmarks.plain_gpt import plain_gpt
from audiolm.benchmarks.report import Section, as_times
from audiolm.benchmarks.rounds import Candidate, Measurement, interleave, ratio
from audiolm.benchmarks.sizes import (
    MUSICGEN,
    OURS,
    PATTERN,
    PEERS,
    PLAIN,
    ModelSize,
    attention_gflop,
    check_peers,
    check_same_work,
    check_size,
    matrices,
    matrix_parameters,
    products_gflop,
)
from audiolm.benchmarks.trainee import UNIT, Trainee, our_trainee, random_codes
from audiolm.limits import COUNT, COUNT_OR_NONE
from audiolm.model.language_model import count_parameters, shift_right
from audiolm.model.patterns import interleave as lay_out
from audiolm.model.patterns import make_pattern
from audiolm.training import best_precision, make_optimizer

COMPILED = ", compiled"
"""Of the name of a candidate whose model is compiled."""
RECOMPILE = 64
"""Graphs of a function. The two kinds of MusicGen and of numbers share theirs; with torch's own 8
the second kind ran as it was, without a word."""


@dataclass(frozen=True)
class TrainSettings:
    """batch_size: windows of a step. peers: which of `PEERS` to measure. kernel: of attention, as
    `train` takes it. kernels: others to measure beside it. compile: measure the compiled model
    too, and the compiled peers. lightning_steps: of a sample in Lightning's loop; 0 leaves that
    out. optim, trainer: settings of `train`. Raises ValueError for what is out of range."""

    batch_size: int = 4
    peers: Sequence[str] = PEERS
    kernel: str = "auto"
    kernels: Sequence[str] = ()
    compile: bool = False
    lightning_steps: int = 3
    optim: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_peers("train", self.peers)
        COUNT.check("train.batch_size", self.batch_size)
        COUNT_OR_NONE.check("train.lightning_steps", self.lightning_steps)


def train_section(
    settings: TrainSettings, size: ModelSize, rounds: int, show_progress: bool = True
) -> Section:
    """Time training steps of this package and of its peers.

    Raises ValueError for an unknown kernel or a size that cannot be compared; RuntimeError where a
    peer has another amount of work all the same.
    """
    check_size(size, settings.peers)
    facts: dict[str, Any] = {}
    trainees = list(make_trainees(settings, size, facts))
    codes = settings.batch_size * size.num_codebooks * size.frames
    rows = settings.batch_size * size.num_steps
    ours = trainees[0].model
    gflop = 3 * (products_gflop(ours, rows) + attention_gflop(size, settings.batch_size))
    facts["step"] = (
        f"{settings.batch_size} windows of {size.frames} frames of {size.num_codebooks} codes, "
        f"{codes:,} codes in {rows:,} steps of the sequence, {gflop:,.4g} GFLOP"
    )
    for trainee in trainees:
        check_same_work(trainee.name, trainee.model, ours)
        facts[trainee.name] = _work(trainee, 3 * products_gflop(trainee.model, rows))

    candidates = limits()
    # Where bf16 is emulated it is of no use to anybody.
    for bf16 in (False, True) if best_precision("cpu") == "bf16-mixed" else (False,):
        limit = OWN_BF16 if bf16 else OWN_FP32
        candidates.append(products_of(limit, matrices(ours), rows))
        for trainee in trainees:
            name = _name(trainee.name, bf16)
            against = None if trainee.name == OURS else _name(OURS, bf16)
            run, times = trainee.timed(bf16)
            candidates.append(
                Candidate(name, run, times * codes, UNIT, against, limit, gflop / codes)
            )
    found = interleave(candidates, rounds, "train", show_progress)
    facts |= _ratios(found)
    if settings.lightning_steps:
        found += _lightning(settings, size, rounds, facts, show_progress)
    return Section("train", found, facts)


def _lightning(
    settings: TrainSettings,
    size: ModelSize,
    rounds: int,
    facts: dict[str, Any],
    show_progress: bool,
) -> list[Measurement]:
    trainer = {**settings.trainer, "precision": best_precision("cpu")}
    found = lightning_loop(
        size,
        settings.batch_size,
        {"kernel": settings.kernel},
        settings.optim,
        trainer,
        settings.lightning_steps,
        rounds,
        show_progress,
    )
    spread = found[0].ratio
    assert spread is not None
    over = [f"{100 * (1 / value - 1):.1f} %" for value in (spread.median, spread.high, spread.low)]
    facts[f"{LOOP} / {BARE}"] = f"{over[0]} more time ({over[1]} .. {over[2]})"
    return found


def make_trainees(settings: TrainSettings, size: ModelSize, facts: dict[str, Any]) -> list[Trainee]:
    """This package's model first, then it with other kernels, then the peers; then all compiled.

    `facts` gets the time it took to compile, and why a peer was skipped.
    """
    codes = random_codes(size, settings.batch_size)
    steps = lay_out(
        codes,
        make_pattern(PATTERN, size.num_codebooks).positions(size.frames),
        size.codebook_size,
    )
    inputs = shift_right(steps, size.codebook_size)
    targets = steps.masked_fill(steps == size.codebook_size, -100)

    def ours(name: str, kernel: str) -> Trainee:
        return our_trainee(name, size, codes, {"kernel": kernel}, settings.optim)

    def peer(name: str, model: nn.Module, loss: Callable[[], Tensor]) -> Trainee:
        return Trainee(name, model, loss, make_optimizer(model, 1000, **settings.optim)[0])

    def peers() -> Iterator[Trainee]:
        torch.manual_seed(0)
        if "plain_gpt" in settings.peers:
            plain = plain_gpt(size)
            yield peer(PLAIN, plain, lambda: plain.loss(inputs, targets))
        if "musicgen" in settings.peers:
            try:
                for attention in ("eager", "sdpa"):
                    model = musicgen(size, attention)
                    yield peer(
                        f"{MUSICGEN}, {attention} attention",
                        model,
                        lambda m=model: musicgen_loss(m, inputs, targets),  # type: ignore[misc]
                    )
            except ImportError as error:
                facts[MUSICGEN] = f"not measured: {error}"

    found = [ours(OURS, settings.kernel)]
    found += [ours(f"{OURS}, {kernel} attention", kernel) for kernel in settings.kernels]
    found += peers()
    if settings.compile:
        for trainee in (ours(OURS, settings.kernel), *peers()):
            trainee.name += COMPILED
            trainee.model.compile()
            for bf16 in (False, True):
                began = time.perf_counter()
                with dynamo.patch(recompile_limit=RECOMPILE, fail_on_recompile_limit_hit=True):
                    trainee.step(bf16)
                facts[f"first step of {_name(trainee.name, bf16)}"] = (
                    f"{time.perf_counter() - began:.1f} s"
                )
            found.append(trainee)
    return found


def _work(trainee: Trainee, gflop: float) -> str:
    """Parameters, loss of the first step, and what torch's counter finds in the step."""
    with FlopCounterMode(display=False) as counter:
        loss = trainee.step(bf16=False)
    counted = counter.get_total_flops() / 1e9
    return (
        f"{count_parameters(trainee.model):,} parameters, {matrix_parameters(trainee.model):,} of "
        f"them in matrices; torch counts {counted:,.4g} GFLOP a step, {gflop:,.4g} without "
        f"attention; {loss:.3f} nats per code at first"
    )


def _ratios(found: Sequence[Measurement]) -> dict[str, str]:
    """How much faster this package is than each peer's best, and than MusicGen's default."""
    measurements = {measurement.name: measurement for measurement in found}
    facts = {}
    for precision in ("fp32", "bf16"):
        mine = measurements.get(f"{OURS}, {precision}")
        if mine is None:
            continue
        for peer in (PLAIN, MUSICGEN):
            theirs = [
                f for n, f in measurements.items() if n.startswith(peer) and n.endswith(precision)
            ]
            # Like with like: what compiling takes from one it takes from the other.
            for how in ("", COMPILED):
                same = [f for f in theirs if (COMPILED in f.name) == bool(how)]
                like = measurements.get(f"{OURS}{how}, {precision}")
                if same and like is not None:
                    best = max(same, key=lambda measurement: measurement.rate.median)
                    facts[f"{like.name} / {best.name}"] = as_times(ratio(like, best))
        default = measurements.get(f"{MUSICGEN}, sdpa attention, fp32")
        if default is not None and precision == "bf16":
            facts[f"{mine.name} / {default.name}, its default"] = as_times(ratio(mine, default))
    return facts


def _name(name: str, bf16: bool) -> str:
    return f"{name}, {'bf16' if bf16 else 'fp32'}"
