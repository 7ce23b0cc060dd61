"""A job: some samples of one model, as codes, as whole samples, or as sound while it is made.

Here is the one way from a model to sound: generate, cut at the end, choose the best, decode.

Letters: B samples, C audio channels, N audio samples, K codebooks, T codec frames, V codes in a
codebook.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from audiolm.audio.write import wav_capacity
from audiolm.codec import Codec
from audiolm.files import counted
from audiolm.generation import Sampling, cut_at_end, stream
from audiolm.generation.engines.engine import Engine
from audiolm.generation.sampling import PLAIN
from audiolm.model.checkpoint import TrainedModel
from audiolm.model.likelihood import nats_per_code
from audiolm.progress import waiting
from audiolm.synthesis.sample import Sample, Speed, speed_of


@dataclass
class Job:
    """B = len(seeds) candidates, of each `best_of` of which one sample is kept.

    Args:
        trained: the model.
        codec: the one that the model was trained for.
        seeds: of the candidates.
        num_frames: T of each at most, prompt included; None for no limit.
        audio_samples: N of a sample that reached no end, which may end within its last frame; None
            for whole frames.
        prompt: codes (K, P) that all begin with.
        sampling: how codes are chosen.
        conditions: of the candidates, B rows; None for none.
        engine, weights: see `generation.stream`.
        best_of: of so many candidates in turn the one that the model finds the most probable is
            kept.
        batch_size: candidates generated at once; None for all. It changes no sample.
        progress: whether a bar shows the frames that are done.
        settings: kept with each sample.
        described: what each sample is conditioned on, in the user's words, to be kept with it.
        notes: what the user should know of the request.

    Attributes:
        ended: of the samples of `blocks`, those that reached their end.
    """

    trained: TrainedModel
    codec: Codec
    seeds: Sequence[int]
    num_frames: int | None
    audio_samples: int | None = None
    prompt: Tensor | None = None
    sampling: Sampling = PLAIN
    conditions: Mapping[str, Tensor] | None = None
    engine: Engine | str = "auto"
    weights: str = "float32"
    best_of: int = 1
    batch_size: int | None = None
    progress: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    described: Sequence[Mapping[str, Any]] | None = None
    notes: list[str] = field(default_factory=list)
    ended: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        conditioner = self.trained.model.conditioner
        if self.conditions is None and conditioner is not None:
            self.conditions = conditioner.nothing(len(self.seeds))

    @property
    def num_samples(self) -> int:
        """How many samples are kept."""
        return len(self.seeds) // self.best_of

    def check_fits_a_wav(self) -> None:
        """Refuse a sample that no WAV file would hold, before hours of generating it.

        Raises:
            ValueError: with how long it may be.
        """
        most = wav_capacity(self.codec.channels)
        if self.audio_samples is not None and self.audio_samples > most:
            rate = self.codec.sample_rate
            raise ValueError(
                f"duration={self.audio_samples / rate:g} is more than a WAV file of this codec's "
                f"sound holds, {most // rate:,} s; pass less, or stream raw sound"
            )

    def codes(self) -> list[Tensor]:
        """Codes (K, T) of all candidates, each up to its end."""
        size = self.batch_size or len(self.seeds)
        one_batch = size >= len(self.seeds) or None  # None: shown in a terminal only
        batches = tqdm(range(0, len(self.seeds), size), "samples", leave=False, disable=one_batch)
        found: list[Tensor] = []
        for first in batches:
            chunks = list(self._chunks(slice(first, first + size)))
            found += cut_at_end(torch.cat(chunks, dim=2), self.trained.model.codebook_size)
        return found

    def samples(self, score: bool = True) -> list[Sample]:
        """The samples, decoded.

        score: whether to compute `Sample.nats_per_code`, which the choice of the best needs anyway.

        Raises:
            FloatingPointError: the model gives NaN.
        """
        started = time.perf_counter()
        codes = self.codes()
        seconds = time.perf_counter() - started
        with waiting("decoding") if self.progress else nullcontext():
            return self._decoded(codes, seconds, score)

    def samples_heard(
        self, on_frames: Callable[[int], None]
    ) -> Generator[Tensor, None, list[Sample]]:
        """Generate `samples`, the same to the byte, and yield the sound of the first meanwhile.

        All are generated at once, whatever `batch_size` is.

        Args:
            on_frames: called with the frames that are done, after each; what it raises ends the
                generation.

        Yields:
            Blocks (C, n), as `blocks`, of the first sample, or with `best_of` of its first
            candidate.

        Returns:
            The samples.

        Raises:
            FloatingPointError: the model gives NaN.
        """
        started = time.perf_counter()
        kept: list[Tensor] = []

        def chunks() -> Iterator[Tensor]:
            done = 0
            for chunk in self._chunks(slice(0, len(self.seeds))):
                kept.append(chunk)
                done += chunk.shape[2]
                on_frames(done)
                yield chunk

        source = chunks()
        left = self.audio_samples
        for block in self.codec.decode_stream(self._codes_of(0, source)):
            sound = block[0, :, :left].cpu()
            left = None if left is None else left - sound.shape[1]
            if sound.shape[1]:
                yield sound
        for _ in source:  # the others may go on behind the end of the first
            pass
        codes = cut_at_end(torch.cat(kept, dim=2), self.trained.model.codebook_size)
        return self._decoded(codes, time.perf_counter() - started, score=True)

    def _decoded(self, codes: Sequence[Tensor], seconds: float, score: bool) -> list[Sample]:
        """The samples of all candidates' codes, which took so many seconds to generate."""
        nats = self._nats(codes) if score or self.best_of > 1 else None
        best = self._best(nats)
        started = time.perf_counter()
        waveforms = [self._decode(codes[b]) for b in best]
        seconds += time.perf_counter() - started
        hop = self.codec.hop_length
        generated = sum(self.generated_seconds(each.shape[1] * hop) for each in codes)
        speed = speed_of(generated, self.codec.frame_rate, seconds)
        return [
            self._sample(i, b, codes[b], waveform, None if nats is None else nats[b], speed)
            for i, (b, waveform) in enumerate(zip(best, waveforms, strict=True))
        ]

    def blocks(self) -> Iterator[list[Tensor]]:
        """Blocks of sound (C, n) of each sample, as the codes come; empty behind its end."""
        everyone = slice(0, len(self.seeds))
        streams = [  # nothing else holds a copy, which would keep all codes behind its end
            self.codec.decode_stream(self._codes_of(b, chunks))
            for b, chunks in enumerate(itertools.tee(self._chunks(everyone), len(self.seeds)))
        ]
        written = [0] * len(streams)
        nothing = torch.empty(self.codec.channels, 0)
        while True:
            blocks = []
            for b, sound in enumerate(streams):
                block = next(sound, None)
                block = nothing if block is None else block[0].cpu()
                if self.audio_samples is not None:
                    block = block[:, : self.audio_samples - written[b]]
                written[b] += block.shape[1]
                blocks.append(block)
            if not any(block.shape[1] for block in blocks):
                return
            yield blocks

    def generated_seconds(self, audio_samples: int) -> float:
        """Of so many samples of sound, those behind the prompt."""
        given = 0 if self.prompt is None else self.prompt.shape[1] * self.codec.hop_length
        return max(0, audio_samples - given) / self.codec.sample_rate

    def settings_of(self, sample: int) -> dict[str, Any]:
        """The settings, with the conditions of the sample of that index."""
        if self.described is None:
            return self.settings
        return {**self.settings, "conditioning": dict(self.described[sample])}

    def _chunks(self, some: slice) -> Iterator[Tensor]:
        """Codes (b, K, t) of some candidates, with a bar of frames if there is to be one."""
        seeds = self.seeds[some]
        chunks = stream(
            self.trained.model,
            self.trained.pattern,
            self.num_frames,
            self.trained.context_frames,
            seeds,
            self.prompt,
            sampling=self.sampling,
            conditions=self._rows(some),
            engine=self.engine,
            weights=self.weights,
        )
        return self._with_bar(chunks, len(seeds)) if self.progress else chunks

    def _with_bar(self, chunks: Iterator[Tensor], count: int) -> Iterator[Tensor]:
        """The bar is of the longest sample; its speed is of all, as in what is said at the end."""
        form = "{l_bar}{bar}| {n_fmt}/{total_fmt} frames [{elapsed}<{remaining}{postfix}]"
        if self.num_frames is None:
            form = "{desc}: {n_fmt} frames [{elapsed}{postfix}]"
        generated = -count * (0 if self.prompt is None else self.prompt.shape[-1])
        with tqdm(total=self.num_frames, desc=counted(count, "sample"), bar_format=form) as bar:
            for chunk in chunks:
                yield chunk
                bar.update(chunk.shape[2])
                # Not what is behind the end of a sample.
                generated += int((chunk[:, 0] < self.trained.model.codebook_size).sum())
                rate = max(0, generated) / max(bar.format_dict["elapsed"], 1e-3)
                bar.set_postfix_str(
                    f"{rate:.0f} frames/s, {rate / self.codec.frame_rate:.2f} times real time",
                    refresh=False,
                )

    def _codes_of(self, b: int, chunks: Iterator[Tensor]) -> Iterator[Tensor]:
        """The codes (1, K, t) of one sample, until its end."""
        frames = 0
        for chunk in chunks:
            (codes,) = cut_at_end(chunk[b : b + 1], self.trained.model.codebook_size)
            frames += codes.shape[1]
            if codes.shape[1]:
                yield codes[None]
            if codes.shape[1] < chunk.shape[2]:
                break
        if frames != self.num_frames:
            self.ended.add(b)

    def _rows(self, some: slice) -> dict[str, Tensor] | None:
        given = self.conditions
        return None if given is None else {name: rows[some] for name, rows in given.items()}

    def _nats(self, codes: Sequence[Tensor]) -> list[float]:
        return [
            nats_per_code(
                self.trained.model,
                self.trained.pattern,
                each,
                self.trained.context_frames,
                self._rows(slice(b, b + 1)),
                self._reached_end(each),
            )
            for b, each in enumerate(codes)
        ]

    def _best(self, nats: Sequence[float] | None) -> list[int]:
        """Of each group of candidates, the index of the most probable one."""
        if nats is None:
            return list(range(len(self.seeds)))
        groups = range(0, len(nats), self.best_of)
        return [min(range(i, i + self.best_of), key=nats.__getitem__) for i in groups]

    def _reached_end(self, codes: Tensor) -> bool:
        return codes.shape[1] != self.num_frames

    def _decode(self, codes: Tensor) -> Tensor:
        length = None if self._reached_end(codes) else self.audio_samples
        return self.codec.decode(codes[None], length)[0].cpu()

    def _sample(
        self, i: int, b: int, codes: Tensor, waveform: Tensor, nats: float | None, speed: Speed
    ) -> Sample:
        """Sample `i`, which is candidate `b`."""
        return Sample(
            waveform,
            self.codec.sample_rate,
            codes.cpu(),
            self.codec.frame_rate,
            self.seeds[b],
            self._reached_end(codes),
            float("nan") if nats is None else nats,
            speed,
            self.settings_of(i),
        )
