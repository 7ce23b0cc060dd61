"""What a trained model is worth: python scripts/evaluate.py [key=value]

On validation recordings: the loss beside its baselines, in bits of audio, and calibration. On
samples: how far they are from validation clips, and what they have from the training set.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from lightning.pytorch.loggers import WandbLogger
from omegaconf import DictConfig, open_dict

from audiolm.cli.app import start
from audiolm.cli.build import make_sampling
from audiolm.cli.store import codes
from audiolm.codec import load_codec
from audiolm.evaluation.page import plot_page
from audiolm.evaluation.published import check_published
from audiolm.evaluation.samples import Samples
from audiolm.evaluation.table import evaluation_table, flat_numbers
from audiolm.evaluation.validation import (
    Metrics,
    check_conditions,
    data_of_the_run,
    validation_metrics,
)
from audiolm.files import replacing
from audiolm.generation.sampling import check_sampling
from audiolm.model.checkpoint import TrainedModel, read_checkpoint, restore_model
from audiolm.run_folder import codec_folders, find_checkpoint, run_folder
from audiolm.tokens import check_codec
from audiolm.training import LanguageModelTraining, TokenData, make_wandb_logger


def main(cfg: DictConfig) -> None:
    path = find_checkpoint(cfg.ckpt_path)
    module, trained = load_module(path)
    check_settings(cfg, trained)
    if cfg.get("data") is None:
        with open_dict(cfg):
            cfg.data = data_of_the_run(module, path)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    codec = load_codec(module.codec, codec_folders(path), cfg.codec_repository).to(device)
    data = TokenData(
        codes(cfg, codec),
        context_frames=module.hparams["context_frames"],
        batch_size=cfg.data.batch_size,
        valid_fraction=cfg.data.valid_fraction,
        num_workers=cfg.data.num_workers,
        pattern=module.hparams["pattern"],
        end_token=trained.model.end_token,
        vocabulary=trained.vocabulary,
    )
    check_codec(data.mix.stores[0], module.codec)
    check_conditions(trained, data)
    if not data.valid_frames:
        raise ValueError(
            "data.valid_fraction=0 holds nothing out; pass data=folder data.path=DIR with a "
            "data.valid_fraction above 0"
        )
    module.to(device)
    samples = None
    if cfg.num_samples:
        samples = Samples(
            trained, data, codec, make_sampling(cfg), cfg.num_samples, cfg.duration, cfg.seed
        )
    metrics = {
        "checkpoint": str(path),
        "step": trained.step,
        **validation_metrics(module, trained, data, device),
    }
    out = Path(cfg.out) if cfg.out else run_folder(path) / "evaluation.json"
    if samples is not None:
        write(metrics, out)  # what is known by now; generating may be stopped
        samples.generate()
        samples.save(out.with_suffix(""))
        metrics |= samples.metrics(cfg.audit)
    write(metrics, out)
    print(evaluation_table(metrics))
    if samples is not None and cfg.published:
        # Last, since it may fail for want of a network: all else is written by then.
        metrics["published"] = samples.published(cfg.published, **cfg.published_models)
        write(metrics, out)
        print(evaluation_table({"published": metrics["published"]}))
    print(f"written to {out} and {out.with_suffix('.png')}")
    if samples is not None:
        print(f"samples in {out.with_suffix('')}")
    log(cfg, metrics, run_folder(path), out.with_suffix(".png"))


def load_module(path: Path) -> tuple[LanguageModelTraining, TrainedModel]:
    """The training module of a checkpoint, with the weights that generation uses, and these."""
    checkpoint = read_checkpoint(path)
    trained = restore_model(checkpoint, path)
    module = LanguageModelTraining(**checkpoint["hyper_parameters"])
    module.model = trained.model
    return module, trained


def check_settings(cfg: DictConfig, trained: TrainedModel) -> None:
    """Refuse what does not go together, before anything is measured."""
    if cfg.num_samples < 0:
        raise ValueError(f"num_samples={cfg.num_samples} must be 0 or more")
    if not 0 < cfg.duration < math.inf:
        raise ValueError(f"duration={cfg.duration} s must be above 0, and finite")
    if cfg.published and not cfg.num_samples:
        raise ValueError("published metrics are of samples; raise num_samples=0 too")
    words = trained.vocabulary
    check_published(cfg.published, have_texts=bool(words and (words.text or words.labels)))
    check_sampling(make_sampling(cfg), trained.model, trained.vocabulary)


def write(metrics: Metrics, out: Path) -> None:
    """The metrics as JSON, and a page of plots beside."""
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    title = f"{metrics['checkpoint']}, step {metrics['step']}"
    plot_page(out.with_suffix(".png"), metrics, title)


def log(cfg: DictConfig, metrics: Metrics, run: Path, page: Path) -> None:
    """The metrics and their page, to the W&B run of the training where it has one."""
    if not (run / "wandb").is_dir():
        return
    logger = make_wandb_logger(run, cfg.logger.project, mode=cfg.logger.mode)
    if isinstance(logger, WandbLogger):
        logger.log_metrics(flat_numbers(metrics, "evaluation"), metrics["step"])
        logger.log_image("evaluation", [str(page)], metrics["step"])
        logger.finalize("success")


if __name__ == "__main__":
    start("evaluate", main)
