"""What a user of train_codec.py gets wrong: one line that helps, exit code 2, before any work."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audiolm.training.codec.module import CodecTraining

from .conftest import RunScript
from .test_errors import refused
from .test_train_codec import TINY_CODEC


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six recordings of half a second in two folders."""
    folder = tmp_path_factory.mktemp("sounds")
    rng = np.random.default_rng(0)
    for i in range(6):
        file = folder / "ab"[i % 2] / f"{i}.wav"
        file.parent.mkdir(exist_ok=True)
        soundfile.write(file, rng.normal(0, 0.1, 400), 800)
    return folder


@pytest.mark.parametrize(
    "overrides, parts",
    [
        # The codec
        (["codec_model=small"], ["codec_model=small is unknown", "small_16khz"]),
        (["codec_model.bins=48"], ["bins=48", "power of two"]),
        (["codec_model.ratios=[40,30]"], ["ratios=[40, 30]", "product is 1200", "800"]),
        (["codec_model.filters=8"], ["did you mean codec_model.n_filters?"]),
        (["+codec_model.segment=1.2", "codec_model.bins=512"], ["segment must be null"]),
        # Quantization, losses, discriminator
        (["quantization.levels=[2,8]"], ["levels=[2, 8]", "n_q=4"]),
        (["quantization.start=0.99"], ["freeze_encoder=0.75", "start=0.99"]),
        (
            ["quantization.start=0.99", "quantization.freeze_encoder=1.0"],
            ["start=0.99", "max_steps=6"],
        ),
        (
            ["quantization.start=0.0", "quantization.freeze_encoder=0.0"],
            ["freeze_encoder", "no encoder"],
        ),
        (["quantization.init_segments=1"], ["init_segments=1", "16 frames", "32 codes"]),
        (["losses.mle=1"], ["did you mean losses.mel?"]),
        (
            ["adversarial.enabled=true", "adversarial.n_ffts=[256]", "adversarial.filters=1"],
            ["n_ffts=[256]", "segment of 192 samples"],
        ),
        (["optim.lr=-1"], ["lr=-1"]),
        # The data
        (["data.segment=30"], ["0.50 s, shorter than a segment of 30.00 s"]),
        (["data.batch_size=0"], ["batch_size=0"]),
        (["data.weights={c:2}"], ["names c", "(a, b)"]),
        (["data.weights=3"], ["weights=3"]),
        (["data.path=nowhere"], ["no such folder: ", "nowhere"]),
        (["data.path=null"], ["data.path=null"]),
        # The trainer
        (["trainer.devices=2", "trainer.accelerator=cpu"], ["devices=2", "one device"]),
        (["trainer.accumulate_grad_batches=2"], ["accumulate_grad_batches=2", "data.batch_size"]),
        (
            ["trainer.gradient_clip_val=1.0"],
            ["gradient_clip_val=1.0", "clip=1.0", "gradient_clip_val=null"],
        ),
        (["trainer.precision=bf16-mixed"], ["precision=bf16-mixed", "32-true"]),
        (["callbacks.reconstructions.num_samples=-1"], ["num_samples=-1"]),
        (["+callbacks.reconstructions.seconds=3"], ["seconds"]),
        # Resuming
        (["ckpt_path=nowhere.ckpt"], ["nowhere.ckpt: no such file"]),
        (["ckpt_path=last"], ["hydra.run.dir=DIR"]),
    ],
)
def test_overrides(
    workplace: Path,
    run_script: RunScript,
    sounds: Path,
    overrides: list[str],
    parts: list[str],
) -> None:
    result = run_script("train_codec", f"data.path={sounds}", *TINY_CODEC, *overrides)
    refused(result, *parts)
    assert not list(Path().rglob("*.ckpt"))


def test_no_path(workplace: Path, run_script: RunScript) -> None:
    refused(run_script("train_codec"), "data.path is not set")


def test_folders(workplace: Path, run_script: RunScript) -> None:
    Path("empty").mkdir()
    refused(run_script("train_codec", "data.path=empty", *TINY_CODEC), "no audio files")
    Path("bad").mkdir()
    Path("bad/text.wav").write_text("not a sound")
    soundfile.write("bad/silent.wav", np.zeros(400), 800)
    refused(
        run_script("train_codec", "data.path=bad", *TINY_CODEC),
        "none of the 2 clips can be encoded",
    )
    # What is left out for a language model is left out for its codec.
    Path("phase").mkdir()
    noise = np.random.default_rng(0).normal(0, 0.1, 400)
    soundfile.write("phase/inverse.wav", np.stack([noise, -noise], axis=1), 800)
    refused(run_script("train_codec", "data.path=phase", *TINY_CODEC), "rules.out_of_phase.action")
    # The long one is needed to train on, and is the one for validation.
    Path("one").mkdir()
    soundfile.write("one/x.wav", np.random.default_rng(0).normal(0, 0.1, 200), 800)
    refused(
        run_script("train_codec", "data.path=one", *TINY_CODEC, "data.valid_fraction=0.5"),
        "lasts 0.12 s, shorter than a segment of 0.24 s",
    )


