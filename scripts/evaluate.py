"""What a trained model is worth: python scripts/evaluate.py [key=value]

On held-out recordings: the loss beside its yardsticks, in bits of audio, and calibration. On
samples: how far they are from held-out clips, and what they have from the training set.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import WandbLogger
from omegaconf import DictConfig, open_dict
from torch import Tensor
from tqdm import tqdm

from audiolm.audio import write_wav
from audiolm.batches.conditions import check_columns, told_of
from audiolm.codec import EncodecCodec, load_codec
from audiolm.evaluation.clips import choose_pieces, hear_clips, read_pieces
from audiolm.evaluation.comparison import Comparison, describe_runs
from audiolm.evaluation.likelihood import Likelihood
from audiolm.evaluation.memorisation import longest_shared_runs
from audiolm.evaluation.page import draw_page
from audiolm.evaluation.published import Heard, check_published, measure_published
from audiolm.evaluation.table import evaluation_table, flat_numbers
from audiolm.files import replacing
from audiolm.generation import cut_at_end, generate
from audiolm.generation.sampling import check_sampling
from audiolm.model.checkpoint import TrainedModel, read_checkpoint, restore_model
from audiolm.model.conditioning import not_told
from audiolm.run_folder import codec_folders, find_checkpoint, run_folder
from audiolm.tokens import check_codec
from audiolm.tokens.baselines import measure_code_yardsticks
from audiolm.training import LanguageModelTraining, TokenData, make_wandb_logger
from command_line import make_sampling, start
from prepare import codes

Figures = dict[str, Any]

BATCH = 32
"""Samples drawn at a time."""

TRAINING_SETS = 5
"""Of training clips, each of as many as are drawn: how much differs by chance."""


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
    check_words(trained, data)
    if not data.valid_frames:
        raise ValueError(
            "data.valid_fraction=0 holds nothing out; pass data=folder data.path=DIR with a "
            "data.valid_fraction above 0"
        )
    module.to(device)
    samples = Samples(cfg, trained, data, codec) if cfg.num_samples else None
    figures = {
        "checkpoint": str(path),
        "step": trained.step,
        **held_out_figures(module, trained, data, device),
    }
    out = Path(cfg.out) if cfg.out else run_folder(path) / "evaluation.json"
    if samples is not None:
        write(figures, out)  # what is known by now; drawing may be stopped
        samples.draw()
        samples.save(out.with_suffix(""))
        figures |= samples.figures(cfg.audit)
    write(figures, out)
    print(evaluation_table(figures))
    if samples is not None and cfg.published:
        # Last, since it may fail for want of a network: all else is written by then.
        figures["published"] = samples.published(cfg.published, **cfg.published_models)
        write(figures, out)
        print(evaluation_table({"published": figures["published"]}))
    print(f"written to {out} and {out.with_suffix('.png')}")
    if samples is not None:
        print(f"samples in {out.with_suffix('')}")
    log(cfg, figures, run_folder(path), out.with_suffix(".png"))


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
    check_published(cfg.published, have_words=bool(words and (words.text or words.labels)))
    check_sampling(make_sampling(cfg), trained.model, trained.vocabulary)


def check_words(trained: TrainedModel, data: TokenData) -> None:
    """Refuse held-out clips of which nothing is told in a column, and count those not known."""
    words = trained.vocabulary
    if words is None or data.conditions is None:
        return
    told = [
        told_of(store, int(clip))
        for store, split in zip(data.mix.stores, data.splits, strict=True)
        for clip in np.unique(split.valid["clip"])
    ]
    check_columns(words.columns, {column for values in told for column in values}, data.mix)
    for column, names in words.labels.items():
        unknown = sum(column in values and values[column] not in names for values in told)
        if unknown:
            print(f"untold     {unknown} held-out clips with a {column} that was not in training")
    if words.text:
        said = "".join(values.get(words.text, "") for values in told)
        if left_out := words.unknown_characters(said):
            print(f"untold     characters of held-out texts not in training: {left_out}")


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


def held_out_figures(
    module: LanguageModelTraining, trained: TrainedModel, data: TokenData, device: torch.device
) -> Figures:
    """How well the model predicts all that is held out, and whether it knows how well."""
    mix, words = data.mix, trained.vocabulary
    likelihood = score(module, data, device)
    columns = {"model": (likelihood.nats_per_code, likelihood.mean_nats)}
    seconds = data.valid_frames / mix.frame_rate
    bits = likelihood.bits_per_second(seconds)
    figures: Figures = {
        "stores": [str(store.path) for store in mix.stores],
        "held_out_codes": data.valid_frames * mix.num_codebooks,
        "held_out_seconds": seconds,
        "bits_per_second": bits,
        "codec_bits_per_second": mix.num_codebooks * math.log2(mix.codebook_size) * mix.frame_rate,
    }
    figures["compression"] = figures["codec_bits_per_second"] / bits
    if words is not None and words.drop > 0:
        untold = score(module, data, device, tell=False)
        columns["without_conditions"] = (untold.nats_per_code, untold.mean_nats)
        figures["conditions_bits_per_second"] = untold.bits_per_second(seconds) - bits
    yardsticks = measure_code_yardsticks(
        mix.stores,
        [split.train for split in data.splits],
        [split.valid for split in data.splits],
        mix.shares,
        ends=trained.model.end_token,
    )
    counts = likelihood.counts.sum(axis=1)
    figures["yardsticks_bits"] = {}
    for name in ("bigram", "unigram", "uniform"):
        nats = getattr(yardsticks, name)
        columns[name] = (nats, float(np.average(nats, weights=counts)))
        total = float((nats * counts).sum())
        figures["yardsticks_bits"][name] = total / math.log(2) / seconds
    columns["calibration_error"] = likelihood.calibration_error()
    figures["nats_per_code"] = [
        *(
            {"codebook": k, **{name: float(each[k]) for name, (each, _) in columns.items()}}
            for k in range(mix.num_codebooks)
        ),
        {"codebook": "mean", **{name: mean for name, (_, mean) in columns.items()}},
    ]
    figures["calibration"] = likelihood.reliability()
    return figures


@torch.inference_mode()
def score(
    module: LanguageModelTraining, data: TokenData, device: torch.device, tell: bool = True
) -> Likelihood:
    """Go through the held-out clips once. Without `tell`, nothing is told of them."""
    data.trainer = Trainer(devices=1, logger=False, enable_checkpointing=False)
    likelihood = Likelihood(module.model.num_codebooks)
    module.eval()
    for batch in tqdm(data.val_dataloader(), "held-out batches", leave=False, disable=None):
        if not tell:
            batch["conditions"] = not_told(batch["conditions"])
        likelihood.add(*module.logits(data.transfer_batch_to_device(batch, device, 0)))
    return likelihood


class Samples:
    """Clips that the model draws, and as many real ones to compare them with.

    The real clips are chosen, and measured, at once: what is wrong with them is found before
    minutes of drawing. A conditional model is told what it would be of the held-out clips.
    """

    def __init__(
        self, cfg: DictConfig, trained: TrainedModel, data: TokenData, codec: EncodecCodec
    ) -> None:
        self.trained, self.data, self.codec = trained, data, codec
        self.sampling = make_sampling(cfg)
        self.ends = trained.model.end_token and self.sampling.end
        stores = data.mix.stores
        held_out = [split.valid for split in data.splits]
        # A model that can end is given twice the time of the longest, to see whether it does.
        longest = max(int(spans["frames"].max()) for spans in held_out if len(spans))
        wanted = math.ceil(cfg.duration * codec.frame_rate)
        self.num_frames = min(wanted, longest * (2 if self.ends else 1))
        self.seeds = [cfg.seed + i for i in range(cfg.num_samples)]
        self.pieces = {
            "held_out": choose_pieces(held_out, cfg.num_samples, self.num_frames),
        }
        trained_on = [split.train for split in data.splits]
        many = choose_pieces(trained_on, TRAINING_SETS * cfg.num_samples, self.num_frames)
        sets = max(1, len(many) // cfg.num_samples)
        training = [hear_clips(read_pieces(stores, many[i::sets]), codec) for i in range(sets)]
        held_out_clips = hear_clips(read_pieces(stores, self.pieces["held_out"]), codec)
        self.clips = {"held_out": held_out_clips, "training": training[0]}
        self.pieces["training"] = many[::sets]
        self.comparison = Comparison(held_out_clips, training, codec)

    def draw(self) -> None:
        trained, pieces = self.trained, self.pieces["held_out"]
        told = pieces[np.arange(len(self.seeds)) % len(pieces)]
        conditions = None if self.data.conditions is None else self.data.conditions(told)
        codes: list[Tensor] = []
        for first in tqdm(range(0, len(told), BATCH), "samples", leave=False, disable=None):
            some = slice(first, first + BATCH)
            drawn = generate(
                trained.model,
                trained.pattern,
                self.num_frames,
                trained.context_frames,
                self.seeds[some],
                sampling=self.sampling,
                conditions=conditions and {name: c[some] for name, c in conditions.items()},
            )
            codes += cut_at_end(drawn.cpu(), trained.model.codebook_size)
        self.clips["generated"] = hear_clips(codes, self.codec)
        self.pieces["generated"] = told

    def save(self, folder: Path) -> None:
        """The samples as sound, so that what the figures say of one can be heard."""
        for i, waveform in enumerate(self.clips["generated"].waveforms):
            write_wav(folder / f"sample_{i:03d}.wav", waveform, self.codec.sample_rate)

    def figures(self, audit: bool) -> Figures:
        generated = self.clips["generated"]
        figures: Figures = {
            "sampling": {**vars(self.sampling), "seeds": self.seeds},
            "clips": {
                "most_seconds": self.num_frames / self.codec.frame_rate,
                **self.comparison.figures(generated, self.num_frames, self.ends),
                "clip_seconds": {kind: c.seconds.tolist() for kind, c in self.clips.items()},
            },
        }
        if audit:
            figures["memorisation"] = {
                "all_codebooks": self.audit(self.data.mix.num_codebooks),
                "codebook_0": self.audit(1),
            }
        return figures

    def audit(self, num_codebooks: int) -> dict[str, list[dict[str, Any]]]:
        """What samples and held-out clips have from the training set."""
        stores = self.data.mix.stores
        trained_on = [split.train for split in self.data.splits]
        kinds = ("generated", "held_out")
        both = [codes.numpy() for kind in kinds for codes in self.clips[kind].codes]
        runs = longest_shared_runs(both, stores, trained_on, num_codebooks)
        first = len(self.clips["generated"].codes)
        of_kinds = runs[:first], runs[first:]
        return {
            kind: describe_runs(found, self.clips[kind], stores)
            for kind, found in zip(kinds, of_kinds, strict=True)
        }

    def published(self, names: Sequence[str], clap: str, recogniser: str) -> Figures:
        kinds = {kind: self.heard(kind) for kind in ("generated", "held_out", "training")}
        return measure_published(names, kinds, clap, recogniser)

    def heard(self, kind: str) -> Heard:
        clips = self.clips[kind]
        words = self.words(kind)
        with_sound = [w for w, codes in zip(words, clips.codes, strict=True) if codes.shape[1]]
        return Heard(clips.waveforms, self.codec.sample_rate, with_sound)

    def words(self, kind: str) -> list[str]:
        """What was told of each clip: its text, or its labels."""
        conditions, words = self.data.conditions, self.trained.vocabulary
        pieces = self.pieces[kind]
        if conditions is None or words is None:
            return [""] * len(pieces)
        told = [conditions.told(store, clip) for store, clip, _, _ in pieces.tolist()]
        if words.text:
            return [values.get(words.text, "") for values in told]
        return [" ".join(values[c] for c in words.labels if c in values) for values in told]


def write(figures: Figures, out: Path) -> None:
    """The figures as JSON, and a page of plots beside."""
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    title = f"{figures['checkpoint']}, step {figures['step']}"
    draw_page(out.with_suffix(".png"), figures, title)


def log(cfg: DictConfig, figures: Figures, run: Path, page: Path) -> None:
    """The figures and their page, to the W&B run of the training where it has one."""
    if not (run / "wandb").is_dir():
        return
    logger = make_wandb_logger(run, cfg.logger.project, mode=cfg.logger.mode)
    if isinstance(logger, WandbLogger):
        logger.log_metrics(flat_numbers(figures, "evaluation"), figures["step"])
        logger.log_image("evaluation", [str(page)], figures["step"])
        logger.finalize("success")


if __name__ == "__main__":
    start("evaluate", main)
