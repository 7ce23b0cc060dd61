"""Generate audio with a trained model: python scripts/generate.py [ckpt_path=FILE] [key=value]

conditioning.COLUMN=VALUE tells a conditional model what to say: conditioning.label=7.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from tqdm import tqdm

from audiolm.audio import GrowingWav, read_audio, write_wav
from audiolm.audio.write import RawSound
from audiolm.cli.app import start
from audiolm.cli.build import make_sampling
from audiolm.cli.stdout import play_hint, standard_output
from audiolm.codec import EncodecCodec, load_codec
from audiolm.files import replacing
from audiolm.generation import Sampling, cut_at_end, prepare, stream
from audiolm.generation.engines.engine import Engine, why_not_native
from audiolm.generation.sampling import check_sampling
from audiolm.model.checkpoint import TrainedModel, load_checkpoint
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.likelihood import nats_per_code
from audiolm.run_folder import (
    codec_folders,
    find_checkpoint,
    out_folder,
)
from audiolm.spectrogram import plot_spectrogram
from audiolm.synthesis.detectors import longest_loop, longest_silence


def main(cfg: DictConfig) -> None:
    check_output(cfg)
    if cfg.out == "-":
        with standard_output() as raw:
            generate(cfg, raw)
    else:
        generate(cfg, None)


def check_output(cfg: DictConfig) -> None:
    """Refuse what does not go together, before anything is loaded."""
    if cfg.num_samples < 1:
        raise ValueError(f"num_samples={cfg.num_samples} must be at least 1")
    if cfg.out == "-" and cfg.num_samples > 1:
        raise ValueError(
            f"out=- is one sound, not num_samples={cfg.num_samples}; pass num_samples=1, "
            f"or out=DIR for files"
        )
    if cfg.best_of < 1:
        raise ValueError(f"best_of={cfg.best_of} must be at least 1")
    if cfg.best_of > 1 and (cfg.stream or cfg.out == "-"):
        raise ValueError(
            f"best_of={cfg.best_of} chooses among whole samples, and cannot be heard while they "
            f"are drawn; leave stream=true and out=- away"
        )
    if cfg.duration == math.inf and not (cfg.stream or cfg.out == "-"):
        raise ValueError("duration=inf is for what is heard as it is made; pass stream=true too")


def generate(cfg: DictConfig, raw: BinaryIO | None) -> None:
    """Draw the samples, and write them to `raw`, or to files where it is None."""
    began = time.perf_counter()
    path = find_checkpoint(cfg.ckpt_path)
    trained = load_checkpoint(path)
    device = choose_device(cfg.device)
    trained.model.to(device)
    codec = load_codec(trained.codec, codec_folders(path), cfg.codec_repository).to(device)
    num_frames = frames_of_duration(cfg.duration, codec)
    prompt = encode_prompt(cfg, codec, trained.context_frames)
    out = out_folder(cfg.out, path)
    sampling = make_sampling(cfg)
    check_sampling(sampling, trained.model, trained.vocabulary)
    told = told_by(cfg)
    count = cfg.num_samples * cfg.best_of
    conditions = read_conditions(told, trained.vocabulary, count)
    loaded = time.perf_counter()
    engine = prepare(
        trained.model,
        trained.pattern,
        num_frames,
        trained.context_frames,
        count,
        sampling=sampling,
        engine=cfg.engine,
        weights=cfg.weights,
    )
    built = time.perf_counter()
    seeds = [cfg.seed + i for i in range(count)]
    drawing = Drawing(
        trained, codec, num_frames, seeds, prompt, sampling, conditions, engine, cfg.best_of
    )
    about = {
        "checkpoint": str(path),
        "step": trained.step,
        "prompt": cfg.prompt,
        "prompt_seconds": 0.0 if prompt is None else prompt.shape[1] / codec.frame_rate,
        "conditioning": told,
        "sampling": dataclasses.asdict(sampling),
        "best_of": cfg.best_of,
        "codec": trained.codec,
        "engine": engine.name,
        "weights": cfg.weights,
        "seconds_loading": loaded - began,
        "seconds_building": built - loaded,
    }
    slower = cfg.engine == "auto" and engine.name == "eager" and why_not_native(trained.model)
    if slower:
        print(f"drawn by plain PyTorch, which is slower: {slower}")
    if raw is not None:
        write_raw(drawing, cfg.duration, raw, about)
    elif cfg.stream:
        write_growing(drawing, cfg.duration, out, about)
    else:
        write_whole(drawing, cfg.duration, out, about)


def told_by(cfg: DictConfig) -> dict[str, Any]:
    """What the config tells of the samples, by column; null tells nothing."""
    told: Any = OmegaConf.to_container(cfg.conditioning, resolve=True)
    return {column: value for column, value in told.items() if value is not None}


def read_conditions(
    told: dict[str, Any], vocabulary: ConditionVocabulary | None, count: int
) -> dict[str, Tensor] | None:
    """What the user tells of each of `count` samples; None for an unconditional model.

    Raises:
        ValueError: for what the model does not know, and a .npy file that is none.
        OSError: a .npy file that cannot be read.
    """
    if vocabulary is None:
        if told:
            raise ValueError(
                f"conditioning.{next(iter(told))}: this model was trained without conditions; "
                f"leave it away, or train with conditioning=label or conditioning=text"
            )
        return None
    told = dict(told)
    if (text := told.get(vocabulary.text or "")) is not None:
        unknown = vocabulary.unknown_characters(text)
        if unknown:
            print(f"skipped in the text, as no text in training had them: {unknown}")
    vector = told.get(vocabulary.vector or "")
    if isinstance(vector, str) and vector.endswith(".npy"):
        try:
            told[vocabulary.vector or ""] = np.load(vector, allow_pickle=False).ravel().tolist()
        except EOFError as error:
            raise ValueError(f"{vector} is empty; give a .npy file of numbers") from error
    return vocabulary.encode([told] * count)


@dataclass
class Drawing:
    """What is to be drawn: B = len(seeds) samples of `num_frames`, or without end for None.

    Of each `best_of` in turn, the one that the model finds the most probable is kept.
    """

    trained: TrainedModel
    codec: EncodecCodec
    num_frames: int | None
    seeds: list[int]
    prompt: Tensor | None
    sampling: Sampling
    conditions: dict[str, Tensor] | None
    engine: Engine
    best_of: int
    ended: set[int] = field(default_factory=set)  # of the samples that are streamed

    def chunks(self) -> Iterator[Tensor]:
        """Codes (B, K, t), with a bar of frames; its factor of real time counts all samples."""
        drawn = stream(
            self.trained.model,
            self.trained.pattern,
            self.num_frames,
            self.trained.context_frames,
            self.seeds,
            self.prompt,
            sampling=self.sampling,
            conditions=self.conditions,
            engine=self.engine,
        )
        count = len(self.seeds)
        with tqdm(total=self.num_frames, unit="frame", desc=_samples(count)) as bar:
            for chunk in drawn:
                yield chunk
                bar.update(chunk.shape[2])
                seconds = max(bar.format_dict["elapsed"], 1e-3)
                drawn_frames = bar.n - (0 if self.prompt is None else self.prompt.shape[-1])
                realtime = count * drawn_frames / self.codec.frame_rate / seconds
                bar.set_postfix_str(f"{realtime:.1f} x real time", refresh=False)

    def codes(self) -> list[Tensor]:
        """Codes (K, T) of all samples and candidates."""
        size = self.trained.model.codebook_size
        return cut_at_end(torch.cat(list(self.chunks()), dim=2), size)

    def best(self, drawn: list[Tensor]) -> list[Sample]:
        """The samples; of several candidates each the best."""
        samples = [
            self._sample(b, codes, codes.shape[1] != self.num_frames)
            for b, codes in enumerate(drawn)
        ]
        groups = [samples[i : i + self.best_of] for i in range(0, len(samples), self.best_of)]
        return [min(group, key=lambda sample: sample.nats_per_code) for group in groups]

    def _sample(self, b: int, codes: Tensor, ended: bool) -> Sample:
        conditions = self.conditions and {
            name: values[b : b + 1] for name, values in self.conditions.items()
        }
        nats = nats_per_code(
            self.trained.model,
            self.trained.pattern,
            codes,
            self.trained.context_frames,
            conditions,
            ended,
        )
        return Sample(self.seeds[b], codes, ended, nats)

    def blocks(self, num_samples: int | None) -> Iterator[list[Tensor]]:
        """Blocks of sound (C, n) of each sample, as the codes come; empty behind its end.

        `num_samples` of sound each at most, None for no limit.
        """
        streams = [  # nothing else holds a copy, which would keep all that is drawn after its end
            self.codec.decode_stream(self._codes_of(b, chunks))
            for b, chunks in enumerate(itertools.tee(self.chunks(), len(self.seeds)))
        ]
        written = [0] * len(streams)
        nothing = torch.empty(self.codec.channels, 0)
        while True:
            blocks = []
            for b, sound in enumerate(streams):
                block = next(sound, None)
                block = nothing if block is None else block[0].cpu()
                if num_samples is not None:
                    block = block[:, : num_samples - written[b]]
                written[b] += block.shape[1]
                blocks.append(block)
            if not any(block.shape[1] for block in blocks):
                return
            yield blocks

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


@dataclass
class Sample:
    """What was drawn: codes (K, T), whether it ended by itself, and its own mean nats per code."""

    seed: int
    codes: Tensor
    ended: bool
    nats_per_code: float


def write_whole(drawing: Drawing, duration: float, out: Path, about: dict[str, Any]) -> None:
    """Draw all, then write it: sound scaled to fit, a picture, and figures."""
    out.mkdir(parents=True, exist_ok=True)
    codec = drawing.codec
    started = time.perf_counter()
    codes = drawing.codes()
    seconds = time.perf_counter() - started
    samples = drawing.best(codes)
    started = time.perf_counter()
    waveforms = [
        codec.decode(
            sample.codes[None], None if sample.ended else round(duration * codec.sample_rate)
        )[0].cpu()
        for sample in samples
    ]
    seconds += time.perf_counter() - started
    drawn = sum(drawn_seconds(drawing, c.shape[1] * codec.hop_length) for c in codes)
    speed = speeds(drawn, codec.frame_rate, seconds)
    for i, (sample, waveform) in enumerate(zip(samples, waveforms, strict=True)):
        stem = out / f"sample_{i:03d}"
        gain = write_wav(stem.with_suffix(".wav"), waveform, codec.sample_rate)
        title = f"step {about['step']}, seed {sample.seed}"
        plot_spectrogram(stem.with_suffix(".png"), waveform, codec.sample_rate, title)
        figures = {
            "seed": sample.seed,
            "duration": waveform.shape[1] / codec.sample_rate,
            "ended": sample.ended,
            "nats_per_code": sample.nats_per_code,
            **findings(sample.codes.cpu(), waveform, codec),
            **speed,
            "gain": gain,
        }
        write_json(stem, {**about, **figures})
    print(
        f"wrote {_samples(len(samples))} of {lengths(samples, codec)} to {out}{speed_words(speed)}"
    )
    if drawing.trained.model.end_token and drawing.sampling.end:
        guarded = sum(not sample.ended for sample in samples)
        print(
            f"ended by itself: {len(samples) - guarded} of {len(samples)}"
            + (f"; the rest was cut at duration={duration:g}" if guarded else "")
        )
    print_engine(about)
    print("next: listen to them, or go on with a recording: prompt=FILE prompt_duration=2")


def lengths(samples: Sequence[Sample], codec: EncodecCodec) -> str:
    """In words: "5 s", or "0.3 to 0.5 s"."""
    seconds = sorted(sample.codes.shape[1] / codec.frame_rate for sample in samples)
    shortest, longest = f"{seconds[0]:.3g}", f"{seconds[-1]:.3g}"
    return f"{longest} s" if shortest == longest else f"{shortest} to {longest} s"


def findings(codes: Tensor, waveform: Tensor, codec: EncodecCodec) -> dict[str, Any]:
    """Of codes (K, T) and their sound (C, N): the longest silence and the longest loop."""
    loop = longest_loop(codes, codec.frame_rate)
    return {
        "longest_silence": dataclasses.asdict(longest_silence(waveform, codec.sample_rate)),
        "longest_loop": {**dataclasses.asdict(loop), "repeats": loop.repeats},
    }


def write_growing(drawing: Drawing, duration: float, out: Path, about: dict[str, Any]) -> None:
    """Draw into files that may be played while they grow; Ctrl-C keeps what there is."""
    codec = drawing.codec
    with ExitStack() as stack:
        files = [
            stack.enter_context(
                GrowingWav(out / f"sample_{i:03d}.wav", codec.sample_rate, codec.channels)
            )
            for i in range(len(drawing.seeds))
        ]
        print(f"may be played while it grows: {files[0].part}", flush=True)
        live = play(drawing, duration, files)
    for b, (seed, file) in enumerate(zip(drawing.seeds, files, strict=True)):
        if file.num_samples:
            figures = {
                "seed": seed,
                "ended": b in drawing.ended,
                "duration": file.num_samples / codec.sample_rate,
                **live.figures(),
                "clipped_samples": file.clipped,
            }
            write_json(file.path.with_suffix(""), {**about, **figures})
    live.report(_samples(len(files)), str(out), sum(file.clipped for file in files))
    print_engine(about)
    live.raise_stop()


def write_raw(drawing: Drawing, duration: float, raw: BinaryIO, about: dict[str, Any]) -> None:
    """Draw into a file of bytes."""
    codec = drawing.codec
    print(play_hint(codec.sample_rate, codec.channels), flush=True)
    sound = RawSound(raw)
    live = play(drawing, duration, [sound])
    live.report(_samples(1), "standard output", sound.clipped)
    print_engine(about)
    live.raise_stop()


@dataclass
class Live:
    """How drawing and writing side by side went."""

    frame_rate: float
    sound: float
    """Seconds of the longest sample."""
    drawn: float
    """Seconds of all of them that are not the prompt's."""
    prompted: bool
    seconds: float
    to_first_sound: float | None
    """Seconds; of the prompt's own sound where there is one."""
    stopped: bool
    """By Ctrl-C."""

    def figures(self) -> dict[str, Any]:
        return {
            "stopped": self.stopped,
            "seconds_to_first_sound": self.to_first_sound,
            **speeds(self.drawn, self.frame_rate, self.seconds),
        }

    def report(self, what: str, where: str, clipped: int) -> None:
        if self.to_first_sound is None:
            print(f"nothing written to {where}: stopped before the first sound")
            return
        speed = speeds(self.drawn, self.frame_rate, self.seconds)
        whose = ", the prompt's," if self.prompted else ""
        print(
            f"wrote {what} of {self.sound:.4g} s to {where}{speed_words(speed)}, first "
            f"sound{whose} after {self.to_first_sound:.2f} s"
            + (f"; {clipped} samples beyond full scale were clipped" if clipped else "")
        )

    def raise_stop(self) -> None:
        if self.stopped:
            raise KeyboardInterrupt(f"stopped after {self.sound:.4g} s of sound")


