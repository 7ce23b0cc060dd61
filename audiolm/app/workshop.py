"""What the app does, without its page: generates, compares, stops.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from audiolm.app.controls import request_of
from audiolm.app.results import Card, card_of_sample
from audiolm.files import counted
from audiolm.generation import Sampling
from audiolm.run_folder import RunFolder, claim_folder, time_stamp
from audiolm.synthesis.job import Job
from audiolm.synthesis.sample import Sample
from audiolm.synthesis.synthesizer import Synthesizer

OnFrames = Callable[[int, int | None], None]
"""Called with the frames that are done, and with how many there are to be."""


class StoppedByUser(Exception):
    """Somebody pressed Stop."""


class Workshop:
    """A model that is asked for samples by people, of whom each may stop their own.

    Args:
        synthesizer: the model, of a checkpoint file.
        load: makes the synthesizer of another checkpoint.
        others: checkpoints that may be compared with, by name.
        sampling: the settings that are not asked for.
        out: folder for a new folder of each request; None for the checkpoint's own run.
        max_seconds: of all samples of a request together.
        fixed: settings of each request, such as engine and weights.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        load: Callable[[Path], Synthesizer],
        others: Mapping[str, Path],
        *,
        sampling: Sampling,
        out: Path | None = None,
        max_seconds: float = 300.0,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        if synthesizer.checkpoint is None:
            raise ValueError("a model in memory has no folder for its samples; load a checkpoint")
        self.synthesizer = synthesizer
        self.checkpoint = synthesizer.checkpoint
        self.others = dict(others)
        self.sampling = sampling
        self.out = out
        self.max_seconds = max_seconds
        self._load = load
        self._fixed = dict(fixed or {})
        self._other: tuple[Path, Synthesizer] | None = None
        self._stops: dict[str, threading.Event] = {}

    def generate(
        self,
        who: str,
        values: Mapping[str, Any],
        conditions: Mapping[str, Any],
        on_frames: OnFrames,
    ) -> Generator[Tensor, None, tuple[list[Card], str]]:
        """Generate samples and save them as generate.py does, to the byte.

        Args:
            who: asks for them, for `stop`.
            values, conditions: see `controls.request_of`.
            on_frames: called after each frame.

        Yields:
            Blocks (C, n) of the first sample, while it is generated.

        Returns:
            Their cards, and a line about them.

        Raises:
            StoppedByUser: by `stop`; nothing is kept.
            ValueError, OSError: what was asked for cannot be had; one line.
            FloatingPointError: the model gives NaN.
        """
        with self._stoppable(who) as stop:
            return (
                yield from self._generate(self.synthesizer, values, conditions, on_frames, stop)
            )

    def compare(
        self,
        who: str,
        name: str | None,
        values: Mapping[str, Any],
        conditions: Mapping[str, Any],
        on_frames: OnFrames,
    ) -> list[Card]:
        """Samples of the model and of another with the same seeds, in pairs.

        Args:
            name: of the other, one of `others`.

        Raises:
            As `generate`.
        """
        if name not in self.others:
            raise ValueError(f"no checkpoint {name} to compare with; choose one of the menu")
        with self._stoppable(who) as stop:
            both = []
            other = self._synthesizer_of(self.others[name])
            for model, synthesizer in (("this", self.synthesizer), (name, other)):
                made = self._generate(synthesizer, values, conditions, on_frames, stop, model)
                both.append(_result(made)[0])
            return [card for pair in zip(*both, strict=True) for card in pair]

    def enter(self, who: str) -> None:
        """They wait for their turn to `generate` or to `compare`; `stop` is of this too."""
        self._stops.setdefault(who, threading.Event())

    def stop(self, who: str, leaving: bool = False) -> bool:
        """End what they wait for, or what is generated for them, after the next frame.

        leaving: they do not come back, so that nothing is kept of them.

        Returns:
            Whether there was such a thing.
        """
        event = self._stops.pop(who, None) if leaving else self._stops.get(who)
        if event is None:
            return False
        event.set()
        return True

    def folders(self) -> list[Path]:
        """Where samples are saved."""
        if self.out is not None:
            return [self.out]
        return [_generated(path) for path in (self.checkpoint, *self.others.values())]

    def _generate(
        self,
        synthesizer: Synthesizer,
        values: Mapping[str, Any],
        conditions: Mapping[str, Any],
        on_frames: OnFrames,
        stop: threading.Event,
        model: str = "",
    ) -> Generator[Tensor, None, tuple[list[Card], str]]:
        request = request_of(
            synthesizer, {**self._fixed, **values}, conditions, self.sampling, self.max_seconds
        )
        job = synthesizer.prepare(request)

        def after_a_frame(done: int) -> None:
            if stop.is_set():
                raise StoppedByUser
            on_frames(done, job.num_frames)

        samples = yield from job.samples_heard(after_a_frame)
        checkpoint = synthesizer.checkpoint or self.checkpoint
        folder = claim_folder((self.out or _generated(checkpoint)) / time_stamp())
        stems = [folder / f"sample_{i:03d}" for i in range(len(samples))]
        for sample, stem in zip(samples, stems, strict=True):
            sample.save(stem)
        cards = [card_of_sample(s, stem, model) for s, stem in zip(samples, stems, strict=True)]
        return cards, _line(job, samples, folder)

    def _synthesizer_of(self, checkpoint: Path) -> Synthesizer:
        """One more model is kept, the last one that was compared with."""
        if self._other is None or self._other[0] != checkpoint:
            self._other = None  # before the next is there too
            self._other = (checkpoint, self._load(checkpoint))
        return self._other[1]

    @contextmanager
    def _stoppable(self, who: str) -> Iterator[threading.Event]:
        self.enter(who)
        stop = self._stops[who]
        try:
            if stop.is_set():
                raise StoppedByUser
            yield stop
        finally:
            if self._stops.get(who) is stop:
                del self._stops[who]


def _result(
    made: Generator[Tensor, None, tuple[list[Card], str]],
) -> tuple[list[Card], str]:
    """What a generator returns, when nobody listens."""
    while True:
        try:
            next(made)
        except StopIteration as end:
            result: tuple[list[Card], str] = end.value
            return result


def _generated(checkpoint: Path) -> Path:
    return RunFolder.of(checkpoint).path / "generated"


def _line(job: Job, samples: list[Sample], folder: Path) -> str:
    speed = samples[0].speed
    words = f"{counted(len(samples), 'sample')} in `{folder}`"
    if speed.frames_per_second is not None and speed.realtime_factor is not None:
        words += (
            f", {speed.frames_per_second:.0f} frames/s generated, "
            f"{speed.realtime_factor:.2f} times real time"
        )
    return ". ".join([words, *job.notes])
