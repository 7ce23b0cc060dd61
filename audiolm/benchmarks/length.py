"""Section `length`: how cost grows with the context that is trained on, and with what is generated.

A training step has about as many frames whatever their context, so that what grows is attention's.
Generation is timed over the last frames before each length: in this package's of one recording
without end, whose steps see a window; in MusicGen's after a prompt of that length.

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from tqdm import tqdm

from audiolm.benchmarks.disturbance import Sample, Stopwatch
from audiolm.benchmarks.limits import BF16, FP32, limits
from audiolm.benchmarks.musicgen import musicgen, musicgen_decode
from audiolm.benchmarks.report import Section, as_times
from audiolm.benchmarks.rounds import Candidate, Measurement, interleave, measurements, ratio
from audiolm.benchmarks.sizes import (
    MUSICGEN,
    OURS,
    PATTERN,
    ModelSize,
    attention_gflop,
    check_peers,
    check_size,
    products_gflop,
)
from audiolm.benchmarks.trainee import UNIT, Trainee, our_trainee, random_codes
from audiolm.generation import Sampling, prepare, stream
from audiolm.limits import COUNT
from audiolm.model.language_model import AudioLM
from audiolm.model.patterns import make_pattern
from audiolm.training import best_precision


@dataclass(frozen=True)
class LengthSettings:
    """contexts: frames that are trained on. step_frames: of a training step, about.
    frames: lengths before which generation is timed, over the last `last` frames, with a window of
    `window` frames. weights: as in `generate`. peers: "musicgen" or none; the plain GPT's memory
    is of fixed size. rounds: fewer than elsewhere, for these take long.
    Raises ValueError for lengths out of order or what else is out of range."""

    contexts: Sequence[int] = (256, 512, 1024, 2048)
    step_frames: int = 2048
    frames: Sequence[int] = (500, 1500, 4000)
    last: int = 100
    window: int = 1500
    top_k: int = 250
    weights: str = "float32"
    peers: Sequence[str] = ("musicgen",)
    rounds: int = 2
    optim: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_peers("length", self.peers)
        for name in ("step_frames", "window", "top_k", "rounds"):
            COUNT.check(f"length.{name}", getattr(self, name))
        for context in self.contexts:
            COUNT.check("length.contexts", context)
        if not self.contexts:
            raise ValueError("length.contexts=[] measures nothing; give some, such as [1, 8]")
        points = list(self.frames)
        apart = all(b - a >= self.last for a, b in zip([1, *points], points, strict=False))
        if self.last < 1 or not points or not apart:
            raise ValueError(
                f"length.frames={points} must grow, each by at least length.last={self.last}"
            )


def length_section(
    settings: LengthSettings, size: ModelSize, show_progress: bool = True
) -> Section:
    """Time training steps of several contexts, and frames after several lengths.

    Raises ValueError for a size that the model cannot have.
    """
    check_size(size, ())  # growth is compared, not work
    facts: dict[str, Any] = {}
    found = _training(settings, size, facts, show_progress)
    found += _generation(settings, size, facts, show_progress)
    return Section("length", found, facts)


def _training(
    settings: LengthSettings,
    size: ModelSize,
    facts: dict[str, Any],
    show_progress: bool,
) -> list[Measurement]:
    bf16 = best_precision("cpu") == "bf16-mixed"
    candidates = limits()
    first: dict[bool, str] = {}
    for context in settings.contexts:
        for checkpointing in (False, True):
            sized = replace(size, frames=context)
            codes = random_codes(sized, max(1, settings.step_frames // context))
            how = {"gradient_checkpointing": checkpointing}
            trainee = our_trainee(OURS, sized, codes, how, settings.optim)
            name = f"train {context} frames{', checkpointing' if checkpointing else ''}"
            rows = len(codes) * sized.num_steps
            gflop = products_gflop(trainee.model, rows) + attention_gflop(sized, len(codes))
            run, times = trainee.timed(bf16)
            against = first.setdefault(checkpointing, name)
            if checkpointing:
                against = name.partition(",")[0]
            candidates.append(
                Candidate(
                    name,
                    run,
                    times * codes.numel(),
                    UNIT,
                    None if name == against else against,
                    BF16 if bf16 else FP32,
                    3 * gflop / codes.numel(),
                )
            )
            facts[name] = f"{_kept_bytes(trainee, bf16) / 2**20:,.0f} MiB kept for the backward"
    return interleave(candidates, settings.rounds, "length: train", show_progress)


def _kept_bytes(trainee: Trainee, bf16: bool) -> int:
    """Bytes that a step keeps from its forward for its backward pass, but for the weights."""
    weights = {p.untyped_storage().data_ptr() for p in trainee.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        graph = trainee.loss()  # holds them
    del graph
    return sum(kept.values())


def _generation(
    settings: LengthSettings, size: ModelSize, facts: dict[str, Any], show_progress: bool
) -> list[Measurement]:
    points = list(settings.frames)
    torch.manual_seed(0)
    windowed = replace(size, frames=settings.window)
    ours = AudioLM(size.num_codebooks, size.codebook_size, windowed.num_steps, **size.model).eval()
    peer: nn.Module | None = None
    if "musicgen" in settings.peers:
        try:
            peer = musicgen(replace(size, frames=points[-1] + 1), "sdpa").eval()
        except ImportError as error:
            facts[MUSICGEN] = f"not measured: {error}"
    makers: dict[str, Callable[[], list[Sample]]] = {
        f"generate {OURS}": lambda: _stream_times(settings, windowed, ours)
    }
    if peer is not None:
        makers[f"generate {MUSICGEN}"] = partial(_musicgen_times, settings, size, peer)
    samples: dict[str, list[Sample]] = {}
    total = settings.rounds * len(makers)
    with tqdm(total=total, desc="length: generate", disable=not show_progress) as bar:
        for _ in range(settings.rounds):
            for name, times in makers.items():
                bar.set_postfix_str(name)
                for point, sample in zip(points, times(), strict=True):
                    samples.setdefault(f"{name}, {point} frames", []).append(sample)
                bar.update()
    candidates = []
    for name in makers:
        first = f"{name}, {points[0]} frames"
        for point in points:
            own = f"{name}, {point} frames"
            against = None if own == first else first
            candidates.append(Candidate(own, None, settings.last, "frames/s", against))
    found = measurements(candidates, samples)
    by_name = {measurement.name: measurement for measurement in found}
    for name in makers:
        shortest, longest = (by_name[f"{name}, {n} frames"] for n in (points[0], points[-1]))
        facts[f"{name}, time a frame at {points[-1]} against at {points[0]} frames"] = as_times(
            ratio(shortest, longest)
        )
    return found


def _stream_times(settings: LengthSettings, size: ModelSize, model: AudioLM) -> list[Sample]:
    """Of the last frames before each point, in one recording."""
    pattern = make_pattern(PATTERN, size.num_codebooks)
    window = settings.window
    engine = prepare(model, pattern, None, window, 1, weights=settings.weights)
    sampling = Sampling(top_k=settings.top_k)
    chunks = stream(model, pattern, None, window, [0], sampling=sampling, engine=engine)
    done = 0

    def go_on(frames: int) -> None:
        nonlocal done
        while done < frames:
            done += next(chunks).shape[2]

    taken = []
    for point in settings.frames:
        go_on(point - settings.last)
        with Stopwatch() as watch:
            go_on(point)
        taken.append(watch.sample)
    return taken


def _musicgen_times(settings: LengthSettings, size: ModelSize, model: nn.Module) -> list[Sample]:
    """Of frames that are generated after prompts, each from the step after the prompt's on."""
    taken = []
    for point in settings.frames:
        prompt = random_codes(replace(size, frames=point - settings.last), 1)
        running, watch, steps = ExitStack(), Stopwatch(), 0

        def each_step(running: ExitStack = running, watch: Stopwatch = watch) -> None:
            nonlocal steps
            if steps == 0:
                running.enter_context(watch)
            if steps == settings.last:
                running.close()
            steps += 1

        musicgen_decode(model, prompt, point + 1, settings.top_k, each_step=each_step)
        taken.append(watch.sample)
    return taken