def test_checkpoints(
    workplace: Path, run_script: RunScript, sounds: Path, local: list[str]
) -> None:
    tiny = [f"data.path={sounds}", *TINY_CODEC]
    assert run_script("train_codec", *tiny, "hydra.run.dir=run").code == 0
    whole = Path("run/checkpoints/last.ckpt")
    refused(
        run_script("train_codec", *tiny, "hydra.run.dir=run"),
        "holds a run already",
        "ckpt_path=last",
    )
    # Other settings than those of the checkpoint, whatever else is the same.
    for change, *parts in (
        ("codec_model.n_filters=8", "codec_model.n_filters=4", "8"),
        ("losses.mel=0.7", "losses.mel="),
        ("quantization.start=0.2", "quantization.start=0.5"),
        ("data.weights={a:2}", "data.weights={}"),
        ("seed=7", "seed=0"),
        ("trainer.max_steps=6", "at step 6 already", "trainer.max_steps=6"),
    ):
        result = run_script("train_codec", *tiny, f"ckpt_path={whole}", change)
        refused(result, "last.ckpt", *parts)
    Path("others").mkdir()
    for i in range(6):
        noise = np.random.default_rng(100 + i).normal(0, 0.1, 900 + 10 * i)
        soundfile.write(f"others/{i}.wav", noise, 800)
    change = ["data.path=others", "trainer.max_steps=8"]
    refused(
        run_script("train_codec", *tiny, f"ckpt_path={whole}", *change), "other clips", "data.path="
    )
    # Files that are not a codec's checkpoint.
    cut = whole.with_name("cut.ckpt")
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    refused(run_script("train_codec", *tiny, f"ckpt_path={cut}"), "cut.ckpt", "cut short")
    Path("text.ckpt").write_text("hello")
    refused(run_script("train_codec", *tiny, "ckpt_path=text.ckpt"), "text.ckpt")
    foreign = torch.load(whole, weights_only=True)
    for key in ("audiolm_codec_format", "hyper_parameters"):
        torch.save({k: v for k, v in foreign.items() if k != key}, "foreign.ckpt")
        refused(run_script("train_codec", *tiny, "ckpt_path=foreign.ckpt"), "foreign.ckpt")
    torch.save(foreign | {"audiolm_codec_format": 99}, "foreign.ckpt")
    refused(run_script("train_codec", *tiny, "ckpt_path=foreign.ckpt"), "format 99")
    # A language model's, and the other way round.
    assert run_script("train", *local, "hydra.run.dir=language").code == 0
    other = "language/checkpoints/last.ckpt"
    refused(run_script("train_codec", *tiny, f"ckpt_path={other}"), "language is a run of train.py")
    shutil.copy(other, "alone.ckpt")
    refused(run_script("train_codec", *tiny, "ckpt_path=alone.ckpt"), "not a checkpoint of a codec")
    refused(run_script("train", *local, f"ckpt_path={whole}"), "run is a run of train_codec.py")
    refused(run_script("generate", f"ckpt_path={whole}"), "a checkpoint of a codec", "codec=local")


def test_a_codec_of_another_kind(
    workplace: Path, run_script: RunScript, local: list[str], codec_folder: Path
) -> None:
    """Settings that do not belong to the weights, and a file that is not a codec."""
    shutil.copytree(codec_folder, "codec")
    (settings,) = Path("codec").glob("*.json")
    settings.write_text(settings.read_text().replace('"n_filters": 4', '"n_filters": 8'))
    refused(run_script("prepare", *local[1:-1], "codec.path=codec"), "do not belong together")
    (weights,) = Path("codec").glob("*.safetensors")
    weights.write_bytes(b"hello")
    refused(run_script("prepare", *local[1:-1], "codec.path=codec"), "not a whole safetensors")


def test_a_loss_that_is_not_finite(
    workplace: Path, run_script: RunScript, sounds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = CodecTraining.on_train_batch_start

    def spoil(self: CodecTraining, batch: torch.Tensor, batch_idx: int) -> None:
        original(self, batch, batch_idx)
        if batch_idx == 4:
            self.mel.get_buffer("mels_64").fill_(torch.nan)

    tiny = [f"data.path={sounds}", *TINY_CODEC, "hydra.run.dir=run"]
    with monkeypatch.context() as patch:
        patch.setattr(CodecTraining, "on_train_batch_start", spoil)
        refused(run_script("train_codec", *tiny), "loss is nan at step 4", "ckpt_path=last")
    assert run_script("train_codec", *tiny, "ckpt_path=last", "optim.lr=1e-4").code == 0
