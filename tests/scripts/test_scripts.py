"""The command line end to end: recordings in, sound out, moved, resumed, and at the limits."""

from __future__ import annotations

import csv
import json
import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
import torch

from audiolm.model.checkpoint import read_checkpoint
from audiolm.training import LanguageModelTraining

from .conftest import ROOT, RunScript


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def metrics(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_from_recordings_to_sound(workplace: Path, run_script: RunScript, local: list[str]) -> None:
    trained = run_script("train", *local)
    assert trained.code == 0, trained.err
    for promised in ("parameters", "baselines", "uniform 3.466 nats", "unigram", "next "):
        assert promised in trained.out
    run = only(workplace, "runs/folder/*")
    for file in (
        ".hydra/config.yaml",
        "metrics.csv",
        "checkpoints/last.ckpt",
        "checkpoints/best.ckpt",
        "codec/codec.safetensors",
        "samples/step_00000006_sample_000.wav",
        "samples/step_00000006_sample_000.png",
    ):
        assert (run / file).stat().st_size > 0
    rows = metrics(run)
    assert [row["step"] for row in rows if row["valid/nats_per_code"]] == ["2", "5"]
    assert all(f"train/nats_per_code_k{k}" in rows[0] for k in range(4))

    evaluated = run_script("evaluate", *local[1:3])
    assert evaluated.code == 0, evaluated.err
    found = json.loads((run / "evaluation.json").read_text())
    mean = found["nats_per_code"][-1]
    best = min(float(row["valid/nats_per_code"]) for row in rows if row["valid/nats_per_code"])
    assert mean["model"] == pytest.approx(best, rel=0.01)  # training validates in bfloat16
    # Codebook 0 has one outcome more: the end of the clip.
    assert found["nats_per_code"][0]["uniform"] == pytest.approx(math.log(33))
    assert found["nats_per_code"][1]["uniform"] == pytest.approx(math.log(32))

    # The second command needs the first one's folder and nothing else, wherever it lies.
    moved = workplace / "sent, by (a friend's) = {é}"
    shutil.move(run, moved)
    shutil.rmtree(workplace / "data")
    out = workplace / "out"
    made = run_script(
        "generate",
        f"ckpt_path={moved}/checkpoints/last.ckpt",
        f"out={out}",
        "num_samples=2",
        "duration=3",
        "sampling.end=false",
    )
    assert made.code == 0, made.err
    for i in (0, 1):
        samples, rate = soundfile.read(out / f"sample_{i:03d}.wav")
        assert rate == 800 and samples.shape == (3 * 800,)
        about = json.loads((out / f"sample_{i:03d}.json").read_text())
        assert about["seed"] == i and about["step"] == 6
        assert about["frames_per_second"] > 0 and about["realtime_factor"] > 0
        assert (out / f"sample_{i:03d}.png").stat().st_size > 0


@pytest.mark.slow
def test_a_compiled_run_learns_the_same(
    workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    losses = []
    for compiled in ("false", "true"):
        trained = run_script("train", *local, f"compile={compiled}", f"hydra.run.dir={compiled}")
        assert trained.code == 0, trained.err
        rows = metrics(workplace / compiled)
        losses.append([float(r["valid/nats_per_code"]) for r in rows if r["valid/nats_per_code"]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_generate_takes_the_newest_run_and_a_seed_means_a_sound(
    workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    assert run_script("train", *local).code == 0
    for out, seed, count in (("a", 3, 1), ("b", 2, 3), ("c", 3, 9)):
        made = run_script("generate", f"out={out}", f"seed={seed}", f"num_samples={count}")
        assert made.code == 0, made.err
    wanted = (workplace / "a" / "sample_000.wav").read_bytes()
    assert (workplace / "b" / "sample_001.wav").read_bytes() == wanted
    assert (workplace / "c" / "sample_000.wav").read_bytes() == wanted
    assert (workplace / "c" / "sample_001.wav").read_bytes() != wanted


def test_a_prompt_is_gone_on_with(
    workplace: Path, run_script: RunScript, local: list[str], recordings: Path
) -> None:
    assert run_script("train", *local).code == 0
    prompt = sorted(recordings.glob("*/*.wav"))[0]
    made = run_script("generate", "out=o", f"prompt={prompt}", "prompt_duration=0.5", "duration=2")
    assert made.code == 0, made.err
    about = json.loads((workplace / "o" / "sample_000.json").read_text())
    assert about["prompt_seconds"] == pytest.approx(0.5, abs=0.02)
    for override, message in (
        (["prompt_duration=1.4", "duration=2"], "model's context of 1.00 s"),
        (["prompt_duration=0.9", "duration=0.5"], "duration=0.5, which includes it"),
        (["prompt_duration=0.01"], "less than one frame"),
    ):
        refused = run_script("generate", "out=o", f"prompt={prompt}", *override)
        assert refused.code == 2 and message in refused.err and refused.err.count("\n") == 1


def test_stopped_by_ctrl_c_and_resumed_equals_uninterrupted(
    workplace: Path, run_script: RunScript, local: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_script("train", *local, "hydra.run.dir=whole")
    assert whole.code == 0, whole.err
    with monkeypatch.context() as patch:
        original = LanguageModelTraining.on_train_batch_start

        def interrupt(self: LanguageModelTraining, batch: object, batch_idx: int) -> None:
            original(self, batch, batch_idx)
            if batch_idx == 3:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(LanguageModelTraining, "on_train_batch_start", interrupt)
        stopped = run_script("train", *local, "hydra.run.dir=parts")
    assert stopped.code == 130, stopped.err
    assert "stopped after step 4 of 6" in stopped.out
    assert "ckpt_path=last hydra.run.dir=" in stopped.out
    assert read_checkpoint("parts/checkpoints/last.ckpt")["global_step"] == 4
    resumed = run_script("train", *local, "hydra.run.dir=parts", "ckpt_path=last")
    assert resumed.code == 0, resumed.err
    one, two = (read_checkpoint(f"{folder}/checkpoints/last.ckpt") for folder in ("whole", "parts"))
    assert one["global_step"] == two["global_step"] == 6
    for name, weight in one["state_dict"].items():
        assert torch.equal(weight, two["state_dict"][name]), name
    steps = [[row["step"] for row in metrics(Path(folder))] for folder in ("whole", "parts")]
    assert steps[0] == steps[1]


def test_a_run_without_a_logger_and_with_any_callback_off(
    workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    callbacks = ("progress", "checkpoint", "best_checkpoint", "ema", "early_stopping", "samples")
    off = [f"callbacks.{name}=null" for name in (*callbacks, "interrupt")]
    bare = run_script("train", *local, "logger=null", *off, "hydra.run.dir=bare")
    assert bare.code == 0, bare.err
    assert "finished  6 steps" in bare.out and "no checkpoint was kept" in bare.out
    assert metrics(Path("bare")) and not Path("bare/wandb").exists()


def test_the_words_of_an_end_are_its_reason(
    workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    short = run_script("train", *local, "+trainer.max_time={seconds: 0}", "trainer.max_steps=9")
    assert short.code == 0, short.err
    assert "of 9 steps: trainer.max_time is over" in short.out


def test_last_is_the_newest_run_of_the_name(
    workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    assert run_script("train", *local, "name=mine").code == 0
    again = run_script("train", *local, "name=mine", "ckpt_path=last", "trainer.max_steps=8")
    assert again.code == 0, again.err
    run = only(workplace, "runs/mine/*")
    assert read_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"] == 8


def test_tracking_works_offline_and_a_resumed_run_stays_the_same_one(
    workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    arguments = [*local, "logger=wandb", "hydra.run.dir=run"]
    first = run_script("train", *arguments)
    assert first.code == 0 and "wandb sync" in first.out + first.err, first.err
    again = run_script("train", *arguments, "ckpt_path=last", "trainer.max_steps=8")
    assert again.code == 0, again.err
    ids = {folder.name.rsplit("-", 1)[1] for folder in Path("run/wandb").glob("offline-run-*")}
    assert len(list(Path("run/wandb").glob("offline-run-*"))) == 2 and len(ids) == 1


@pytest.mark.parametrize("pattern", ["parallel", "flatten", "coarse_first"])
def test_other_patterns(
    workplace: Path, run_script: RunScript, local: list[str], pattern: str
) -> None:
    trained = run_script("train", *local, f"pattern={pattern}", "model.kernel=fused")
    assert trained.code == 0, trained.err
    made = run_script("generate", "out=o", "duration=2.5", "num_samples=1")
    assert made.code == 0, made.err


def test_two_processes_train_together(workplace: Path, local: list[str]) -> None:
    """With real processes: Lightning starts the second by the command line of the first."""
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), *local, "trainer=ddp"]
    command += ["trainer.accelerator=cpu", "trainer.devices=2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    run = only(workplace, "runs/folder/*")  # one folder, not one a process
    assert metrics(run)[-1]["valid/nats_per_code"]
    assert done.stdout.count("finished  6 steps") == 1
