"""train_codec.py end to end: recordings in, a codec out that drives the other scripts."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile
import torch
from safetensors.torch import save

import audiolm.training.codec.data as waveforms_module
from audiolm.codec import load_local
from audiolm.model.checkpoint import read_checkpoint
from audiolm.training.codec.module import CodecTraining

from ..conftest import TINY
from .conftest import ROOT, RunScript

STEPS = 6
TINY_CODEC = [
    *(f"codec_model.{key}={value}".replace(" ", "") for key, value in TINY.items()),
    "data.segment=0.24",
    "data.valid_segment=0.4",
    "data.batch_size=2",
    "quantization.levels=[1,2,4]",
    "quantization.init_segments=16",
    "quantization.start=0.5",
    "optim.warmup_steps=2",
    f"trainer.max_steps={STEPS}",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=1",
    "callbacks.checkpoint.every_n_train_steps=2",
    "callbacks.reconstructions.num_samples=1",
    "logger=csv",
]


@pytest.fixture
def tiny(recordings: Path) -> list[str]:
    return [f"data.path={recordings}", *TINY_CODEC]


def rows(run: str | Path) -> list[dict[str, str]]:
    with (Path(run) / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_from_recordings_to_a_codec_to_a_language_model_to_sound(
    workplace: Path, run_script: RunScript, tiny: list[str], recordings: Path
) -> None:
    trained = run_script("train_codec", *tiny)
    assert trained.code == 0, trained.err
    for promised in ("parameters", "4 codebooks of 32 codes", "valid", "finished  6 steps"):
        assert promised in trained.out
    assert "Traceback" not in trained.err
    (run,) = workplace.glob("runs/codec/*")
    for file in (
        ".hydra/config.yaml",
        "checkpoints/last.ckpt",
        "checkpoints/best.ckpt",
        "codec/codec.json",
        "reconstructions/original_0.wav",
        "reconstructions/step_00000006_0.wav",
        "reconstructions/step_00000006_0.png",
    ):
        assert (run / file).stat().st_size > 0
    found = rows(run)
    for name in ("train/time", "train/mel", "valid/si_snr_k4", "valid/mel_distance_k2"):
        assert any(row[name] for row in found), name
    assert all(f"valid/perplexity_k{k}" in found[0] for k in range(4))

    # It holds the weights of the best checkpoint, and says how to resume.
    weight = read_checkpoint(run / "checkpoints/best.ckpt")["state_dict"]
    codec = load_local(run / "codec")
    for name, tensor in codec.weights.items():
        assert torch.equal(tensor, weight[f"model.{name}"]), name
    assert f"codec.path={run.relative_to(workplace)}/codec" in trained.out

    use = ["data=folder", f"data.path={recordings}", "codec=local", f"codec.path={run / 'codec'}"]
    prepared = run_script("prepare", *use)
    assert prepared.code == 0, prepared.err
    learned = run_script("train", "experiment=smoke", *use, "context=0.9")
    assert learned.code == 0, learned.err
    made = run_script("generate", "out=out", "num_samples=1", "duration=1.5", "sampling.end=false")
    assert made.code == 0, made.err
    samples, rate = soundfile.read("out/sample_000.wav")
    assert rate == 800 and samples.shape == (1200,)
    assert codec.fingerprint in json.dumps(
        read_checkpoint(next(workplace.glob("runs/folder/*/checkpoints/last.ckpt")))[
            "hyper_parameters"
        ]["codec"]
    )


def test_stopped_by_ctrl_c_and_resumed_equals_uninterrupted(
    workplace: Path, run_script: RunScript, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and messages; that it is exact in each stage is tested in training/."""
    after = 5
    whole = run_script("train_codec", *tiny, "hydra.run.dir=whole")
    assert whole.code == 0, whole.err
    with monkeypatch.context() as patch:
        original = CodecTraining.on_train_batch_start

        def interrupt(self: CodecTraining, batch: torch.Tensor, batch_idx: int) -> None:
            original(self, batch, batch_idx)
            if batch_idx == after - 1:
                signal.raise_signal(signal.SIGINT)

        patch.setattr(CodecTraining, "on_train_batch_start", interrupt)
        stopped = run_script("train_codec", *tiny, "hydra.run.dir=parts")
    assert stopped.code == 130, stopped.err
    assert f"stopped after step {after} of 6" in stopped.out and not Path("parts/codec").exists()
    resumed = run_script("train_codec", *tiny, "hydra.run.dir=parts", "ckpt_path=last")
    assert resumed.code == 0, resumed.err
    assert "resumed     from parts/checkpoints/last.ckpt" in resumed.out
    one, two = (read_checkpoint(f"{f}/checkpoints/last.ckpt") for f in ("whole", "parts"))
    assert one["global_step"] == two["global_step"] == STEPS
    for name, weight in one["state_dict"].items():
        assert torch.equal(weight, two["state_dict"][name]), name
    for a, b in zip(one["optimizer_states"], two["optimizer_states"], strict=True):
        for place, state in a["state"].items():
            assert all(torch.equal(state[k], b["state"][place][k]) for k in state)
    assert load_local("whole/codec").fingerprint == load_local("parts/codec").fingerprint
    # The same rows with the same numbers, each once.
    first, second = rows("whole"), rows("parts")
    assert [r["step"] for r in first] == [r["step"] for r in second]
    for a, b in zip(first, second, strict=True):
        assert {k: v for k, v in a.items() if v} == {k: v for k, v in b.items() if v}


