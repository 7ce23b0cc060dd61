"""Frame by frame: the model draws the codes of a recording, or goes on with one.

The model has learnt windows of `context_frames`, laid out by a pattern. A recording that fits into
one is drawn as one. A longer one, or one without end, is drawn at constant memory and constant
work a frame, in one of two ways:

    ring      the cache holds the last steps, three quarters of a window of them: the oldest makes
              room for the newest
    reread    window by window: when one is full, its last half becomes the known beginning of the
              next, which is read anew; a step sees between half a window and a whole one

A ring takes rotary positions, which know distances only, and a pattern whose steps repeat. It costs
less, and held-out recordings are no less probable with it, though no such thing was in training.

Letters: B samples, K codebooks, P prompt frames, T codec frames, S sequence steps,
V codes in a codebook.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from audiolm.generation.engines import Engine
from audiolm.generation.layouts import EndlessLayout, Layout, WindowLayout
from audiolm.generation.readers import Reader
from audiolm.generation.sampling import check_sampling, draw_noise, sample_codes
from audiolm.model.language_model import AudioLM
from audiolm.model.patterns import Pattern, StridedPattern, num_steps

WINDOWS = ("auto", "ring", "reread")

RING_SHARE = 3 / 4
"""Of a window's steps, those that a ring holds: as many as a step sees when re-reading, on average.
A whole window was worse on recordings longer than it: few steps of training had so long a past."""


def generate(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int,
    context_frames: int,
    seeds: Sequence[int],
    prompt: Tensor | None = None,
    **settings: object,
) -> Tensor:
    """The codes (B, K, T) of `num_frames` = T frames: `stream`, collected."""
    chunks = stream(model, pattern, num_frames, context_frames, seeds, prompt, **settings)  # type: ignore[arg-type]
    return torch.cat(list(chunks), dim=2)


def stream(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int | None,
    context_frames: int,
    seeds: Sequence[int],
    prompt: Tensor | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    engine: str | Engine = "auto",
    weights: str = "float32",
    window: str = "auto",
) -> Iterator[Tensor]:
    """Yield chunks (B, K, t) of frames as they are finished, `num_frames` in all.

    Args:
        model: in eval mode, on its device.
        pattern: the one the model was trained with.
        num_frames: T, prompt included; None goes on until the caller stops asking.
        context_frames: frames of the windows the model was trained on.
        seeds: one a sample; B = len(seeds). A sample depends on its own seed alone, for the same
            engine and weights: another engine adds in another order, and the two may part ways.
        prompt: codes (K, P) for all samples or (B, K, P), P <= `context_frames`; they come first,
            unchanged.
        temperature, top_k, top_p, greedy: see `sampling.sample_codes`.
        engine: see `engines`; "auto" takes the fastest there is. One from `prepare` has its weights
            already.
        weights: "float32", "bfloat16" or "int8"; see `weights.round_weights`.
        window: how to go past the end of a window, "ring" or "reread", as above; "auto" draws what
            fits into a window as one, and longer ones with a ring where it can be had.

    Raises:
        ValueError: for no frames, a pattern of another number of codebooks than the model's, a
            prompt longer than the context or than `num_frames`, of another number of codebooks or
            with ids that are no codes, for sampling settings out of range, for an engine, weights
            or a window that are unknown or cannot be had, and for a model in training mode.
        FloatingPointError: for logits that are not finite, naming the frame.
    """
    check_sampling(temperature, top_k, top_p)
    _check_frames(model, pattern, num_frames, context_frames)
    known = _prompt_rows(prompt, len(seeds), model, num_frames, context_frames)
    if not isinstance(engine, Engine):
        engine = Engine(engine, model, weights, _steps_to_draw(pattern, num_frames))
    drawing = _Drawing(
        model,
        pattern,
        [torch.Generator().manual_seed(seed) for seed in seeds],
        partial(sample_codes, temperature=temperature, top_k=top_k, top_p=top_p, greedy=greedy),
        partial(engine.reader, len(seeds)),
    )
    # Checked above, at the call; drawn as the frames are asked for.
    if choose_window(window, model, pattern, num_frames, context_frames) == "ring":
        return drawing.without_end(known, num_frames, context_frames)
    return drawing.window_by_window(known, num_frames, context_frames)


def prepare(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int | None,
    context_frames: int,
    batch: int,
    *,
    engine: str = "auto",
    weights: str = "float32",
    window: str = "auto",
) -> Engine:
    """Do now what the first frame would wait for: rounding, building, packing and compiling.

    Arguments as of the `stream` that is to follow, which takes the engine in place of its name.

    Raises:
        ValueError: as `stream`.
    """
    _check_frames(model, pattern, num_frames, context_frames)
    ready = Engine(engine, model, weights, _steps_to_draw(pattern, num_frames))
    ring = choose_window(window, model, pattern, num_frames, context_frames) == "ring"
    if ring:
        max_steps = _ring_steps(pattern, context_frames)
    else:
        frames = context_frames if num_frames is None else min(num_frames, context_frames)
        max_steps = _window_steps(pattern, context_frames if pattern.fixed_length else frames)
    with torch.inference_mode():
        reader = ready.reader(batch, max_steps, ring)
        start = torch.full((batch, model.num_codebooks), model.special)
        for _ in range(3):  # a CUDA graph is recorded after two calls
            reader.step(start.to(model.heads.weight.device))
            for cache in reader.step.caches:
                cache.length = 0
    return ready


def choose_window(
    window: str, model: AudioLM, pattern: Pattern, num_frames: int | None, context_frames: int
) -> str:
    """The way past the end of a window that "auto" is, or the named one itself.

    Raises:
        ValueError: for an unknown one, and for a ring where there can be none.
    """
    if window not in WINDOWS:
        raise ValueError(f"window={window!r} is unknown; choose one of {', '.join(WINDOWS)}")
    repeats = isinstance(pattern, StridedPattern)
    turns = model.transformer.blocks[0].attention.rotary is not None
    if window == "ring" and not (repeats and turns):
        what = "a pattern whose steps repeat" if turns else "rotary positions"
        raise ValueError(f"window=ring needs {what}, which this model has not; pass window=reread")
    if window == "auto":
        fits = num_frames is not None and num_frames <= context_frames
        return "ring" if repeats and turns and not fits else "reread"
    return window


def _window_steps(pattern: Pattern, context_frames: int) -> int:
    return num_steps(pattern.positions(context_frames))


def _ring_steps(pattern: Pattern, context_frames: int) -> int:
    return max(1, int(RING_SHARE * _window_steps(pattern, context_frames)))


def _steps_to_draw(pattern: Pattern, num_frames: int | None) -> int | None:
    return None if num_frames is None else num_steps(pattern.positions(num_frames))


def _check_frames(
    model: AudioLM, pattern: Pattern, num_frames: int | None, context_frames: int
) -> None:
    for name, frames in (("num_frames", num_frames), ("context_frames", context_frames)):
        if frames is not None and frames < 1:
            raise ValueError(f"{name}={frames} must be at least 1")
    if pattern.num_codebooks != model.num_codebooks:
        raise ValueError(
            f"the pattern lays out {pattern.num_codebooks} codebooks, the model has "
            f"{model.num_codebooks}; make it for as many"
        )


@dataclass
class _Drawing:
    """What stays the same while a recording is drawn."""

    model: AudioLM
    pattern: Pattern
    generators: list[torch.Generator]
    sample: Callable[[Tensor, Tensor], Tensor]  # logits and noise (B, K, V) to codes (B, K)
    make_reader: Callable[[int, bool], Reader]

    def without_end(
        self, known: Tensor, num_frames: int | None, context_frames: int
    ) -> Iterator[Tensor]:
        """`known` (B, K, P), then frame after frame, each seeing the last steps of a ring."""
        prompt_frames = known.shape[2]
        if prompt_frames:
            yield known
        assert isinstance(self.pattern, StridedPattern)
        if num_frames != prompt_frames:
            layout = EndlessLayout(self.pattern, prompt_frames, known.device)
            reader = self.make_reader(_ring_steps(self.pattern, context_frames), True)
            wanted = None if num_frames is None else num_frames - prompt_frames
            given = _laid_out(known, self.pattern.positions(max(prompt_frames, 1)), self.model)
            yield from islice(self.frames(layout, reader, given, prompt_frames, 0), wanted)

    def window_by_window(
        self, known: Tensor, num_frames: int | None, context_frames: int
    ) -> Iterator[Tensor]:
        """`known` (B, K, P), then window after window until there are `num_frames`."""
        if known.shape[2]:
            yield known
        start = 0  # the frame of the recording at which the window starts
        while num_frames is None or start + known.shape[2] < num_frames:
            if known.shape[2] == context_frames:
                kept = context_frames // 2
                start += context_frames - kept
                known = known[:, :, context_frames - kept :]
            end = context_frames if num_frames is None else num_frames - start
            wanted = min(context_frames, end)
            # A pattern of fixed length is laid out for more frames than may be wanted.
            laid_out = context_frames if self.pattern.fixed_length else wanted
            prompt_frames = known.shape[2]
            layout = WindowLayout(self.pattern, prompt_frames, laid_out, known.device)
            reader = self.make_reader(layout.span, False)
            given = _laid_out(known, self.pattern.positions(laid_out), self.model)
            chunks = [known]
            for chunk in islice(
                self.frames(layout, reader, given, prompt_frames, start), wanted - prompt_frames
            ):
                chunks.append(chunk)
                yield chunk
            known = torch.cat(chunks, dim=2)

    def frames(
        self, layout: Layout, reader: Reader, given: Tensor, done: int, start: int
    ) -> Iterator[Tensor]:
        """Yield frames (B, K, 1) from frame `done` of the layout on.

        Args:
            layout: the steps and what to draw in them.
            reader: one that has read nothing.
            given: (B, K, 1 + steps), the special id and the first steps: the codes known before,
                and the special id in the other cells.
            start: the frame of the recording at which the layout starts, for messages.
        """
        batch, codebooks, num_given = given.shape
        empty = given[:, :, 0]
        codebook = torch.arange(codebooks, device=given.device)
        unread = given[:, :, : 1 + layout.first_step]
        recent = given.new_empty(batch, codebooks, layout.span)  # the steps drawn last, in a ring
        for step in layout.steps():
            finished: list[Tensor] = []
            # Not around the whole: a generator that is left unfinished would end inside of it.
            with torch.inference_mode():
                row = given[:, :, 1 + step] if 1 + step < num_given else empty
                drawn = layout.to_draw(step)
                if drawn is not None:
                    logits = reader.read(unread)
                    unread = unread[:, :, :0]
                    if not math.isfinite(float(logits.sum())):
                        raise FloatingPointError(
                            f"the model's logits are not finite at frame {start + done}; its "
                            f"weights are damaged: take an earlier checkpoint"
                        )
                    noise = draw_noise(self.generators, codebooks, self.model.codebook_size)
                    row = torch.where(drawn, self.sample(logits, noise), row)
                unread = torch.cat([unread, row[:, :, None]], dim=2)
                recent[:, :, step % layout.span] = row
                while (where := layout.steps_of(done)) is not None and step >= where[-1]:
                    where = where.to(given.device) % layout.span
                    finished.append(recent[:, codebook, where][:, :, None])
                    done += 1
            yield from finished


def _laid_out(known: Tensor, positions: Tensor, model: AudioLM) -> Tensor:
    """The special id, then the steps of `positions` (K, T) with codes of the first P frames."""
    batch, codebooks, frames = known.shape
    given = known.new_full((batch, codebooks, 1 + num_steps(positions)), model.special)
    index = positions[:, :frames].to(known.device).expand_as(known)
    given[:, :, 1:].scatter_(2, index, known)
    return given


def _prompt_rows(
    prompt: Tensor | None, batch: int, model: AudioLM, num_frames: int | None, context_frames: int
) -> Tensor:
    """The prompt as (B, K, P), checked; P = 0 without one."""
    device = model.heads.weight.device
    if prompt is None:
        return torch.empty(batch, model.num_codebooks, 0, dtype=torch.long, device=device)
    if prompt.is_floating_point():
        raise ValueError(f"the prompt holds {prompt.dtype} numbers; codes are whole: give int64")
    prompt = prompt.long()
    if prompt.ndim == 2:
        prompt = prompt.expand(batch, *prompt.shape)
    if prompt.shape[:2] != (batch, model.num_codebooks):
        raise ValueError(
            f"the prompt has shape {tuple(prompt.shape)}; the model wants "
            f"({batch}, {model.num_codebooks}, frames)"
        )
    frames = prompt.shape[2]
    if frames > context_frames:
        raise ValueError(
            f"the prompt of {frames} frames is longer than the model's context of "
            f"{context_frames}; shorten it with prompt_duration"
        )
    if num_frames is not None and frames > num_frames:
        raise ValueError(
            f"the prompt of {frames} frames is longer than the {num_frames} asked for; "
            f"raise duration, which includes the prompt"
        )
    if frames and not 0 <= int(prompt.min()) <= int(prompt.max()) < model.codebook_size:
        raise ValueError(
            f"the prompt holds ids from {int(prompt.min())} to {int(prompt.max())}; codes of this "
            f"model lie in 0 ... {model.codebook_size - 1}"
        )
    return prompt.to(device)
