"""What an evaluation's config builds, and where its metrics go."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from lightning.pytorch.loggers import WandbLogger
from omegaconf import DictConfig, open_dict

from audiolm.batches.loaders import TokenBatches
from audiolm.cli.build import make_sampling
from audiolm.cli.overrides import given_settings
from audiolm.cli.store import codes
from audiolm.codec import EncodecCodec, load_codec
from audiolm.evaluation.page import plot_page
from audiolm.evaluation.published import check_published
from audiolm.evaluation.samples import Samples
from audiolm.evaluation.table import flat_numbers
from audiolm.evaluation.validation import Metrics, check_conditions, data_of_the_run
from audiolm.files import check_writable, replacing, user_path
from audiolm.generation.sampling import check_sampling
from audiolm.model.checkpoint import TrainedModel, read_checkpoint, restore_model
from audiolm.run_folder import RunFolder, codec_folders
from audiolm.synthesis.conditions import load_text_encoder
from audiolm.tokens import check_codec
from audiolm.training import make_wandb_logger


def load_trained(cfg: DictConfig, path: Path) -> TrainedModel:
    """The model of a checkpoint; the config's data become those of its run where it names none.

    Where it does, they are split as its run's were, unless the command says how: what the model was
    trained on would be validated on else.
    """
    checkpoint = read_checkpoint(path)
    trained = restore_model(checkpoint, path)
    _check_settings(cfg, trained)
    data = checkpoint["hyper_parameters"].get("data")
    if cfg.get("data") is None:
        with open_dict(cfg):
            cfg.data = data_of_the_run(data, path)
    elif data and "data.valid_fraction" not in given_settings():
        cfg.data.valid_fraction = data.get("valid_fraction", cfg.data.valid_fraction)
    return trained


def check_out(out: str | None, default: Path) -> Path:
    """The file for the metrics, once it is known that it, and what goes beside it, can be written.

    Args:
        out: as the user gave it, or None.
        default: where it goes then.

    Raises:
        ValueError, OSError: it cannot.
    """
    path = user_path(out) if out else default
    if path.suffix != ".json":
        raise ValueError(
            f"out={path} must end in .json: beside it go NAME.png, and the samples in NAME/"
        )
    check_writable(path, "out", folder=False, given=bool(out))
    check_writable(path.with_suffix(""), "out", folder=True, given=bool(out))
    return path


def _check_settings(cfg: DictConfig, trained: TrainedModel) -> None:
    """Refuse what does not go together, before anything is measured."""
    if cfg.duration == math.inf:
        raise ValueError(
            "duration=inf: samples are compared with clips, which end; pass a number of seconds"
        )
    if cfg.published and not cfg.num_samples:
        raise ValueError("published metrics are of samples; raise num_samples=0 too")
    vocabulary = trained.vocabulary
    check_published(
        cfg.published, have_texts=bool(vocabulary and (vocabulary.text or vocabulary.labels))
    )
    check_sampling(make_sampling(cfg), trained.model, trained.vocabulary)


def load_run_codec(cfg: DictConfig, trained: TrainedModel, path: Path) -> EncodecCodec:
    """The codec of a checkpoint, on the GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return load_codec(trained.codec, codec_folders(path), cfg.codec_repository).to(device)


def make_batches(
    cfg: DictConfig, trained: TrainedModel, codec: EncodecCodec, path: Path
) -> TokenBatches:
    """The codes that the config names, as the model of the checkpoint `path` reads them.

    Raises:
        ValueError: they are of another codec, or there is no validation set.
    """
    data = TokenBatches(
        codes(cfg, codec),
        context_frames=trained.context_frames,
        batch_size=cfg.data.batch_size,
        valid_fraction=cfg.data.valid_fraction,
        num_workers=cfg.data.num_workers,
        pattern=trained.pattern,
        end_token=trained.model.end_token,
        vocabulary=trained.vocabulary,
        text_encoder=load_text_encoder(trained.vocabulary, path),
    )
    check_codec(data.mix.stores[0], trained.codec)
    check_conditions(trained, data)
    if not data.valid_frames:
        raise ValueError(
            "data.valid_fraction=0 holds nothing out; pass data=folder data.path=DIR with a "
            "data.valid_fraction above 0"
        )
    return data


def make_samples(
    cfg: DictConfig, trained: TrainedModel, data: TokenBatches, codec: EncodecCodec
) -> Samples | None:
    """The samples to compare with real clips, not generated yet; None where none are wanted."""
    if not cfg.num_samples:
        return None
    return Samples(
        trained, data, codec, make_sampling(cfg), cfg.num_samples, cfg.duration, cfg.seed
    )


def write_metrics(metrics: Metrics, out: Path) -> None:
    """The metrics as JSON, and a page of plots beside."""
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    title = f"{metrics['checkpoint']}, step {metrics['step']}"
    plot_page(out.with_suffix(".png"), metrics, title)


def log_metrics(cfg: DictConfig, metrics: Metrics, run: RunFolder, page: Path) -> None:
    """The metrics and their page, to the W&B run of the training where it has one."""
    if not run.wandb.is_dir():
        return
    logger = make_wandb_logger(run.path, cfg.logger.project, mode=cfg.logger.mode)
    if isinstance(logger, WandbLogger):
        logger.log_metrics(flat_numbers(metrics, "evaluation"), metrics["step"])
        logger.log_image("evaluation", [str(page)], metrics["step"])
        logger.finalize("success")
