"""Train an EnCodec on recordings: python scripts/train_codec.py data=folder data.path=DIR"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from omegaconf import DictConfig

from audiolm.cli.app import start
from audiolm.cli.codec import (
    initial_weights,
    lacks_its_codec_alone,
    make_codec_module,
    make_codec_trainer,
    make_waveforms,
    report_codec,
)
from audiolm.cli.record import RunRecord
from audiolm.cli.training import exit_if_interrupted, make_loggers, recorded, resumed_lines
from audiolm.run_folder import RunFolder
from audiolm.training.codec.resume import check_same_codec_run
from audiolm.training.codec.summary import describe_codec_plan
from audiolm.training.ending import describe_ending


def main(cfg: DictConfig) -> None:
    record = RunRecord(cfg)
    run = RunFolder.as_typed(cfg.run_dir)
    # What can be wrong is found before hours of recordings are decoded for it.
    resume_from = run.checkpoint_to_resume(cfg.ckpt_path, cfg.name)
    module = make_codec_module(cfg)
    fitted = False
    if resume_from is not None:
        fitted = check_same_codec_run(module, resume_from)
        if lacks_its_codec_alone(module, run, resume_from, cfg.trainer.max_steps):
            with run.lock():
                report_codec("all steps, before: the codec alone was missing", module, run)
            return
    begins = initial_weights(cfg, module, resume_from)
    trainer = make_codec_trainer(cfg, run)

    with run.lock():
        data = make_waveforms(cfg, module, resume_from)
        plan = describe_codec_plan(module, data, trainer, fitted or module.quantizes)
        print("\n".join([plan, *begins, *resumed_lines(resume_from, record)]))
        record.write(run, resume_from)
        trainer.loggers = make_loggers(cfg, run)
        with recorded(run, trainer, resume_from):
            trainer.fit(module, data, ckpt_path=resume_from)

    if trainer.is_global_zero:
        exit_if_interrupted(trainer, run)
        report_codec(describe_ending(trainer), module, run)


if __name__ == "__main__":
    start("train_codec", main)
