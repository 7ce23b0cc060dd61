"""Frame by frame: the model generates the codes of a recording, or continues one.

The model has learnt windows of `context_frames`, laid out by a pattern. A recording that fits into
one is generated as one. A longer one, or one without end, is generated at constant memory and
constant work a frame, in one of two ways:

    ring      the cache holds the last steps, three quarters of a window of them: the oldest makes
              room for the newest
    reread    window by window: when one is full, its last half becomes the known beginning of the
              next, which is read anew; a step sees between half a window and a whole one

A ring takes rotary positions, which know distances only, and a pattern whose steps repeat. It costs
less, and validation recordings are no less probable with it, though no such thing was in training.

A model with an end token ends each sample where a recording would end: when codebook 0 samples the
end, the other codebooks are sampled up to that frame, and nothing behind it. The samples of a batch
end where each wants to; generation ends with the last one.

Classifier-free guidance compares what the model expects with conditions and without: both are read
side by side, as 2 B rows of one pass.

Letters: B samples, K codebooks, P prompt frames, T codec frames, S sequence steps,
V codes in a codebook, V' predicted ids (see `language_model`), L length of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from audiolm.generation.engines.engine import Engine
from audiolm.generation.layouts import ring_steps
from audiolm.generation.loop import DecodingState
from audiolm.generation.sampling import PLAIN, Sampling
from audiolm.model.conditioning import Conditions, joined, null_conditions
from audiolm.model.language_model import AudioLM
from audiolm.model.patterns import Pattern, StridedPattern


def generate(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int,
    context_frames: int,
    seeds: Sequence[int],
    prompt: Tensor | None = None,
    **settings: object,
) -> Tensor:
    """The codes (B, K, T) that `stream` yields; T is `num_frames`, or less where all ended."""
    chunks = stream(model, pattern, num_frames, context_frames, seeds, prompt, **settings)  # type: ignore[arg-type]
    return torch.cat(list(chunks), dim=2)


def cut_at_end(codes: Tensor, codebook_size: int) -> list[Tensor]:
    """Codes (B, K, T) of samples, each without the frames behind its end: B times (K, T_b)."""
    is_code = codes[:, 0] < codebook_size
    return [row[:, :length] for row, length in zip(codes, is_code.sum(dim=1).tolist(), strict=True)]


def stream(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int | None,
    context_frames: int,
    seeds: Sequence[int],
    prompt: Tensor | None = None,
    *,
    sampling: Sampling = PLAIN,
    conditions: Mapping[str, Tensor] | None = None,
    engine: str | Engine = "auto",
    weights: str = "float32",
) -> Iterator[Tensor]:
    """Yield chunks (B, K, t) of frames as they are finished, at most `num_frames` in all.

    A sample that has ended holds id V in all codebooks of the frames behind (see `cut_at_end`).

    Args:
        model: in eval mode, on its device.
        pattern: the one the model was trained with.
        num_frames: T, prompt included; None continues until all have ended, or the caller stops
            asking.
        context_frames: frames of the windows the model was trained on.
        seeds: one a sample; B = len(seeds). A sample depends on its own seed alone, for the same
            engine and weights: another engine adds in another order, and the two may part ways.
        prompt: codes (K, P) for all samples or (B, K, P), P <= `context_frames`; they come first,
            unchanged.
        sampling: how codes are sampled from what the model expects.
        conditions: of each sample, B rows, as in `model.conditioning`; None
            generates without.
        engine: see `engines.engine`; "auto" takes the fastest there is. One from `prepare` has its
            weights already.
        weights: "float32", "bfloat16" or "int8"; see `rounding.round_weights`.

    Raises:
        ValueError: for no frames, a pattern of another number of codebooks than the model's, a
            prompt longer than the context or than `num_frames`, of another number of codebooks or
            with ids that are not codes, for conditions or guidance of an unconditional model, for
            an engine or weights that are unknown or cannot be had, and for a model in
            training mode.
        FloatingPointError: for logits that are not finite, naming the frame.
    """
    sampling.check(model.num_codebooks)
    _check_frames(model, pattern, num_frames, context_frames)
    known = _prompt_rows(prompt, len(seeds), model, num_frames, context_frames)
    checked = _check_conditions(model, conditions, len(seeds), sampling)
    if not isinstance(engine, Engine):
        engine = Engine(engine, model, weights, _steps_to_sample(pattern, num_frames))
    guided = checked is not None and sampling.guidance != 1
    given = None if checked is None else _read_conditions(engine.model, checked, guided)
    state = DecodingState(
        model,
        pattern,
        [torch.Generator().manual_seed(seed) for seed in seeds],
        sampling,
        guided,
        partial(engine.decoder, len(seeds) * (1 + guided), conditions=given),
        known.new_full((len(seeds), sampling.repetition_window or 0), -1),
    )
    state.remember(known[:, 0])
    # Checked above, at the call; generated as the frames are asked for.
    if takes_ring(model, pattern, num_frames, context_frames):
        return state.without_end(known, num_frames, context_frames)
    return state.window_by_window(known, num_frames, context_frames)


def prepare(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int | None,
    context_frames: int,
    batch: int,
    *,
    sampling: Sampling = PLAIN,
    engine: str | Engine = "auto",
    weights: str = "float32",
) -> Engine:
    """Do now what the first frame would wait for: rounding, building, packing and compiling.

    Arguments as of the `stream` that is to follow, which takes the engine in place of its name. So
    does this: an engine that was prepared for another stream is made ready, and returned.

    Raises:
        ValueError: as `stream`.
    """
    _check_frames(model, pattern, num_frames, context_frames)
    ready = engine
    if not isinstance(ready, Engine):
        ready = Engine(ready, model, weights, _steps_to_sample(pattern, num_frames))
    ring = takes_ring(model, pattern, num_frames, context_frames)
    if ring:
        max_steps = ring_steps(pattern, context_frames)
    else:
        frames = context_frames if num_frames is None else min(num_frames, context_frames)
        if pattern.fixed_length:
            frames = context_frames + model.end_token
        max_steps = pattern.num_steps(frames)
    checked = _check_conditions(model, None, batch, sampling)
    guided = checked is not None and sampling.guidance != 1
    with torch.inference_mode():
        given = None if checked is None else _read_conditions(ready.model, checked, guided)
        decoder = ready.decoder(batch * (1 + guided), max_steps, ring, given)
        start = torch.full((batch * (1 + guided), model.num_codebooks), model.special)
        for _ in range(3):  # a CUDA graph is recorded after two calls
            decoder.decode_step(start.to(model.heads.weight.device))
            for cache in decoder.decode_step.caches:
                cache.length = 0
    return ready


def takes_ring(
    model: AudioLM, pattern: Pattern, num_frames: int | None, context_frames: int
) -> bool:
    """Whether generation goes past a window with a ring: where it has to, and a ring can be had."""
    fits = num_frames is not None and num_frames <= context_frames
    rotary = model.transformer.blocks[0].attention.rotary is not None
    return rotary and isinstance(pattern, StridedPattern) and not fits


def _steps_to_sample(pattern: Pattern, num_frames: int | None) -> int | None:
    return None if num_frames is None else pattern.num_steps(num_frames)


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


def _check_conditions(
    model: AudioLM, conditions: Mapping[str, Tensor] | None, batch: int, sampling: Sampling
) -> Mapping[str, Tensor] | None:
    """The conditions of B samples, checked; None for an unconditional model."""
    if model.conditioner is None:
        if conditions is not None or sampling.guidance != 1:
            what = "guidance is" if conditions is None else "conditions are"
            raise ValueError(
                f"{what} for a model that was trained with conditions, and this one was not; "
                f"omit them, or train with conditioning=label or conditioning=text"
            )
        return None
    if conditions is None:
        return model.conditioner.nothing(batch)
    for name, values in conditions.items():
        if len(values) != batch:
            raise ValueError(f"conditions of {len(values)} samples ({name}), {batch} are generated")
    return conditions


def _read_conditions(model: AudioLM, conditions: Mapping[str, Tensor], guided: bool) -> Conditions:
    """What the decoder is given of B samples, and with guidance of B more with null conditions.

    Sample by sample, with texts and sequences padded to the longest that the model knows: so a
    sample's conditions, and with them its logits, are the same bits in every batch.
    """
    conditioner = model.conditioner
    assert conditioner is not None
    if conditioner.text is not None:
        text = conditions["text"]
        padding = conditioner.text.max_len - text.shape[1]
        conditions = {**conditions, "text": F.pad(text, (0, padding))}
    if conditioner.sequence is not None:
        sequence = conditions["sequence"]
        padding = conditioner.max_sequence_len - sequence.shape[1]
        padded = F.pad(sequence, (0, 0, 0, padding), value=float("nan"))
        conditions = {**conditions, "sequence": padded}
    batches = [conditions, null_conditions(conditions)] if guided else [conditions]
    read: dict[bytes, Conditions] = {}  # usually all are the same
    parts = []
    with torch.inference_mode():
        for batch in batches:
            for b in range(len(next(iter(batch.values())))):
                row = {name: values[b : b + 1] for name, values in batch.items()}
                key = b"".join(values.cpu().numpy().tobytes() for values in row.values())
                if key not in read:
                    read[key] = model.condition(row)
                parts.append(read[key])
        return joined(parts)


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
