"""Train a language model over audio tokens: python scripts/train.py [group=choice] [key=value]"""

from __future__ import annotations

from audiolm.cli.loading import start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

from omegaconf import DictConfig

from audiolm.cli.app import start
from audiolm.cli.initial_model import initial_model
from audiolm.cli.lm import (
    check_run,
    make_lm_callbacks,
    make_module_and_data,
    make_run_codec,
    module_settings,
    report,
    save_codec_copy,
    save_plan,
    save_text_encoder_copy,
)
from audiolm.cli.record import RunRecord
from audiolm.cli.training import (
    exit_if_interrupted,
    make_loggers,
    make_trainer,
    recorded,
    resumed_lines,
)
from audiolm.run_folder import RunFolder, is_helper_process
from audiolm.training import describe_plan, measure_baselines


def main(cfg: DictConfig) -> None:
    record = RunRecord(cfg)
    run = RunFolder.as_typed(cfg.run_dir)
    resume_from = run.checkpoint_to_resume(cfg.ckpt_path, cfg.name)
    initial = initial_model(cfg, resume_from)
    codec = make_run_codec(cfg, resume_from, initial)
    settings = module_settings(cfg, codec)
    check_run(cfg, settings, resume_from)
    trainer = make_trainer(cfg, run, make_lm_callbacks(cfg, codec, run))

    with run.lock():
        module, data, begins = make_module_and_data(cfg, codec, settings, resume_from, initial)
        baselines = measure_baselines(data)
        if not is_helper_process():
            save_codec_copy(codec, run)
            save_text_encoder_copy(data, run)
            save_plan(cfg, trainer, run, module, data, baselines)
            plan = describe_plan(module, data, baselines, trainer)
            print("\n".join([plan, *begins, *resumed_lines(resume_from, record)]))
        record.write(run, resume_from)
        trainer.loggers = make_loggers(cfg, run)
        with recorded(run, trainer, resume_from):
            trainer.fit(module, data, ckpt_path=resume_from)

    if trainer.is_global_zero:
        exit_if_interrupted(trainer, run)
        report(cfg, trainer, run, data, baselines)


if __name__ == "__main__":
    start("train", main)
