"""Frame by frame: the model draws the codes of a recording, or goes on with one.

The model has learnt windows of `context_frames`, laid out by a pattern. So a recording is drawn
window by window: when a window is full, its last half becomes the known beginning of the next.
Every step thus sees between half a context and a whole one, in the very layout of training, at
constant memory and at constant work a frame for any duration.

Letters: B samples, K codebooks, P prompt frames, T codec frames, S sequence steps,
V codes in a codebook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from audiolm.generation.sampling import check_sampling, draw_noise, sample_codes
from audiolm.model.language_model import AudioLM
from audiolm.model.patterns import Pattern, final_steps, num_steps, occupied_cells

# Samples are computed in blocks of exactly this many, short ones filled up: a matrix product of
# another height may add in another order, and a sample would depend on its batch after all. Up
# to this many rows the weights' way through memory is the cost, so filling up is cheap.
ROWS = 8


def generate(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int,
    context_frames: int,
    seeds: Sequence[int],
    prompt: Tensor | None = None,
    **sampling: object,
) -> Tensor:
    """The codes (B, K, T) of `num_frames` = T frames: `stream`, collected."""
    chunks = stream(model, pattern, num_frames, context_frames, seeds, prompt, **sampling)  # type: ignore[arg-type]
    return torch.cat(list(chunks), dim=2)


def stream(
    model: AudioLM,
    pattern: Pattern,
    num_frames: int,
    context_frames: int,
    seeds: Sequence[int],
    prompt: Tensor | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    use_cache: bool = True,
) -> Iterator[Tensor]:
    """Yield chunks (B, K, t) of frames as they are finished, `num_frames` in all.

    Args:
        model: in eval mode, on its device.
        pattern: the one the model was trained with.
        num_frames: T, prompt included.
        context_frames: frames of the windows the model was trained on.
        seeds: one a sample; B = len(seeds). A sample depends on its own seed alone.
        prompt: codes (K, P) for all samples or (B, K, P), P <= `context_frames`; they come first,
            unchanged.
        temperature, top_k, top_p, greedy: see `sampling.sample_codes`.
        use_cache: False computes every step from the whole window anew: slow, for tests.

    Raises:
        ValueError: for a prompt longer than the context or than `num_frames`, of another number
            of codebooks or with ids that are no codes, and for sampling settings out of range.
        FloatingPointError: for logits that are not finite, naming the frame.
    """
    check_sampling(temperature, top_k, top_p)
    known = _prompt_rows(prompt, len(seeds), model, num_frames, context_frames)
    drawing = _Drawing(
        model,
        pattern,
        [torch.Generator().manual_seed(seed) for seed in seeds],
        partial(sample_codes, temperature=temperature, top_k=top_k, top_p=top_p, greedy=greedy),
        use_cache,
    )
    # Checked above, at the call; drawn as the frames are asked for.
    return drawing.recording(known, num_frames, context_frames)


@dataclass
class _Drawing:
    """What stays the same while a recording is drawn."""

    model: AudioLM
    pattern: Pattern
    generators: list[torch.Generator]
    sample: Callable[[Tensor, Tensor], Tensor]  # logits and noise (B, K, V) to codes (B, K)
    use_cache: bool

    def recording(self, known: Tensor, num_frames: int, context_frames: int) -> Iterator[Tensor]:
        """`known` (B, K, P), then window after window until there are `num_frames`."""
        if known.shape[2]:
            yield known
        start = 0  # the frame of the recording at which the window starts
        while start + known.shape[2] < num_frames:
            if known.shape[2] == context_frames:
                kept = context_frames // 2
                start += context_frames - kept
                known = known[:, :, context_frames - kept :]
            window = min(context_frames, num_frames - start)
            wanted = window - known.shape[2]
            chunks = [known]
            # A pattern of fixed length is laid out for more frames than may be wanted.
            for chunk in self.window(
                known, context_frames if self.pattern.fixed_length else window
            ):
                chunks.append(chunk[:, :, :wanted])
                wanted -= chunks[-1].shape[2]
                yield chunks[-1]
                if wanted == 0:
                    break
            known = torch.cat(chunks, dim=2)

    @torch.inference_mode()
    def window(self, known: Tensor, num_frames: int) -> Iterator[Tensor]:
        """Fill one window of `num_frames` frames that begins with `known` (B, K, P)."""
        model = self.model
        batch, codebooks, prompt_frames = known.shape
        positions = self.pattern.positions(num_frames).to(known.device)
        # What the model reads: the special id, then the steps; so it reads what is drawn at once.
        inputs = known.new_full((batch, codebooks, 1 + num_steps(positions)), model.special)
        steps = inputs[:, :, 1:]
        steps.scatter_(2, positions[:, :prompt_frames].expand_as(known), known)
        to_draw = occupied_cells(positions).to(known.device)  # (K, S)
        to_draw.scatter_(1, positions[:, :prompt_frames], False)
        finals = final_steps(positions).tolist()

        steps_to_draw = to_draw.any(dim=0).tolist()
        reader = _Reader(model, batch, steps.shape[2] if self.use_cache else None)
        done = prompt_frames
        for s in range(steps_to_draw.index(True), steps.shape[2]):
            if steps_to_draw[s]:
                logits = reader.logits(inputs[:, :, : s + 1])
                if not bool(torch.isfinite(logits).all()):
                    raise FloatingPointError(
                        f"the model's logits are not finite at frame {done} of the window; "
                        f"its weights are damaged: take an earlier checkpoint"
                    )
                noise = draw_noise(self.generators, codebooks, model.codebook_size)
                steps[:, :, s] = torch.where(
                    to_draw[:, s], self.sample(logits, noise), steps[:, :, s]
                )
            first = done
            while done < num_frames and finals[done] <= s:
                done += 1
            if done > first:
                index = positions[:, first:done].expand(batch, codebooks, done - first)
                yield steps.gather(2, index)


def _prompt_rows(
    prompt: Tensor | None, batch: int, model: AudioLM, num_frames: int, context_frames: int
) -> Tensor:
    """The prompt as (B, K, P), checked; P = 0 without one."""
    device = model.heads.weight.device
    if prompt is None:
        return torch.empty(batch, model.num_codebooks, 0, dtype=torch.long, device=device)
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
    if frames > num_frames:
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


class _Reader:
    """Reads the steps of one window as they become known, and gives the logits of the next.

    What a sample's logits are made of is the same in every batch: single steps are computed in
    blocks of exactly `ROWS` samples, and passes over many steps sample by sample.
    """

    def __init__(self, model: AudioLM, batch: int, cache_steps: int | None) -> None:
        self.model = model
        self.batch = batch
        self.fill = -batch % ROWS
        self.caches = (
            None if cache_steps is None else model.make_caches(batch + self.fill, cache_steps)
        )

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, K, V) after `inputs` (B, K, n), which go on from those of the last call."""
        if self.caches is None:
            return torch.cat([self._extend(row, None) for row in torch.split(inputs, 1)])
        new = inputs[:, :, self.caches[0].length :]
        logits = self._read_one(new) if new.shape[2] == 1 else self._read_many(new)
        for cache in self.caches:
            cache.length += new.shape[2]
        return logits

    def _read_one(self, new: Tensor) -> Tensor:
        filled = torch.cat([new, new[:1].expand(self.fill, -1, -1)])
        blocks = torch.split(filled, ROWS)
        logits = [self._extend(block, i * ROWS) for i, block in enumerate(blocks)]
        return torch.cat(logits)[: self.batch]

    def _read_many(self, new: Tensor) -> Tensor:
        assert self.caches is not None
        count = new.shape[2]
        logits = [self._extend(new[:1], 0)]
        for b in range(1, self.batch):
            if self.caches[0].length == 0 and torch.equal(new[b], new[0]):
                # One prompt for all samples, the usual case, is read once.
                for cache in self.caches:
                    cache.keys[b, :, :count] = cache.keys[0, :, :count]
                    cache.values[b, :, :count] = cache.values[0, :, :count]
                logits.append(logits[0])
            else:
                logits.append(self._extend(new[b : b + 1], b))
        return torch.cat(logits)

    def _extend(self, inputs: Tensor, first_row: int | None) -> Tensor:
        """Logits (b, K, V) after `inputs` (b, K, n), samples `first_row` ... of the caches."""
        caches = None
        if self.caches is not None and first_row is not None:
            caches = [cache.rows(first_row, first_row + len(inputs)) for cache in self.caches]
        return self.model.extend(inputs, caches)[:, :, -1]
