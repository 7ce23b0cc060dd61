"""Every config composes, and its keys are arguments of what it builds."""

from __future__ import annotations

import inspect
from dataclasses import fields

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, ListConfig, OmegaConf

from audiolm.codec import check_settings
from audiolm.codec.settings import OPTIONAL
from audiolm.datasets.checks.rules import Rules
from audiolm.datasets.folder import folder_clips
from audiolm.generation import Sampling
from audiolm.model import AudioLM
from audiolm.training.codec.augment import AUGMENT
from audiolm.training.codec.data import WaveformData
from audiolm.training.codec.module import CodecTraining
from audiolm.training.codec.options import ADVERSARIAL, LOSSES, QUANTIZATION
from audiolm.training.optimisation import make_optimizer

from .conftest import ROOT

CONFIGS = ROOT / "configs"
CHOICES = [f"{file.parent.name}={file.stem}" for file in sorted(CONFIGS.glob("*/*.yaml"))]
# Those that only train_codec.py has.
CODEC_CHOICES = [c for c in CHOICES if c.startswith("codec_model=") or c.endswith("_codec")]


def compose(name: str, *overrides: str) -> DictConfig:
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(name, overrides=list(overrides))


@pytest.mark.parametrize("choice", ["", *(c for c in CHOICES if c not in CODEC_CHOICES)])
def test_train_composes_with_every_choice(choice: str) -> None:
    cfg = compose("train", *([choice] if choice else []))
    parameters = inspect.signature(AudioLM).parameters
    assert set(cfg.model) <= set(parameters)
    assert set(cfg.optim) <= set(inspect.signature(make_optimizer).parameters)
    brought = cfg.data.get("callbacks", {})
    for node in (cfg.trainer, cfg.codec, *cfg.callbacks.values(), *brought.values()):
        if node is not None:
            assert_keys_are_arguments(node)


def assert_keys_are_arguments(node: DictConfig) -> None:
    known = set(inspect.signature(hydra.utils.get_object(node._target_)).parameters)
    assert {key for key in node if key != "_target_"} <= known, node._target_


@pytest.mark.parametrize("choice", ["", *CODEC_CHOICES, "trainer=cpu", "logger=csv", "data=demo"])
def test_train_codec_composes_with_every_choice(choice: str) -> None:
    cfg = compose("train_codec", *([choice] if choice else []))
    settings = OmegaConf.to_container(cfg.codec_model)
    assert check_settings(settings).keys() - settings.keys() <= OPTIONAL.keys()
    assert set(cfg.optim) <= set(inspect.signature(make_optimizer).parameters)
    for node in cfg.callbacks.values():
        assert_keys_are_arguments(node)
    data = set(inspect.signature(WaveformData).parameters)
    of_the_source = {"source", *inspect.signature(folder_clips).parameters}
    of_the_store = {"path", "store", "group", "num_melodies", "callbacks"}
    assert set(cfg.data) - of_the_source - of_the_store <= data


def test_the_defaults_of_a_codecs_training_are_those_of_its_config() -> None:
    cfg = compose("train_codec")
    for name, defaults in (
        ("losses", LOSSES),
        ("quantization", QUANTIZATION),
        ("adversarial", ADVERSARIAL),
        ("data.augment", AUGMENT),
    ):
        assert OmegaConf.to_container(OmegaConf.select(cfg, name)) == defaults
    given = inspect.signature(CodecTraining).parameters
    for name in ("warmup", "mel_floor", "mel_rise", "clip", "seed"):
        value = cfg[name]
        assert (tuple(value) if isinstance(value, ListConfig) else value) == given[name].default
    segments = inspect.signature(WaveformData).parameters
    for name, parameter in segments.items():
        if name in cfg.data and name not in ("augment", "level"):
            assert cfg.data[name] == parameter.default, name
    assert tuple(cfg.data.level) == segments["level"].default


@pytest.mark.parametrize("choice", [c for c in CHOICES if c.startswith("data=")])
def test_a_sources_keys_are_arguments_of_what_it_calls(choice: str) -> None:
    cfg = compose("prepare", choice, "++data.path=x", "++data.root=x", "++data.name=x")
    if cfg.data.source is None:
        return
    source = OmegaConf.to_container(cfg.data.source, resolve=True)
    assert isinstance(source, dict)
    known = set(inspect.signature(hydra.utils.get_object(source.pop("_target_"))).parameters)
    assert set(source) <= known


def test_rules_and_their_config_are_the_same() -> None:
    rules = OmegaConf.to_container(compose("prepare").rules)
    assert isinstance(rules, dict)
    assert Rules.from_config(rules) == Rules()
    assert set(rules) == {"max_dropped", *Rules.names()}


@pytest.mark.parametrize("name", [file.stem for file in sorted(CONFIGS.glob("*.yaml"))])
def test_every_script_composes(name: str) -> None:
    assert (ROOT / "scripts" / f"{name}.py").is_file()
    compose(name)


def test_sampling_keys_are_those_of_its_class() -> None:
    cfg = compose("generate")
    assert set(cfg.sampling) == {field.name for field in fields(Sampling)}


def test_presets_say_their_size(make_tiny_codec: object) -> None:
    """The numbers in the comments, to the digits given."""
    files = sorted((CONFIGS / "model").glob("*.yaml"))
    for file in (file for file in files if file.stem != "base"):
        settings = OmegaConf.to_container(compose("train", f"model={file.stem}").model)
        assert isinstance(settings, dict)
        settings["kernel"] = "fused"
        comment = file.read_text().splitlines()[0]
        for size, named in (
            (256, comment.split(" M parameters")[0]),
            (1024, comment.split("codes, ")[1].split(" M")[0]),
        ):
            import torch

            with torch.device("meta"):
                model = AudioLM(8, size, 16, **settings)
            millions = sum(p.numel() for p in model.parameters()) / 1e6
            stated = float(named.removeprefix("# "))
            assert millions == pytest.approx(stated, rel=0.03), file.name
