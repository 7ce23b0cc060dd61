"""Section `generate`: frames generated in a second, beside peers of the same size.

All continue one prompt under the delay pattern and sample with top-k. What the first frame waits
for, building and compiling, is printed apart. Below them lies what no machine
can beat that reads each matrix once a step, and the keys and values of the steps before.

Letters: B batch, K codebooks, T codec frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from audiolm.benchmarks.limits import READ, limits
from audiolm.benchmarks.musicgen import musicgen, musicgen_decode
from audiolm.benchmarks.plain_gpt import PlainGPT, plain_decode, plain_gpt
from audiolm.benchmarks.report import Section, as_times
from audiolm.benchmarks.rounds import Candidate, Measurement, interleave, ratio
from audiolm.benchmarks.sizes import (
    MUSICGEN,
    OURS,
    PATTERN,
    PLAIN,
    ModelSize,
    check_peers,
    check_same_work,
    check_size,
    matrix_parameters,
)
from audiolm.benchmarks.trainee import random_codes
from audiolm.generation import Sampling, generate, prepare
from audiolm.generation.engines.engine import Engine, choose_engine
from audiolm.limits import COUNT
from audiolm.model.language_model import AudioLM, count_parameters
from audiolm.model.patterns import make_pattern
from audiolm.training import best_precision

UNIT = "frames/s"
FRAME_RATE = 50.0
"""Frames of a second of sound, for the realtime factor of the larger models."""
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True)
class GenerateSettings:
    """frames: generated after a prompt of `prompt_frames`. batches: B. engines: of this package,
    and
    weights: the types with which the native one is measured; to the others they make no difference.
    peers: see `sizes.PEERS`. compile: measure MusicGen's compiled static cache too.
    rounds: a sample takes seconds, so fewer than elsewhere do. large: the size of a larger model,
    without K, and large_codebooks: each K to measure it with, in int8; large_frames: generated.
    Raises ValueError for what is out of range."""

    frames: int = 500
    prompt_frames: int = 50
    top_k: int = 250
    batches: Sequence[int] = (1, 8)
    engines: Sequence[str] = ("auto",)
    weights: Sequence[str] = ("float32", "bfloat16", "int8")
    peers: Sequence[str] = ("plain_gpt", "musicgen")
    compile: bool = False
    rounds: int = 3
    large: Mapping[str, int] = field(default_factory=dict)
    large_codebooks: Sequence[int] = (4, 8)
    large_frames: int = 150

    def __post_init__(self) -> None:
        check_peers("generate", self.peers)
        for name in ("frames", "prompt_frames", "top_k", "large_frames", "rounds"):
            COUNT.check(f"generate.{name}", getattr(self, name))
        for name in ("batches", "large_codebooks"):
            for value in getattr(self, name):
                COUNT.check(f"generate.{name}", value)
        if not self.batches:
            raise ValueError("generate.batches=[] measures nothing; give some, such as [1, 8]")
        for name, value in self.large.items():
            COUNT.check(f"generate.large.{name}", value)


@dataclass(frozen=True)
class Decoder:
    """One way to generate with one model.

    decode: continues a prompt (B, K, P) to so many frames T, and gives (B, K, T). ready: does
    what the first frame of such a recording would wait for. weights, cache: types of what a step
    reads.
    """

    name: str
    model: nn.Module
    decode: Callable[[Tensor, int], Tensor]
    ready: Callable[[Tensor, int], object]
    weights: str = "float32"
    cache: str = "float32"

    def gb_a_step(self, size: ModelSize, batch: int, past: float) -> float:
        """What a step reads, in units of 1e9 bytes. past: steps before it."""
        cache = 2 * size.num_layers * size.embed_dim * past * batch * BYTES[self.cache]
        return (matrix_parameters(self.model) * BYTES[self.weights] + cache) / 1e9


def generate_section(
    settings: GenerateSettings, size: ModelSize, show_progress: bool = True
) -> Section:
    """Time generation with this package and its peers.

    Raises ValueError for a size that cannot be compared; RuntimeError where a candidate is of
    another size all the same, or did not generate what it should.
    """
    check_size(size, settings.peers)
    size = replace(size, frames=settings.prompt_frames + settings.frames)
    facts: dict[str, Any] = {
        "generated": f"{settings.frames} frames of {size.num_codebooks} codes after a prompt of "
        f"{settings.prompt_frames}, top-k {settings.top_k}"
    }
    decoders = list(_decoders(settings, size, facts))
    facts |= {
        d.name.partition(",")[0]: f"{count_parameters(d.model):,} parameters, "
        f"{matrix_parameters(d.model):,} of them in matrices"
        for d in decoders
    }
    generations: dict[str, _Generation] = {}
    for batch in settings.batches:
        for decoder in decoders:
            generation = _Generation(decoder, size, settings.prompt_frames, batch)
            generations[f"batch {batch}: {decoder.name}"] = generation
    larger: dict[str, _Generation] = {}
    for codebooks in settings.large_codebooks:
        frames = settings.prompt_frames + settings.large_frames
        large = replace(size, **settings.large, num_codebooks=codebooks, frames=frames)
        model = _build(large)
        name = f"{count_parameters(model) / 1e6:.0f} M parameters, {codebooks} codebooks"
        for decoder in _ours(model, large, ["auto"], ["int8"], settings.top_k):
            generation = _Generation(decoder, large, settings.prompt_frames, 1)
            larger[f"{name}: {decoder.name}"] = generation

    candidates = limits()
    for name, generation in {**generations, **larger}.items():
        first = next(
            (n for n in generations if n.partition(":")[0] == name.partition(":")[0]), name
        )
        candidates.append(generation.candidate(name, None if name == first else first))
    found = interleave(candidates, settings.rounds, "generate", show_progress, warm_up=False)
    medians = {measurement.name: measurement.rate.median for measurement in found}
    for name, generation in generations.items():
        facts[name] = generation.describe(medians[name])
    for name, generation in larger.items():
        factor = medians[name] / FRAME_RATE
        facts[name] = (
            f"{generation.describe(medians[name])}, {factor:.2f} x real time at "
            f"{FRAME_RATE:g} frames/s"
        )
    for batch in settings.batches:
        facts |= _ratios([f for f in found if f.name.startswith(f"batch {batch}: ")])
    return Section("generate", found, facts)


class _Generation:
    """A decoder at work, always from the same prompt; it is made ready at once."""

    def __init__(self, decoder: Decoder, size: ModelSize, given: int, batch: int) -> None:
        self.decoder, self.size = decoder, size
        self.prompt = random_codes(replace(size, frames=given), batch)
        self.frames = batch * (size.frames - given)
        self.steps = size.frames - given + size.num_codebooks - 1
        began = time.perf_counter()
        decoder.ready(self.prompt, size.frames)
        self.ready_seconds = time.perf_counter() - began

    def __call__(self) -> None:
        codes = self.decoder.decode(self.prompt, self.size.frames)
        batch, codebooks, given = self.prompt.shape
        right = codes.shape == (batch, codebooks, self.size.frames)
        if not (right and torch.equal(codes[:, :, :given], self.prompt)):
            raise RuntimeError(f"{self.decoder.name} did not continue the prompt as it should")

    def candidate(self, name: str, against: str | None) -> Candidate:
        batch, _, given = self.prompt.shape
        read = self.decoder.gb_a_step(self.size, batch, given + self.steps / 2)
        cost = read * self.steps / self.frames
        return Candidate(name, self, self.frames, UNIT, against, READ, cost)

    def describe(self, rate: float) -> str:
        milliseconds = 1e3 * self.frames / self.steps / rate
        return f"{milliseconds:.2f} ms a step, ready after {self.ready_seconds:.1f} s"


def _decoders(
    settings: GenerateSettings, size: ModelSize, facts: dict[str, Any]
) -> Iterator[Decoder]:
    """This package's, then the peers'. `facts` gets why a peer was skipped."""
    ours = _build(size)
    began = time.perf_counter()
    choose_engine("auto", ours, size.num_steps)
    facts["engine"] = f"found or built after {time.perf_counter() - began:.1f} s"
    yield from _ours(ours, size, settings.engines, settings.weights, settings.top_k)
    # Where bf16 is emulated it is of no use to anybody.
    types = ["float32", "bfloat16"] if best_precision("cpu") == "bf16-mixed" else ["float32"]
    if "plain_gpt" in settings.peers:
        for dtype in types:
            plain = plain_gpt(size).eval().to(getattr(torch, dtype))
            check_same_work(PLAIN, plain, ours)
            decode = partial(_plain, plain, settings.top_k)
            yield Decoder(f"{PLAIN}, {dtype}", plain, decode, _a_little(decode), dtype, dtype)
    if "musicgen" in settings.peers:
        try:
            models = {t: musicgen(size, "sdpa").eval().to(getattr(torch, t)) for t in types}
        except ImportError as error:
            facts[MUSICGEN] = f"not measured: {error}"
            return
        kinds = [("growing cache", None, False), ("static cache", "static", False)]
        if settings.compile:
            kinds.append(("compiled static cache", "static", True))
        for dtype, model in models.items():
            check_same_work(MUSICGEN, model, ours)
            for kind, cache, compiled in kinds:
                decode = partial(_musicgen, model, settings.top_k, cache=cache, compiled=compiled)
                # What is compiled is so for one length.
                ready = decode if compiled else _a_little(decode)
                yield Decoder(f"{MUSICGEN}, {kind}, {dtype}", model, decode, ready, dtype, dtype)


def _ours(
    model: AudioLM, size: ModelSize, engines: Sequence[str], weights: Sequence[str], top_k: int
) -> Iterator[Decoder]:
    for engine in engines:
        chosen = choose_engine(engine, model, size.num_steps)
        for kind in weights if chosen == "native" else ["float32"]:
            ours = _Ours(model, size, chosen, kind, top_k)
            name = f"{OURS}, {chosen}, {kind}"
            yield Decoder(name, model, ours.decode, ours.ready, weights=kind)


class _Ours:
    """One engine of this package with one type of weights."""

    def __init__(
        self, model: AudioLM, size: ModelSize, engine: str, weights: str, top_k: int
    ) -> None:
        self.model, self.pattern = model, make_pattern(PATTERN, size.num_codebooks)
        self.engine: str | Engine = engine
        self.weights, self.top_k = weights, top_k

    def ready(self, prompt: Tensor, frames: int) -> None:
        name = self.engine.name if isinstance(self.engine, Engine) else self.engine
        self.engine = prepare(
            self.model,
            self.pattern,
            frames,
            frames,
            len(prompt),
            engine=name,
            weights=self.weights,
        )

    def decode(self, prompt: Tensor, frames: int) -> Tensor:
        return generate(
            self.model,
            self.pattern,
            frames,
            frames,
            range(len(prompt)),
            prompt,
            sampling=Sampling(top_k=self.top_k),
            engine=self.engine,
        )


def _build(size: ModelSize) -> AudioLM:
    torch.manual_seed(0)
    model = AudioLM(size.num_codebooks, size.codebook_size, size.num_steps, **size.model)
    return model.eval()


def _plain(model: PlainGPT, top_k: int, prompt: Tensor, frames: int) -> Tensor:
    return plain_decode(model, prompt, frames, top_k)


def _musicgen(model: Any, top_k: int, prompt: Tensor, frames: int, **how: Any) -> Tensor:
    return musicgen_decode(model, prompt, frames, top_k, **how)


def _a_little(decode: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
    """The first frames only."""
    return lambda prompt, frames: decode(prompt, min(frames, prompt.shape[2] + 8))


def _ratios(found: Sequence[Measurement]) -> dict[str, str]:
    """How much faster each way of this package is than each peer's best."""
    facts = {}
    for peer in (PLAIN, MUSICGEN):
        theirs = [measurement for measurement in found if f": {peer}" in measurement.name]
        if not theirs:
            continue
        best = max(theirs, key=lambda measurement: measurement.rate.median)
        for mine in (measurement for measurement in found if f": {OURS}" in measurement.name):
            facts[f"{mine.name} / {best.name.partition(': ')[2]}"] = as_times(ratio(mine, best))
    return facts
