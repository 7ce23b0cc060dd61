"""What a config builds: plain data, how codes are sampled, and the codec."""

from __future__ import annotations

from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from audiolm.codec import EncodecCodec
from audiolm.generation import Sampling


def plain(config: DictConfig) -> dict[str, Any]:
    """A part of the config as plain data."""
    data: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return dict(data)


def make_sampling(cfg: DictConfig) -> Sampling:
    """How codes are sampled, of the config's group of that name.

    Raises:
        ValueError: for settings out of range.
    """
    return Sampling(**plain(cfg.sampling))


def make_codec(cfg: DictConfig) -> EncodecCodec:
    """The codec of the config, on the GPU where there is one."""
    codec: EncodecCodec = instantiate(cfg.codec, _convert_="all")
    return on_fastest_device(codec)


def on_fastest_device(codec: EncodecCodec) -> EncodecCodec:
    """The codec on the GPU where there is one."""
    return codec.to("cuda" if torch.cuda.is_available() else "cpu")