def play(drawing: Drawing, duration: float, sinks: Sequence[GrowingWav | RawSound]) -> Live:
    """Write each sample to its sink as it is drawn, until `duration` or Ctrl-C."""
    rate = drawing.codec.sample_rate
    to_first_sound, stopped = None, False
    started = time.perf_counter()
    try:
        for block in drawing.blocks(None if duration == math.inf else round(duration * rate)):
            for sink, sound in zip(sinks, block, strict=True):
                if sound.shape[1]:
                    sink.write(sound)
            if to_first_sound is None:
                to_first_sound = time.perf_counter() - started
    except KeyboardInterrupt:
        stopped = True
    seconds = time.perf_counter() - started
    return Live(
        drawing.codec.frame_rate,
        max(sink.num_samples for sink in sinks) / rate,
        sum(drawn_seconds(drawing, sink.num_samples) for sink in sinks),
        drawing.prompt is not None,
        seconds,
        to_first_sound,
        stopped,
    )


def drawn_seconds(drawing: Drawing, num_samples: int) -> float:
    """Of so many samples of sound, those behind the prompt, which is not drawn."""
    codec = drawing.codec
    given = 0 if drawing.prompt is None else drawing.prompt.shape[1] * codec.hop_length
    return max(0, num_samples - given) / codec.sample_rate


