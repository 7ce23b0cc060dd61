"""The decoding loop: step after step of a layout, window by window or in a ring (see `stream`).

Letters: B samples, K codebooks, P prompt frames, T codec frames, S sequence steps,
V codes in a codebook.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from audiolm.generation.decoder import Decoder
from audiolm.generation.layouts import EndlessLayout, Layout, WindowLayout, ring_steps
from audiolm.generation.sampling import Sampling, guide, sample_codes, sample_noise
from audiolm.model.language_model import AudioLM
from audiolm.model.patterns import Pattern, StridedPattern, num_steps

NEVER = 2**62
"""The frame at which a sample ends that has not ended."""


@dataclass
class DecodingState:
    """What stays the same while a recording is generated."""

    model: AudioLM
    pattern: Pattern
    generators: list[torch.Generator]
    sampling: Sampling
    guided: bool  # then the decoder has 2 B rows, the second B of them with null conditions
    make_decoder: Callable[[int, bool], Decoder]
    history: Tensor  # (B, repetition window) the codes of codebook 0 sampled last, in a ring; or -1
    remembered: int = field(default=0, init=False)

    def remember(self, codes: Tensor) -> None:
        """Codes (B, n) of codebook 0 were sampled."""
        window = self.history.shape[1]
        for row in codes[:, max(0, codes.shape[1] - window) :].unbind(dim=1) if window else ():
            self.history[:, self.remembered % window] = row
            self.remembered += 1

    def sample(self, decoder: Decoder, unread: Tensor, frame: int, start_of_all: bool) -> Tensor:
        """(B, K) ids after reading `unread` (B, K, n); `frame` of the recording, for messages."""
        logits = decoder.extend(unread.repeat(2, 1, 1) if self.guided else unread)
        if not math.isfinite(float(logits.sum())):
            raise FloatingPointError(
                f"the model's logits are not finite at frame {frame}; its weights are damaged: "
                f"take an earlier checkpoint"
            )
        if self.guided:
            conditional, unconditional = logits.chunk(2)
            logits = guide(conditional, unconditional, self.sampling.guidance)
        if self.model.end_token:
            logits = self.model.without_impossible_end_tokens(logits)
            if start_of_all or not self.sampling.end:
                logits[:, 0, self.model.codebook_size] = -math.inf
        looks_back = self.history.shape[1] > 0
        _, codebooks, outputs = logits.shape
        noise = sample_noise(self.generators, codebooks, outputs, again=looks_back)
        return sample_codes(logits, noise, self.sampling, self.history if looks_back else None)

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
            decoder = self.make_decoder(ring_steps(self.pattern, context_frames), True)
            wanted = None if num_frames is None else num_frames - prompt_frames
            given = laid_out(known, self.pattern.positions(max(prompt_frames, 1)), self.model)
            ended = known.new_full((len(known),), NEVER)
            frames = self.frames(layout, decoder, given, ended, prompt_frames, 0)
            yield from islice(frames, wanted)

    def window_by_window(
        self, known: Tensor, num_frames: int | None, context_frames: int
    ) -> Iterator[Tensor]:
        """`known` (B, K, P), then window after window until there are `num_frames`."""
        if known.shape[2]:
            yield known
        start = 0  # the frame of the recording at which the window starts
        ended = known.new_full((len(known),), NEVER)
        while num_frames is None or start + known.shape[2] < num_frames:
            if known.shape[2] == context_frames:
                kept = context_frames // 2
                start += context_frames - kept
                ended = torch.where(ended < NEVER, ended - (context_frames - kept), ended)
                known = known[:, :, context_frames - kept :]
            end = context_frames if num_frames is None else num_frames - start
            wanted = min(context_frames, end)
            prompt_frames = known.shape[2]
            # A pattern of fixed length is laid out as in training, for more than may be wanted.
            fixed = self.pattern.fixed_length
            laid, extra = (context_frames, self.model.end_token) if fixed else (wanted, 0)
            layout = WindowLayout(self.pattern, prompt_frames, laid, extra, known.device)
            decoder = self.make_decoder(layout.span, False)
            given = laid_out(known, self.pattern.positions(laid + extra), self.model)
            chunks = [known]
            frames = self.frames(layout, decoder, given, ended, prompt_frames, start)
            for chunk in islice(frames, wanted - prompt_frames):
                chunks.append(chunk)
                yield chunk
            known = torch.cat(chunks, dim=2)
            if bool((ended < NEVER).all()):
                return

    def frames(
        self,
        layout: Layout,
        decoder: Decoder,
        given: Tensor,
        ended: Tensor,
        done: int,
        start: int,
    ) -> Iterator[Tensor]:
        """Yield frames (B, K, 1) from frame `done` of the layout on, until all samples ended.

        Args:
            layout: the steps and what to sample in them.
            decoder: one that has read nothing.
            given: (B, K, 1 + steps), the special id and the first steps: the codes known before,
                and the special id in the other cells.
            ended: (B,) the frame of the layout at which each sample ended, or `NEVER`; kept up
                to date.
            start: the frame of the recording at which the layout starts.
        """
        batch, codebooks, num_given = given.shape
        end = self.model.codebook_size
        empty = given[:, :, 0]
        codebook = torch.arange(codebooks, device=given.device)
        unread = given[:, :, : 1 + layout.first_step]
        recent = given.new_empty(batch, codebooks, layout.span)  # the steps sampled last, in a ring
        for step in layout.steps():
            finished: list[Tensor] = []
            # Not around the whole: a generator that is left unfinished would end inside of it.
            with torch.inference_mode():
                row = given[:, :, 1 + step] if 1 + step < num_given else empty
                frame = layout.to_sample(step)
                if frame is not None:
                    first = int(frame[0])
                    sampled = self.sample(decoder, unread, start + done, start + first == 0)
                    unread = unread[:, :, :0]
                    # Behind its end a sample is empty, as it was in training.
                    row = torch.where((frame >= 0) & (frame < ended[:, None]), sampled, row)
                    if first >= 0:
                        self.remember(row[:, :1])
                        if self.model.end_token:
                            ended[row[:, 0] == end] = first
                unread = torch.cat([unread, row[:, :, None]], dim=2)
                recent[:, :, step % layout.span] = row
                while (where := layout.steps_of(done)) is not None and step >= where[-1]:
                    where = where.to(given.device) % layout.span
                    codes = recent[:, codebook, where][:, :, None]
                    if self.model.end_token:
                        if bool((ended <= done).all()):
                            break
                        codes = codes.masked_fill((ended <= done)[:, None, None], end)
                    finished.append(codes)
                    done += 1
            yield from finished
            if self.model.end_token and bool((ended <= done).all()):
                return


def laid_out(known: Tensor, positions: Tensor, model: AudioLM) -> Tensor:
    """The special id, then the steps of `positions` (K, T) with codes of the first P frames."""
    batch, codebooks, frames = known.shape
    given = known.new_full((batch, codebooks, 1 + num_steps(positions)), model.special)
    index = positions[:, :frames].to(known.device).expand_as(known)
    given[:, :, 1:].scatter_(2, index, known)
    return given