def test_a_kill_loses_at_most_the_steps_since_the_last_checkpoint(
    workplace: Path, run_script: RunScript, tiny: list[str]
) -> None:
    """With a real process, ended without notice while it trains."""
    long = [*tiny, "trainer.max_steps=100000", "trainer.val_check_interval=100000"]
    long += ["callbacks.checkpoint.every_n_train_steps=5", "hydra.run.dir=run"]
    command = [sys.executable, str(ROOT / "scripts" / "train_codec.py"), *long]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
    )
    last = Path("run/checkpoints/last.ckpt")
    try:
        for _ in range(1200):
            if last.exists() or process.poll() is not None:
                break
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    step = read_checkpoint(last)["global_step"]
    assert step % 5 == 0 and step > 0
    resumed = run_script("train_codec", *long, "ckpt_path=last", f"trainer.max_steps={step + 6}")
    assert resumed.code == 0, resumed.err
    assert read_checkpoint(last)["global_step"] == step + 6


def test_a_run_stopped_before_its_codec_was_written_ends_well(
    workplace: Path, run_script: RunScript, tiny: list[str]
) -> None:
    assert run_script("train_codec", *tiny, "hydra.run.dir=run").code == 0
    codec = Path("run/codec")
    written = {file.name: file.read_bytes() for file in codec.iterdir()}
    over = run_script("train_codec", "ckpt_path=run")
    assert over.code == 2 and "is at step 6 already" in over.err
    # A kill leaves nothing of it, the weights alone, or the codec of when the run was shorter.
    other = {"codec.safetensors": save({"weight": torch.zeros(1)}, {"fingerprint": "another"})}
    for left in ({}, {"codec.safetensors": written["codec.safetensors"]}, {**written, **other}):
        for file in codec.iterdir():
            file.unlink()
        for name, data in left.items():
            (codec / name).write_bytes(data)
        refused = run_script("train_codec", "ckpt_path=run", "codec_model.n_filters=8")
        assert refused.code == 2 and "codec_model.n_filters=4" in refused.err
        again = run_script("train_codec", "ckpt_path=run")
        assert again.code == 0, again.err
        assert "the codec alone was missing" in again.out and "run/codec" in again.out
        assert {file.name: file.read_bytes() for file in codec.iterdir()} == written


