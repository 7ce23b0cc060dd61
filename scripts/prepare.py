"""Encode a folder of recordings: python scripts/prepare.py data=folder data.path=DIR codec=..."""

from __future__ import annotations

from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from audiolm.codec import EncodecCodec
from audiolm.demo import make_melodies
from audiolm.tokens import TokenStore, default_store_dir, folder_clips, prepare_store
from command_line import start

STORES = Path("data/tokens")


def main(cfg: DictConfig) -> None:
    store = encode(cfg, make_codec(cfg))
    print(f"next: python scripts/train.py with the same data and codec; store {store.path}")


def make_codec(cfg: DictConfig) -> EncodecCodec:
    """The codec of the config, on the GPU where there is one."""
    codec: EncodecCodec = instantiate(cfg.codec, _convert_="all")
    return codec.to("cuda" if torch.cuda.is_available() else "cpu")


def is_demo(cfg: DictConfig) -> bool:
    """Whether the recordings are the melodies that are made by code."""
    return "num_melodies" in cfg.data


def encode(cfg: DictConfig, codec: EncodecCodec) -> TokenStore:
    """The store of the config's recordings, made or brought up to date."""
    if is_demo(cfg):
        make_melodies(cfg.data.path, cfg.data.num_melodies)
    store_dir = cfg.data.store or default_store_dir(STORES, cfg.data.path, codec)
    print(prepare_store(folder_clips(cfg.data.path), codec, store_dir))
    return TokenStore(store_dir)


if __name__ == "__main__":
    start("prepare", main)
