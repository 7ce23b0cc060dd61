"""Evaluate a trained model: python scripts/evaluate.py [key=value]

On validation recordings: the loss beside its baselines, in bits of audio, and calibration. On
samples: how far they are from validation clips, and what they have from the training set.
"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from omegaconf import DictConfig

from audiolm.cli.app import start
from audiolm.cli.evaluation import (
    check_out,
    load_run_codec,
    load_trained,
    log_metrics,
    make_batches,
    make_samples,
    write_metrics,
)
from audiolm.cli.report import write_report
from audiolm.evaluation.table import evaluation_table
from audiolm.evaluation.validation import Metrics, validation_metrics
from audiolm.run_folder import RunFolder, find_checkpoint, is_of_model_folder


def main(cfg: DictConfig) -> None:
    path = find_checkpoint(cfg.ckpt_path)
    run = RunFolder.of(path)
    out = check_out(cfg.out, run.evaluation)
    trained = load_trained(cfg, path)
    print(f"checkpoint {path}, step {trained.step:,}", flush=True)
    codec = load_run_codec(cfg, trained, path)
    data = make_batches(cfg, trained, codec, path)
    trained.model.to(codec.device)
    samples = make_samples(cfg, trained, data, codec)

    metrics: Metrics = {"checkpoint": str(path), "step": trained.step}
    metrics |= validation_metrics(trained, data)
    if samples is not None:
        write_metrics(metrics, out)  # what is known by now; generating may be stopped
        samples.generate()
        samples.save(out.with_suffix(""))
        metrics |= samples.metrics(cfg.audit)
    write_metrics(metrics, out)
    print(evaluation_table(metrics))
    if samples is not None and cfg.published:
        # Last, since it may fail for want of a network: all else is written by then.
        metrics["published"] = samples.published(cfg.published, **cfg.published_models)
        write_metrics(metrics, out)
        print(evaluation_table({"published": metrics["published"]}))

    print(f"written to {out} and {out.with_suffix('.png')}")
    if samples is not None:
        print(f"samples in {out.with_suffix('')}")
    log_metrics(cfg, metrics, run, out.with_suffix(".png"))
    if out == run.evaluation and not is_of_model_folder(path):
        write_report(run)


if __name__ == "__main__":
    start("evaluate", main)
