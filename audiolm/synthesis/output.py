"""A job's samples written to files, whole or while they grow, or as raw sound.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from audiolm.audio import GrowingWav
from audiolm.audio.write import RawSound
from audiolm.files import counted
from audiolm.progress import waiting
from audiolm.synthesis.job import Job
from audiolm.synthesis.sample import Sample, Speed, speed_of, stem_of, write_json


def write_whole(job: Job, out: Path) -> None:
    """Generate all, then write sample_000.wav, its picture and its JSON, and so on."""
    out.mkdir(parents=True, exist_ok=True)
    samples = job.samples()
    with waiting("writing"):
        for i, sample in enumerate(samples):
            sample.save(out / f"sample_{i:03d}.wav")
    speed = _speed_in_words(samples[0].speed)
    print(f"wrote {counted(len(samples), 'sample')} of {_lengths(samples)} to {out}{speed}")
    if job.trained.model.end_token and job.sampling.end:
        cut = sum(not sample.ended for sample in samples)
        print(
            f"ended by itself: {len(samples) - cut} of {len(samples)}"
            + (f"; the rest was cut at duration={_duration(job):g}" if cut else "")
        )
    _print_engine(job)
    print("next: listen to them, or continue a recording: prompt=FILE prompt_duration=2")


def write_growing(job: Job, out: Path) -> None:
    """Generate into files that may be played while they grow; Ctrl-C keeps what there is.

    Raises:
        KeyboardInterrupt: it was stopped, once everything is written.
    """
    job.check_fits_a_wav()
    codec = job.codec
    with ExitStack() as stack:
        files = [
            stack.enter_context(
                GrowingWav(out / f"sample_{i:03d}.wav", codec.sample_rate, codec.channels)
            )
            for i in range(len(job.seeds))
        ]
        print(f"may be played while it grows: {files[0].part}", flush=True)
        live = play(job, files)
    for b, (seed, file) in enumerate(zip(job.seeds, files, strict=True)):
        if file.num_samples:
            measured = {
                "seed": seed,
                "ended": b in job.ended,
                "duration": file.num_samples / codec.sample_rate,
                **live.describe(),
                "clipped_samples": file.clipped,
            }
            write_json(stem_of(file.path), {**job.settings_of(b), **measured})
    live.report(counted(len(files), "sample"), str(out), sum(file.clipped for file in files))
    _print_engine(job)
    live.raise_stop()


def write_raw(job: Job, raw: BinaryIO) -> None:
    """Generate one sample into a file of bytes, 16-bit little-endian.

    Raises:
        KeyboardInterrupt: it was stopped.
        BrokenPipeError: the reader has left.
    """
    sound = RawSound(raw)
    live = play(job, [sound])
    live.report(counted(1, "sample"), "standard output", sound.clipped)
    _print_engine(job)
    live.raise_stop()


@dataclass
class Live:
    """How generating and writing side by side went."""

    sound: float
    """Seconds of the longest sample."""
    speed: Speed
    prompted: bool
    to_first_sound: float | None
    """Seconds; of the prompt's own sound where there is one."""
    stopped: bool
    """By Ctrl-C."""

    def describe(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "stopped": self.stopped,
            "seconds_to_first_sound": self.to_first_sound,
            **dataclasses.asdict(self.speed),
        }

    def report(self, what: str, where: str, clipped: int) -> None:
        """Print it in a line."""
        if self.to_first_sound is None:
            print(f"nothing written to {where}: stopped before the first sound")
            return
        whose = ", the prompt's," if self.prompted else ""
        print(
            f"wrote {what} of {self.sound:.4g} s to {where}{_speed_in_words(self.speed)}, first "
            f"sound{whose} after {self.to_first_sound:.2f} s"
            + (f"; {clipped} samples beyond full scale were clipped" if clipped else "")
        )

    def raise_stop(self) -> None:
        """Hand Ctrl-C on, once everything is written."""
        if self.stopped:
            raise KeyboardInterrupt(f"stopped after {self.sound:.4g} s of sound")


def play(job: Job, sinks: Sequence[GrowingWav | RawSound]) -> Live:
    """Write each sample to its sink while it is generated, until its end or Ctrl-C."""
    to_first_sound, stopped = None, False
    started = time.perf_counter()
    try:
        for blocks in job.blocks():
            for sink, block in zip(sinks, blocks, strict=True):
                if block.shape[1]:
                    sink.write(block)
            if to_first_sound is None:
                to_first_sound = time.perf_counter() - started
    except KeyboardInterrupt:
        stopped = True
    seconds = time.perf_counter() - started
    generated = sum(job.generated_seconds(sink.num_samples) for sink in sinks)
    return Live(
        max(sink.num_samples for sink in sinks) / job.codec.sample_rate,
        speed_of(generated, job.codec.frame_rate, seconds),
        job.prompt is not None,
        to_first_sound,
        stopped,
    )


def _duration(job: Job) -> float:
    """Seconds that were asked for."""
    return (job.audio_samples or 0) / job.codec.sample_rate


def _lengths(samples: Sequence[Sample]) -> str:
    """In words: "5 s", or "0.3 to 0.5 s"."""
    seconds = sorted(sample.codes.shape[1] / sample.frame_rate for sample in samples)
    shortest, longest = f"{seconds[0]:.3g}", f"{seconds[-1]:.3g}"
    return f"{longest} s" if shortest == longest else f"{shortest} to {longest} s"


def _speed_in_words(speed: Speed) -> str:
    if speed.frames_per_second is None or speed.realtime_factor is None:
        return ": the prompt alone, nothing was generated"
    return (
        f" at {speed.frames_per_second:.0f} frames/s generated, "
        f"{speed.realtime_factor:.2f} times real time, decoding included"
    )


def _print_engine(job: Job) -> None:
    about = job.settings
    print(
        f"engine {about['engine']}, weights {about['weights']}; before generating: "
        f"{about['seconds_loading']:.1f} s loading, {about['seconds_building']:.1f} s building"
    )
