"""Sound while it is made: growing files, raw samples, Ctrl-C, and readers who leave."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from torch import Tensor

import audiolm
from audiolm.audio import GrowingWav, read_audio

from .conftest import ROOT, RunScript

ENDLESS = "sampling.end=false"  # a model of seconds of training ends anywhere


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained") / "run"


@pytest.fixture
def checkpoint(run_folder: Path, workplace: Path, run_script: RunScript, local: list[str]) -> str:
    """An override that names a model of the smoke test, trained once for all tests here."""
    if not run_folder.exists():
        trained = run_script("train", *local, f"hydra.run.dir={run_folder}")
        assert trained.code == 0, trained.err
    return f"ckpt_path={run_folder}/checkpoints/last.ckpt"


def test_a_stream_is_the_sound_that_would_have_been(
    workplace: Path, run_script: RunScript, checkpoint: str
) -> None:
    settings = [checkpoint, "num_samples=2", "duration=3.01", "seed=5", ENDLESS]
    for out, more in (("whole", []), ("live", ["stream=true"])):
        made = run_script("generate", *settings, f"out={out}", *more)
        assert made.code == 0, made.err
    assert "first sound after" in made.out and "times real time" in made.out
    assert "engine" in made.out and "building" in made.out
    for i in (0, 1):
        name = f"sample_{i:03d}"
        whole, live = (read_audio(f"{out}/{name}.wav")[0] for out in ("whole", "live"))
        assert whole.shape == live.shape == (1, 2408)
        assert (whole - live).abs().max() <= 1.001 / 32768
        about = json.loads(Path(f"live/{name}.json").read_text())
        assert about["seed"] == 5 + i and about["duration"] == 3.01
        assert not about["stopped"] and about["clipped_samples"] == 0
        assert not about["ended"]
        assert about["seconds_to_first_sound"] > 0
        assert about["seconds_loading"] > 0 and about["seconds_building"] >= 0
        assert about["realtime_factor"] > 0 and about["frames_per_second"] > 0
        assert about["engine"] in ("eager", "native") and about["weights"] == "float32"
        same = json.loads(Path(f"whole/{name}.json").read_text())
        assert about["engine"] == same["engine"] and same["gain"] == 1.0
    assert sorted(p.name for p in Path("live").iterdir()) == [
        f"sample_{i:03d}.{kind}" for i in (0, 1) for kind in ("json", "wav")
    ]


def test_ctrl_c_keeps_a_playable_file_and_its_metrics(
    workplace: Path, run_script: RunScript, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, blocks = GrowingWav.write, 0

    def interrupt(self: GrowingWav, block: Tensor) -> None:
        nonlocal blocks
        original(self, block)
        blocks += 1
        assert read_audio(self.part)[0].shape[1] == self.num_samples > 0
        if blocks == 12:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(GrowingWav, "write", interrupt)
    made = run_script(
        "generate", checkpoint, "out=o", "stream=true", "duration=inf", "num_samples=1", ENDLESS
    )
    assert made.code == 130 and "stopped after" in made.err and "Traceback" not in made.err
    assert sorted(p.name for p in Path("o").iterdir()) == ["sample_000.json", "sample_000.wav"]
    about = json.loads(Path("o/sample_000.json").read_text())
    samples, rate = soundfile.read("o/sample_000.wav")
    assert about["stopped"] and about["duration"] == len(samples) / rate > 1
    assert math.isfinite(about["realtime_factor"])


def test_raw_sound_is_that_of_the_file_and_nothing_else(
    workplace: Path, run_script: RunScript, checkpoint: str
) -> None:
    settings = [checkpoint, "duration=2", "num_samples=1", ENDLESS]
    assert run_script("generate", *settings, "stream=true", "out=o").code == 0
    samples, _ = soundfile.read("o/sample_000.wav", dtype="int16")
    command = [sys.executable, str(ROOT / "scripts" / "generate.py"), *settings, "out=-"]
    done = subprocess.run(command, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.frombuffer(done.stdout, "<i2"), samples)
    printed = done.stderr.decode()
    assert "| aplay -f S16_LE -r 800 -c 1" in printed and "ffplay" in printed
    assert "first sound after" in printed


def test_a_reader_may_leave(workplace: Path, checkpoint: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate.py"), checkpoint]
    command += ["out=-", "num_samples=1", "duration=inf", ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert len(process.stdout.read(1000)) == 1000
        process.stdout.close()
        printed = process.stderr.read().decode()
        assert process.wait(timeout=300) == 0, printed
    assert "Traceback" not in printed and "Broken pipe" not in printed and "error" not in printed


def test_a_closed_standard_output_is_reported(
    workplace: Path, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as after >&-
    refused = run_script("generate", "ckpt_path=none", "out=-", "num_samples=1")
    assert refused.code == 2
    (line,) = refused.err.splitlines()
    assert "standard output, which is closed" in line


@pytest.mark.parametrize("more", [[], ["stream=true"]], ids=str)
def test_the_prompt_is_not_counted_as_generated(
    workplace: Path, run_script: RunScript, checkpoint: str, more: list[str]
) -> None:
    soundfile.write("prompt.wav", np.random.default_rng(0).normal(0, 0.1, 8000), 800)
    settings = [checkpoint, "prompt=prompt.wav", "num_samples=2", "seed=5", ENDLESS, *more]
    metrics = {}
    for generated in (0, 1):
        duration = 0.3 + generated
        made = run_script(
            "generate", *settings, f"out={generated}", f"duration={duration}", "prompt_duration=0.3"
        )
        assert made.code == 0, made.err
        metrics[generated] = json.loads(Path(f"{generated}/sample_000.json").read_text())
        assert metrics[generated]["duration"] == duration
        assert ("nothing was generated" in made.out) == (not generated)
        assert ("frames/s" in made.out) == bool(generated)
        assert ("first sound, the prompt's, after" in made.out) == bool(more)
    assert metrics[0]["frames_per_second"] is None and metrics[0]["realtime_factor"] is None
    # 800 Hz in frames of 12 samples.
    rate = metrics[1]["frames_per_second"] / metrics[1]["realtime_factor"]
    assert rate == pytest.approx(800 / 12)


TIMES = {"seconds_loading", "seconds_building", "frames_per_second", "realtime_factor"}


@pytest.mark.parametrize("more", [{}, {"prompt": "prompt.wav", "prompt_duration": 0.3}], ids=str)
def test_from_python_the_same_files(
    workplace: Path,
    run_script: RunScript,
    checkpoint: str,
    run_folder: Path,
    more: dict[str, Any],
) -> None:
    soundfile.write("prompt.wav", np.random.default_rng(0).normal(0, 0.1, 8000), 800)
    settings = {"duration": 2.01, "seed": 5, "best_of": 2, **more}
    words = [f"{name}={value}" for name, value in settings.items()]
    words += ["sampling.temperature=0.7", "sampling.min_p=0.01"]
    made = run_script("generate", checkpoint, *words, "num_samples=2", "out=script")
    assert made.code == 0, made.err
    synthesizer = audiolm.load(checkpoint.removeprefix("ckpt_path="))
    alone = synthesizer.generate(**settings, temperature=0.7, min_p=0.01)
    alone.save("python/sample_000.wav")
    batch = synthesizer.generate_batch(2, **settings, temperature=0.7, min_p=0.01)
    batch[1].save("python/sample_001")
    for i in (0, 1):
        for ending in ("wav", "png"):
            one, two = (Path(f, f"sample_00{i}.{ending}") for f in ("script", "python"))
            assert one.read_bytes() == two.read_bytes()
        one, two = (
            json.loads(Path(f, f"sample_00{i}.json").read_text()) for f in ("script", "python")
        )
        assert list(one) == list(two)
        assert all(one[name] == two[name] for name in one if name not in TIMES)
    # The defaults are those of the script, and a run's folder is its best checkpoint.
    made = run_script("generate", f"ckpt_path={run_folder}", "num_samples=1", "out=default")
    assert made.code == 0, made.err
    audiolm.load(run_folder).generate().save("default.wav")
    assert Path("default.wav").read_bytes() == Path("default/sample_000.wav").read_bytes()


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (["out=-"], ["num_samples=4", "pass num_samples=1"]),
        (["duration=inf"], ["duration=inf", "stream=true"]),
        (["stream=true", "duration=0"], ["duration=0", "above 0"]),
        (["stream=true", "duration=nan"], ["duration=nan"]),
        (["stream=yes please"], ["stream=yes please must be true or false"]),
        (["stream=true", "num_samples=0"], ["num_samples=0"]),
        (["engine=fast"], ["engine='fast'", "eager, native, compiled"]),
        (["weights=int4"], ["int4", "bfloat16, int8"]),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(
    workplace: Path,
    run_script: RunScript,
    settings: list[str],
    parts: list[str],
    checkpoint: str,
    run_folder: Path,
) -> None:
    refused = run_script("generate", checkpoint, *settings)
    assert refused.code == 2 and refused.err.count("error: ") == 1, refused.err
    assert "Traceback" not in refused.err
    for part in parts:
        assert part in refused.err
    assert not (run_folder / "generated").exists()


def test_a_folder_that_cannot_be_made_is_reported_at_once(
    workplace: Path, run_script: RunScript, checkpoint: str
) -> None:
    Path("taken").write_text("a file")
    for more in ([], ["stream=true"]):
        refused = run_script("generate", checkpoint, "out=taken", *more)
        assert refused.code == 2 and "taken" in refused.err and "Traceback" not in refused.err
        assert "real time" not in refused.err  # before anything is generated


def test_streams_end_where_whole_samples_do(
    workplace: Path, run_script: RunScript, checkpoint: str
) -> None:
    settings = [checkpoint, "num_samples=4", "duration=6", "seed=3", "sampling.temperature=1.3"]
    for out, more in (("whole", []), ("live", ["stream=true"])):
        made = run_script("generate", *settings, f"out={out}", *more)
        assert made.code == 0, made.err
    ended = []
    for i in range(4):
        name = f"sample_{i:03d}"
        whole, live = (
            json.loads(Path(f"{out}/{name}.json").read_text()) for out in ("whole", "live")
        )
        assert whole["ended"] == live["ended"] and whole["duration"] == live["duration"]
        one, two = (read_audio(f"{out}/{name}.wav")[0] for out in ("whole", "live"))
        assert one.shape == two.shape and (one - two).abs().max() <= 1.001 / 32768
        ended.append(whole["ended"])
    assert any(ended)
