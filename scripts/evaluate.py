"""How well a trained model predicts held-out recordings: python scripts/evaluate.py [key=value]"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from omegaconf import DictConfig, open_dict

from audiolm.audio import replacing
from audiolm.codec import load_codec
from audiolm.generation.checkpoint import read_checkpoint, restore_model
from audiolm.tokens import check_codec
from audiolm.training import LanguageModelTraining, TokenData, Yardsticks, measure_yardsticks
from command_line import start
from generate import codec_folders, find_checkpoint, run_folder
from prepare import codes


def main(cfg: DictConfig) -> None:
    path = find_checkpoint(cfg.ckpt_path)
    module = load_module(path)
    if cfg.get("data") is None:
        with open_dict(cfg):
            cfg.data = data_of_the_run(module, path)
    codec = load_codec(module.codec, codec_folders(path), cfg.codec_repository)
    codec.to("cuda" if torch.cuda.is_available() else "cpu")
    data = TokenData(
        codes(cfg, codec),
        context_frames=module.hparams["context_frames"],
        batch_size=cfg.data.batch_size,
        valid_fraction=cfg.data.valid_fraction,
        num_workers=cfg.data.num_workers,
        pattern=module.hparams["pattern"],
    )
    check_codec(data.mix.stores[0], module.codec)
    if not data.valid_frames:
        raise ValueError(
            "data.valid_fraction=0 holds nothing out; pass data=folder data.path=DIR with a "
            "data.valid_fraction above 0"
        )
    trainer = Trainer(
        devices=1,
        precision="32-true",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    (metrics,) = trainer.validate(module, data, verbose=False)
    report(metrics, measure_yardsticks(data), data, path, cfg.out)


def data_of_the_run(module: LanguageModelTraining, path: Path) -> dict[str, Any]:
    """The stores that the run was trained on, and what of them it held out."""
    data = module.hparams["data"] or {}
    stores = data.get("stores", {})
    if not stores or not all((Path(store) / "store.json").is_file() for store in stores):
        raise ValueError(
            f"{path} was trained on codes that are not here ({', '.join(stores)}); pass "
            f"data=folder data.path=DIR"
        )
    settings = {key: data[key] for key in ("valid_fraction", "batch_size")}
    return {**settings, "source": None, "mix": stores, "num_workers": 0}


def load_module(path: Path) -> LanguageModelTraining:
    """The training module of a checkpoint, with the weights that generation uses."""
    checkpoint = read_checkpoint(path)
    model = restore_model(checkpoint, path).model
    module = LanguageModelTraining(**checkpoint["hyper_parameters"])
    module.model = model
    return module


def report(
    metrics: Any, yardsticks: Yardsticks, data: TokenData, checkpoint: Path, out: str | None
) -> None:
    """Print the table, and write the same figures as JSON."""
    held_out = data.valid_frames * data.mix.num_codebooks
    stores = [str(store.path) for store in data.mix.stores]
    rows = [
        {
            "codebook": k,
            "model": metrics[f"valid/nats_per_code_k{k}"],
            "unigram": yardsticks.unigram[k],
            "uniform": yardsticks.uniform,
        }
        for k in range(data.mix.num_codebooks)
    ]
    mean = {
        "codebook": "mean",
        "model": metrics["valid/nats_per_code"],
        "unigram": yardsticks.unigram_mean,
        "uniform": yardsticks.uniform,
    }
    print(f"{held_out:,} held-out codes of {', '.join(stores)}, nats per code")
    print(f"{'codebook':>8} {'model':>9} {'unigram':>9} {'uniform':>9}")
    for row in [*rows, mean]:
        columns = " ".join(f"{row[name]:9.4f}" for name in ("model", "unigram", "uniform"))
        print(f"{row['codebook']!s:>8} {columns}")
    print(f"the model would need {metrics['valid/bits_per_second']:.0f} bits a second of audio")
    file = Path(out) if out else run_folder(checkpoint) / "evaluation.json"
    figures = {
        "checkpoint": str(checkpoint),
        "stores": stores,
        "held_out_codes": held_out,
        "bits_per_second": metrics["valid/bits_per_second"],
        "nats_per_code": [*rows, mean],
    }
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(f"written to {file}")


if __name__ == "__main__":
    start("evaluate", main)