def test_ctrl_c_while_decoding(
    workplace: Path, run_script: RunScript, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(waveforms_module, "stream_audio", stop)
        stopped = run_script("train_codec", *tiny, "hydra.run.dir=run")
    assert stopped.code == 130 and "Traceback" not in stopped.err
    # What was checked is kept; nothing else is there.
    files = [file for file in Path("data").rglob("*") if file.is_file()]
    assert not [file for file in files if file.parent != Path("data/checks")]
    # The folder is free for the same command.
    assert not Path("run/checkpoints").exists()


def test_longer_than_planned_and_with_another_rate(
    workplace: Path, run_script: RunScript, tiny: list[str]
) -> None:
    """Also from a checkpoint of before the data was kept in it."""
    assert run_script("train_codec", *tiny, "hydra.run.dir=run").code == 0
    last = Path("run/checkpoints/last.ckpt")
    checkpoint = torch.load(last, weights_only=True)
    del checkpoint["hyper_parameters"]["data"]
    torch.save(checkpoint, last)
    Path("run/reconstructions/original_0.png").unlink()  # as where a kill came behind its sound
    more = ["hydra.run.dir=run", "ckpt_path=last", "trainer.max_steps=8", "optim.lr=5e-4", "clip=2"]
    again = run_script("train_codec", *tiny, *more)
    assert again.code == 0, again.err
    assert read_checkpoint(last)["global_step"] == 8
    sounds = {file.stem for file in Path("run/reconstructions").glob("*.wav")}
    assert sounds == {file.stem for file in Path("run/reconstructions").glob("*.png")}


def test_without_validation_recordings_the_last_weights_are_taken(
    workplace: Path, run_script: RunScript, tiny: list[str]
) -> None:
    done = run_script("train_codec", *tiny, "data.valid_fraction=0", "hydra.run.dir=run")
    assert done.code == 0, done.err
    assert not Path("run/checkpoints/best.ckpt").exists()
    assert "valid/loss" not in rows("run")[0]
    load_local("run/codec")


@pytest.mark.parametrize(
    "overrides",
    [
        ["codec_model.causal=true", "codec_model.lstm=1", "codec_model.norm=none"],
        ["codec_model.channels=2", "quantization.start=0.0", "quantization.freeze_encoder=1.0"],
        [
            *("adversarial.enabled=true", "adversarial.filters=2", "adversarial.n_ffts=[32,64]"),
            *("adversarial.start=0.4", "quantization.levels=[4]"),
        ],
    ],
)
def test_other_codecs(
    workplace: Path, run_script: RunScript, tiny: list[str], overrides: list[str]
) -> None:
    done = run_script("train_codec", *tiny, *overrides, "hydra.run.dir=run")
    assert done.code == 0, done.err
    assert "Warning" not in done.err
    codec = load_local("run/codec")
    assert codec.encode(torch.randn(1, codec.channels, 240)).shape == (1, 4, 20)


def test_tracking_offline_has_the_reconstructions(
    workplace: Path, run_script: RunScript, tiny: list[str]
) -> None:
    done = run_script("train_codec", *tiny, "logger=wandb", "hydra.run.dir=run")
    assert done.code == 0, done.err
    (run,) = Path("run/wandb").glob("offline-run-*")
    media = {file.name.rsplit("_", 2)[0] for file in run.rglob("media/**/*") if file.is_file()}
    assert {"reconstructions", "reconstructions_spectrogram"} <= media


def test_real_speech_improves_every_loss(workplace: Path, run_script: RunScript) -> None:
    """On the recordings that lie beside the checkout, where they do."""
    speech = ROOT.parent / "shared" / "audio" / "speech"
    files = sorted(speech.glob("*.flac"))[:8] if speech.is_dir() else []
    if not files:
        pytest.skip("needs shared/audio/speech beside the checkout")
    Path("speech").mkdir()
    for file in files:
        (Path("speech") / file.name).symlink_to(file)
    done = run_script(
        "train_codec",
        "data.path=speech",
        *("codec_model.sample_rate=8000", "codec_model.ratios=[2,4,5]", "codec_model.n_filters=4"),
        *("codec_model.dimension=16", "codec_model.n_q=4", "codec_model.bins=64"),
        *("quantization.levels=[2,4]", "quantization.start=0.25"),
        *("quantization.freeze_encoder=1.0", "quantization.init_segments=32"),
        *("data.segment=0.32", "optim.warmup_steps=5", "optim.lr=3e-3", "warmup=0.1"),
        *("trainer.max_steps=80", "trainer.log_every_n_steps=10"),
        *("trainer.val_check_interval=40", "logger=csv", "hydra.run.dir=run"),
    )
    assert done.code == 0, done.err
    for name in ("train/time", "train/mel"):
        values = [float(row[name]) for row in rows("run") if row[name]]
        assert values[-1] < values[0], (name, values)


def test_a_short_run_is_validated_and_a_prolonged_one_says_what_is_frozen(
    workplace: Path, run_script: RunScript, tiny: list[str]
) -> None:
    usual = [*tiny, "trainer.val_check_interval=1000", "quantization.freeze_encoder=0.5"]
    short = run_script("train_codec", *usual, "hydra.run.dir=run")
    assert short.code == 0, short.err
    assert "quantized from step 3 on" in short.out
    assert (workplace / "run/checkpoints/best.ckpt").exists()
    assert list((workplace / "run/reconstructions").glob("step_*.wav"))
    longer = run_script(
        *("train_codec", *usual, "hydra.run.dir=run", "ckpt_path=last"),
        f"trainer.max_steps={2 * STEPS}",
    )
    assert longer.code == 0, longer.err
    assert f"quantized already, decoder alone from step {STEPS} on" in longer.out


def test_another_run_begins_with_the_weights_of_a_codec(
    workplace: Path, run_script: RunScript, tiny: list[str]
) -> None:
    """Its decoder may grow; it is resumed like any other."""
    assert run_script("train_codec", *tiny, "hydra.run.dir=run").code == 0
    more = ["hydra.run.dir=more", "init_from=run", "codec_model.decoder_residual_layers=2"]
    refused = run_script("train_codec", *tiny, *more, "codec_model.n_filters=8")
    assert refused.code == 2 and len(refused.err.strip().splitlines()) == 1
    assert "init_from=run" in refused.err and "codec_model.n_filters=4" in refused.err
    assert not Path("more").exists()
    more += ["quantization.start=0", "quantization.dead_below=0", "optim.lr=1e-9"]
    begun = run_script("train_codec", *tiny, *more, "trainer.max_steps=2")
    assert begun.code == 0, begun.err
    assert "init_from   codec and spectral head of run/checkpoints/" in begun.out
    assert "quantized already" in begun.out
    before, after = load_local("run/codec"), load_local("more/codec")
    assert after.settings["decoder_residual_layers"] == 2
    latents = [
        c.latents(torch.randn(1, 1, 4000, generator=torch.Generator().manual_seed(0)))
        for c in (before, after)
    ]
    torch.testing.assert_close(*latents, atol=1e-4, rtol=0)
    resumed = run_script("train_codec", *tiny, *more, "trainer.max_steps=3", "ckpt_path=last")
    assert resumed.code == 0, resumed.err
    assert "init_from   " not in resumed.out
