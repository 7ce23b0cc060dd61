"""scripts/evaluate.py end to end: what it finds, where it writes it, and what it refuses."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audiolm.batches.splits import split_clips
from audiolm.synthesis import job
from audiolm.synthesis.synthesizer import Synthesizer
from audiolm.tokens import TokenStore

from .conftest import ROOT, RunScript

OPTIONS = ("num_samples=3", "duration=1.2")


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def evaluation(run: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    return metrics


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, codec_folder: Path, recordings: Path) -> Path:
    """A folder with a run in it, of six steps, and its codes."""
    folder = tmp_path_factory.mktemp("trained")
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), "experiment=smoke"]
    command += ["data=folder", f"data.path={recordings}", "data.valid_fraction=0.2"]
    command += ["codec=local", f"codec.path={codec_folder}", "logger=wandb"]
    environment = {**os.environ, "WANDB_MODE": "offline"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture
def run(workplace: Path, trained: Path) -> Path:
    """A copy of that run, in the current folder. Its codes are where they were."""
    shutil.copytree(trained / "runs", workplace / "runs")
    return only(workplace, "runs/folder/*")


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty tones of two names and as many lengths, with a table of who made them."""
    folder = tmp_path_factory.mktemp("spoken")
    rng = np.random.default_rng(0)
    rows = ["file_name,label,text"]
    for i in range(40):
        name = ("low", "high")[i % 2]
        time = np.arange(rng.integers(500, 800)) / 800
        tone = 0.4 * np.sin(2 * np.pi * (50 if name == "low" else 200) * time)
        soundfile.write(folder / f"{i:02d}.wav", tone + rng.normal(0, 0.02, len(time)), 800)
        rows.append(f"{i:02d}.wav,{name},a {name} tone")
    (folder / "metadata.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_everything_is_measured_and_written(run: Path, run_script: RunScript) -> None:
    ran = run_script("evaluate", *OPTIONS)
    assert ran.code == 0, ran.err
    metrics = evaluation(run)
    rows = metrics["nats_per_code"]
    assert [row["codebook"] for row in rows] == [0, 1, 2, 3, "mean"]
    assert rows[1]["uniform"] == pytest.approx(math.log(32))
    for row in rows:  # an untrained model: no better than guessing, and sure of nothing
        assert 0.5 * row["uniform"] < row["model"] < 1.2 * row["uniform"]
        assert 0 <= row["calibration_error"] < 0.5
        assert row["bigram"] < 1.3 * row["unigram"]
    frames = metrics["validation_codes"] / 4
    assert metrics["validation_seconds"] == pytest.approx(frames * 12 / 800)
    # A second has 800 / 12 frames of four codes and now and then an end, which costs too.
    codes = rows[-1]["model"] * 4 * 800 / 12 / math.log(2)
    assert codes < metrics["bits_per_second"] < 1.05 * codes
    assert metrics["codec_bits_per_second"] == pytest.approx(4 * 5 * 800 / 12)
    bins = metrics["calibration"]["all"]
    assert len(bins) == 15 and sum(b["codes"] for b in bins) > metrics["validation_codes"]

    clips = metrics["clips"]
    assert clips["num_clips"] == {"generated": 3, "validation": 3, "training": 3}
    assert clips["most_seconds"] == pytest.approx(1.2)
    assert metrics["sampling"]["seeds"] == [0, 1, 2]
    for distances in clips["frechet"].values():
        assert distances["generated"] > 0 and distances["training"] > 0
    for name in ("all_codebooks", "codebook_0"):
        shared = metrics["memorisation"][name]
        assert len(shared["generated"]) == len(shared["validation"]) == 3
        assert all(r["seconds"] <= r["of_seconds"] for kind in shared.values() for r in kind)
    assert (run / "evaluation.png").stat().st_size > 10_000
    for words in ("bits per second of audio", "Fréchet distance", "shared with training"):
        assert words in ran.out
    # The same W&B run as the training's.
    assert "wandb sync" in ran.out
    ids = {folder.name.rsplit("-", 1)[1] for folder in run.glob("wandb/offline-run-*")}
    assert len(list(run.glob("wandb/offline-run-*"))) == 2 and len(ids) == 1


def test_the_slow_parts_can_be_skipped(run: Path, workplace: Path, run_script: RunScript) -> None:
    ran = run_script("evaluate", "num_samples=0", "logger=csv")
    assert ran.code == 0, ran.err
    alone = evaluation(run)
    assert "clips" not in alone and "W&B" not in ran.out and "samples" not in ran.out
    shutil.rmtree(run / "wandb")  # trained without
    ran = run_script("evaluate", *OPTIONS, "audit=false", f"out={workplace / 'elsewhere.json'}")
    assert ran.code == 0, ran.err
    assert "W&B" not in ran.out and not (run / "wandb").exists()
    metrics = json.loads((workplace / "elsewhere.json").read_text())
    assert (workplace / "elsewhere.png").is_file()
    assert "clips" in metrics and "memorisation" not in metrics
    assert metrics["nats_per_code"] == alone["nats_per_code"]


def test_samples_have_the_conditions_of_validation_clips(
    workplace: Path, run_script: RunScript, local: list[str], spoken: Path
) -> None:
    arguments = [*local[:2], f"data.path={spoken}", *local[3:], "conditioning=label"]
    arguments += ["data.valid_fraction=0.2", "trainer.max_steps=40", "optim.warmup_steps=5"]
    arguments += ["optim.lr=1e-2", "conditioning.drop=0.2", "trainer.val_check_interval=20"]
    trained = run_script("train", *arguments)
    assert trained.code == 0, trained.err
    run = only(workplace, "runs/folder/*")
    ran = run_script("evaluate", *OPTIONS, "sampling.guidance=2")
    assert ran.code == 0, ran.err
    metrics = evaluation(run)
    conditional, unconditional = (
        metrics["nats_per_code"][-1][n] for n in ("model", "without_conditions")
    )
    assert conditional < unconditional and metrics["conditions_bits_per_second"] > 0
    assert metrics["sampling"]["guidance"] == 2
    assert 0 <= metrics["clips"]["ended"] <= 1
    # Twice as long as the longest validation clip, or what was asked for.
    assert metrics["clips"]["most_seconds"] == pytest.approx(1.2)
    page = (run / "report.html").read_text()
    for name in ("plan.json", "evaluation.json"):  # of the training's samples, and of these
        told = json.loads((run / name).read_text())["sample_conditions"]
        assert told and all(set(each) == {"label"} for each in told)
        assert f'data-source="{name}#/sample_conditions/0/label">{told[0]["label"]}<' in page
    pytest.importorskip("transformers")
    empty = f"published_models.recogniser={workplace}"
    missing = run_script("evaluate", *OPTIONS, "published=[wer]", empty)
    assert missing.code == 2 and "published=wer: its weights cannot be had" in missing.err


def test_recordings_score_what_evaluation_measures_of_all(
    run: Path, trained: Path, run_script: RunScript
) -> None:
    ran = run_script("evaluate", "num_samples=0")
    assert ran.code == 0, ran.err
    measured = evaluation(run)
    synthesizer = Synthesizer.load(run)
    store = TokenStore(only(trained, "data/tokens/*"))
    clips = split_clips(store, 0.2).valid["clip"].tolist()
    scores = [synthesizer.score(store.record(clip)["path"]) for clip in clips]
    codes = [store.num_codebooks * int(store.frames[clip]) + 1 for clip in clips]  # and the end
    nats = np.average([score.nats_per_code for score in scores], weights=codes)
    assert nats == pytest.approx(measured["nats_per_code"][-1]["model"], rel=1e-5)
    seconds = [score.seconds for score in scores]
    bits = np.average([score.bits_per_second for score in scores], weights=seconds)
    assert bits == pytest.approx(measured["bits_per_second"], rel=1e-5)
    assert scores[0].codec_bits_per_second == pytest.approx(measured["codec_bits_per_second"])


def test_a_copy_of_the_training_set_is_found(
    run: Path, trained: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A "model" that gives back a span of a training clip."""
    store = TokenStore(only(trained, "data/tokens/*"))
    clip = int(split_clips(store, 0.2).train["clip"][3])
    span = torch.from_numpy(store.read(clip, 20, 50).astype(np.int64))
    monkeypatch.setattr(job, "stream", lambda *_, **__: iter([span[None].repeat(3, 1, 1)]))
    ran = run_script("evaluate", *OPTIONS)
    assert ran.code == 0, ran.err
    for runs in evaluation(run)["memorisation"].values():
        for found in runs["generated"]:
            assert found["clip"] == store.record(clip)["id"]
            assert found["seconds"] == pytest.approx(50 * 12 / 800)
            assert found["clip_at_seconds"] == pytest.approx(20 * 12 / 800)
        assert all(found["seconds"] < 0.75 for found in runs["validation"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["num_samples=-1"], "num_samples=-1 must be a whole number from 0"),
        (["duration=0"], "duration=0 must be a number above 0"),
        (["duration=inf"], "samples are compared with clips, which end"),
        (["num_samples=few"], "num_samples=few must be a whole number"),
        (["sampling.top_k=0"], "top_k=0 must be a whole number from 1"),
        (["published=[fad]", "num_samples=0"], "raise num_samples"),
        (["published=[pesq]"], "published=pesq is unknown; choose of fad, clap, dnsmos, wer"),
        (["published=fad"], "published=fad must be a list"),
        (["published=[clap]"], "this model is unconditional"),
    ],
)
def test_what_is_wrong_in_one_line(
    run: Path, run_script: RunScript, overrides: list[str], message: str
) -> None:
    refused = run_script("evaluate", *overrides)
    assert refused.code == 2, refused.out
    assert message in refused.err and refused.err.count("\n") == 1, refused.err


def test_data_that_do_not_go_with_the_model(
    run: Path, trained: Path, workplace: Path, run_script: RunScript, local: list[str]
) -> None:
    (store,) = (trained / "data" / "tokens").glob("*")
    prepared = run_script("prepare", *local[1:], "codec.num_codebooks=2", "data.store=two")
    assert prepared.code == 0, prepared.err
    elsewhere = store.rename(workplace / "elsewhere")
    try:
        refusals = [
            (run_script("evaluate"), "codes that are not here"),
            (run_script("evaluate", "data=store", "data.path=two"), "with 2 codebooks, this codec"),
            (
                run_script(
                    "evaluate", "data=store", f"data.path={elsewhere}", "data.valid_fraction=0"
                ),
                "data.valid_fraction=0 holds nothing out",
            ),
        ]
    finally:
        elsewhere.rename(store)
    for refused, message in refusals:
        assert refused.code == 2 and message in refused.err, refused.err
        assert refused.err.count("\n") == 1


def test_a_store_that_is_named_is_split_as_the_run_was(
    run: Path, trained: Path, run_script: RunScript
) -> None:
    (store,) = (trained / "data" / "tokens").glob("*")
    found = []
    for named in ([], ["data=store", f"data.path={store}"], ["data.valid_fraction=0.9"]):
        given = [*named, "data=store", f"data.path={store}"] if len(named) == 1 else named
        ran = run_script("evaluate", "num_samples=0", *given)
        assert ran.code == 0, ran.err
        found.append(evaluation(run)["validation_codes"])
    assert found[0] == found[1] < found[2]


def test_there_is_no_run(workplace: Path, run_script: RunScript) -> None:
    refused = run_script("evaluate")
    assert refused.code == 2 and "no run with a checkpoint" in refused.err
