"""The recordings of a config, checked and encoded, and the codes it trains on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from audiolm.codec import EncodecCodec
from audiolm.datasets.checks.check import check_clips
from audiolm.datasets.checks.report import CheckReport
from audiolm.datasets.checks.rules import Rules
from audiolm.files import check_writable, user_path
from audiolm.parallel import Part
from audiolm.tokens import (
    Mix,
    PrepareSummary,
    TokenStore,
    check_codec,
    default_store_dir,
    named_after,
    open_mix,
    prepare_store,
)
from audiolm.tokens.reconstruction import listen

STORES = Path("data/tokens")


CHECKS = Path("data/checks")


MOST_WORKERS = 8  # that decode for the check, unless more are asked for


WHOLE = Part(0, 1)


def encode(cfg: DictConfig, codec: EncodecCodec, part: Part = WHOLE) -> PrepareSummary:
    """Check the config's recordings, and make or bring up to date the store of their codes."""
    store_dir = store_folder(cfg, codec)
    check_settings(cfg, store_dir)
    report = check(cfg, known=stored_ids(store_dir), channels=codec.channels)
    summary = prepare_store(
        report,
        codec,
        store_dir,
        group=cfg.data.group,
        source=cfg.data.path,
        part=part,
        num_workers=cfg.prepare.num_workers,
    )
    print(summary)
    if cfg.prepare.num_checks and summary.encoded and not summary.missing_parts:
        print(listen(TokenStore(store_dir), codec, store_dir / "listen", cfg.prepare.num_checks))
    return summary


def check_settings(cfg: DictConfig, store_dir: Path) -> None:
    """Refuse what encoding would refuse, before hours of recordings are decoded for it."""
    check_writable(store_dir, "data.store", folder=True, given=bool(cfg.data.store))


def codes(cfg: DictConfig, codec: EncodecCodec) -> TokenStore | Mix:
    """The codes that the config names: of recordings, encoded first, or of finished stores."""
    if cfg.data.source is not None:
        return TokenStore(encode(cfg, codec).store_dir)
    weights = store_weights(cfg, codec)
    mix = open_mix(weights)
    check_codec(mix.stores[0], codec.identity())
    return mix


def store_weights(cfg: DictConfig, codec: EncodecCodec) -> dict[str, float]:
    """The folders of the stores that the config trains on, and the weight of each."""
    if "mix" in cfg.data:
        mix: Any = OmegaConf.to_container(cfg.data.mix) if OmegaConf.is_dict(cfg.data.mix) else None
        if mix is None:
            raise ValueError(
                f"data.mix={cfg.data.mix} must be {{STORE: WEIGHT, ...}}, such as {{{STORES}/A: 3}}"
            )
        return {str(folder): weight for folder, weight in mix.items()}
    if cfg.data.source is None:
        return {cfg.data.path: 1.0}
    return {str(store_folder(cfg, codec)): 1.0}


def store_folder(cfg: DictConfig, codec: EncodecCodec) -> Path:
    """Where the codes of the config's recordings are."""
    return user_path(cfg.data.store or default_store_dir(STORES, cfg.data.path, codec))


def check_file(cfg: DictConfig) -> Path:
    """Where the report of the check of the config's recordings is."""
    return CHECKS / f"{named_after(cfg.data.path)}.json"


def check(
    cfg: DictConfig,
    part: Part = WHOLE,
    known: NDArray[np.uint64] | None = None,
    channels: int = 1,
) -> CheckReport:
    """Decode what was not before, say what is there and what is wrong, and stop for too much of it.

    known: hashes of the clips' ids that the store holds already. channels: of the codec.
    """
    rules: Any = OmegaConf.to_container(cfg.rules, resolve=True)
    report = check_clips(
        instantiate(cfg.data.source, _convert_="all"),
        CHECKS,
        Rules.from_config(rules),
        num_workers=check_workers(cfg.prepare.check_workers),
        part=part,
        known=known,
        channels=channels,
    )
    file = check_file(cfg)
    if part != WHOLE:
        file = file.with_name(f"{file.stem}-{part.number}-of-{part.count}.json")
    report.write(file)
    print("\n".join([*report.lines(), f"report     {file}"]))
    report.enforce()
    return report


def check_workers(wanted: int | None) -> int:
    """One process a core that this one may use, if nothing else is wanted."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MOST_WORKERS)


def stored_ids(store_dir: Path) -> NDArray[np.uint64] | None:
    """Hashes of the ids of the clips that a store holds; None where there is none, or a part."""
    try:
        return np.asarray(TokenStore(store_dir).index["id_hash"])
    except (OSError, ValueError):
        return None