def speeds(drawn: float, frame_rate: float, seconds: float) -> dict[str, float | None]:
    """Of drawing samples of `drawn` seconds in all; None where nothing was drawn."""
    realtime = drawn / seconds if drawn else None
    return {
        "frames_per_second": None if realtime is None else realtime * frame_rate,
        "realtime_factor": realtime,
    }


def speed_words(speed: dict[str, float | None]) -> str:
    frames, realtime = speed["frames_per_second"], speed["realtime_factor"]
    if frames is None or realtime is None:
        return ": the prompt alone, nothing was drawn"
    return f" at {frames:.0f} frames/s drawn, {realtime:.2f} times real time"


def print_engine(about: dict[str, Any]) -> None:
    print(
        f"engine {about['engine']}, weights {about['weights']}; before drawing: "
        f"{about['seconds_loading']:.1f} s loading, {about['seconds_building']:.1f} s building"
    )


def _samples(count: int) -> str:
    return f"{count} sample{'' if count == 1 else 's'}"


def choose_device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device={device} is unknown; choose auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda: torch sees no GPU here; pass device=cpu")
    return torch.device(device)


def frames_of_duration(duration: float, codec: EncodecCodec) -> int | None:
    """None for no end."""
    if not duration >= 1 / codec.sample_rate:
        raise ValueError(f"duration={duration} s must be above 0")
    return None if duration == math.inf else math.ceil(duration * codec.frame_rate)


