"""Measure speed beside the alternatives: python scripts/benchmark.py [sections=[encode]]

Every candidate is timed in each of several rounds, beside the machine's limits. Close other
programs first: samples that they disturb are marked, but all samples may be.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from collections.abc import Callable
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from audiolm.benchmarks.codecs import random_codec
from audiolm.benchmarks.data import DataSettings, data_section
from audiolm.benchmarks.encode import EncodeSettings, encode_section
from audiolm.benchmarks.generate import GenerateSettings, generate_section
from audiolm.benchmarks.length import LengthSettings, length_section
from audiolm.benchmarks.machine import describe_machine
from audiolm.benchmarks.report import Section, table, write_report
from audiolm.benchmarks.sizes import ModelSize
from audiolm.benchmarks.train import TrainSettings, train_section
from audiolm.cli.app import start
from audiolm.cli.build import make_codec
from audiolm.codec import EncodecCodec
from audiolm.codec.pretrained import PRETRAINED
from audiolm.files import user_path

Job = Callable[[], Section]
FULL_SIZE, FULL_SIZE_CODEBOOKS = "encodec_24khz", 8


def main(cfg: DictConfig) -> None:
    sections = {
        "train": train,
        "generate": generate,
        "length": length,
        "encode": encode,
        "data": data,
    }
    wanted = [cfg.sections] if isinstance(cfg.sections, str) else list(cfg.sections or [])
    if not wanted or any(name not in sections for name in wanted):
        raise ValueError(f"sections={cfg.sections} must be some of {', '.join(sections)}")
    if cfg.rounds < 1:
        raise ValueError(f"rounds={cfg.rounds} must be at least 1")
    out = user_path(cfg.out)
    machine = describe_machine()
    print(
        f"{machine['cpu']}, {machine['cores_usable']} of {machine['cores']} cores, "
        f"{machine['threads']} threads, torch {machine['torch']}"
    )
    codec = benchmark_codec(cfg)
    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    done: list[Section] = []
    # All settings are read before anything is timed.
    jobs = {name: sections[name](cfg, codec) for name in wanted}
    try:
        for name in jobs:
            done.append(jobs[name]())
            write_report(out, machine, settings, done)
            print(table(done[-1]))
    except KeyboardInterrupt:
        there = f"; {', '.join(s.name for s in done)} in {out}" if done else ""
        raise KeyboardInterrupt(f"stopped{there}") from None
    print(f"results   {out}")


def benchmark_codec(cfg: DictConfig) -> EncodecCodec:
    """The config's codec, or one of full size that needs no weights."""
    if cfg.full_size:
        return random_codec(PRETRAINED[FULL_SIZE].settings, FULL_SIZE_CODEBOOKS)
    return make_codec(cfg)


def train(cfg: DictConfig, codec: EncodecCodec) -> Job:
    optim: Any = OmegaConf.to_container(cfg.optim, resolve=True)
    trainer: Any = OmegaConf.to_container(cfg.trainer, resolve=True)
    del trainer["_target_"]
    settings = TrainSettings(**cfg.train, optim=optim, trainer=trainer)
    return partial(train_section, settings, ModelSize(**cfg.compared), cfg.rounds)


def generate(cfg: DictConfig, codec: EncodecCodec) -> Job:
    settings: Any = OmegaConf.to_container(cfg.generate, resolve=True)
    return partial(generate_section, GenerateSettings(**settings), ModelSize(**cfg.compared))


def length(cfg: DictConfig, codec: EncodecCodec) -> Job:
    optim: Any = OmegaConf.to_container(cfg.optim, resolve=True)
    settings: Any = OmegaConf.to_container(cfg.length, resolve=True)
    return partial(
        length_section, LengthSettings(**settings, optim=optim), ModelSize(**cfg.compared)
    )


def encode(cfg: DictConfig, codec: EncodecCodec) -> Job:
    audio = None if cfg.audio is None else user_path(cfg.audio)
    return partial(encode_section, EncodeSettings(**cfg.encode), codec, audio, cfg.rounds)


def data(cfg: DictConfig, codec: EncodecCodec) -> Job:
    model: Any = OmegaConf.to_container(cfg.model, resolve=True)
    optim: Any = OmegaConf.to_container(cfg.optim, resolve=True)
    settings = DataSettings(**cfg.data, model=model, pattern=cfg.pattern.name, optim=optim)
    return partial(data_section, settings, codec, cfg.rounds)


if __name__ == "__main__":
    start("benchmark", main)