def encode_prompt(cfg: DictConfig, codec: EncodecCodec, context_frames: int) -> Tensor | None:
    """Codes (K, P) of the prompt, whole frames only: the last, padded one would be a seam."""
    if cfg.prompt is None:
        return None
    if cfg.prompt_duration is not None and not cfg.prompt_duration > 0:
        raise ValueError(f"prompt_duration={cfg.prompt_duration} s must be above 0")
    waveform, _ = read_audio(
        cfg.prompt, codec.sample_rate, codec.channels, duration=cfg.prompt_duration
    )
    frames = waveform.shape[1] // codec.hop_length
    if frames < 1:
        raise ValueError(
            f"the prompt {cfg.prompt} has {waveform.shape[1]} samples, less than one frame of "
            f"{codec.hop_length}; take a longer one"
        )
    seconds, context = frames / codec.frame_rate, context_frames / codec.frame_rate
    if frames > context_frames or seconds > cfg.duration:
        raise ValueError(
            f"the prompt of {seconds:.2f} s must be no longer than the model's context of "
            f"{context:.2f} s and than duration={cfg.duration:g}, which includes it; pass "
            f"prompt_duration={min(context, cfg.duration) / 2:.2g}"
        )
    return codec.encode(waveform[None, :, : frames * codec.hop_length])[0]


def write_json(stem: Path, about: dict[str, Any]) -> None:
    with replacing(stem.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    start("generate", main)
