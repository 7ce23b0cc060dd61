"""The codec's LightningModule: what a step does, exact resumption, and a result to be used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import soundfile
import torch

from audiolm.codec import load_local, save_local
from audiolm.model.checkpoint import read_checkpoint
from audiolm.training import AtomicCheckpointIO, BestCheckpoint, LastCheckpoint
from audiolm.training.codec.data import WaveformData, Waveforms
from audiolm.training.codec.module import MEL_LEVEL, CodecTraining
from audiolm.training.codec.quantizer import codebook_of, initialise_codebooks, quantize
from audiolm.training.codec.reconstructions import ReconstructionCallback

from ...conftest import TINY

STEPS = 8
QUANTIZATION = {
    "levels": [1, 2, 4],
    "init_segments": 16,
    "start": 0.5,
    "noise": [0.1, 0.5],
    "freeze_encoder": 1.0,
}


@pytest.fixture(scope="module")
def waveforms(tmp_path_factory: pytest.TempPathFactory) -> Waveforms:
    folder = tmp_path_factory.mktemp("sounds")
    rng = np.random.default_rng(0)
    for i in range(8):
        tone = np.sin(np.arange(1200) * rng.uniform(0.05, 1))
        soundfile.write(folder / f"{i}.wav", 0.3 * tone + rng.normal(0, 0.03, 1200), 800)
    return Waveforms(folder, tmp_path_factory.mktemp("cache"), 800, 1)


def make_data(waveforms: Waveforms) -> WaveformData:
    return WaveformData(
        waveforms, 12, segment=0.24, valid_segment=0.4, batch_size=2, valid_fraction=0.3
    )


def make_module(**change: Any) -> CodecTraining:
    options: dict[str, Any] = {
        "settings": TINY,
        "losses": {},
        "quantization": QUANTIZATION,
        "adversarial": {},
        "optim": {"lr": 1e-3, "warmup_steps": 2, "weight_decay": 0.0},
        "warmup": 0.0,
    }
    for key, value in change.items():
        merge = isinstance(value, dict) and key in options
        options[key] = options[key] | value if merge else value
    return CodecTraining(**options)


def fit(
    waveforms: Waveforms,
    folder: Path,
    *callbacks: pl.Callback,
    ckpt_path: Path | None = None,
    max_steps: int = STEPS,
    module: CodecTraining | None = None,
    **change: Any,
) -> CodecTraining:
    module = module or make_module(**change)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=max_steps,
        val_check_interval=2,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        log_every_n_steps=1,
        callbacks=[*callbacks, LastCheckpoint(folder, 3)],
        plugins=[AtomicCheckpointIO()],
    )
    trainer.fit(module, make_data(waveforms), ckpt_path=ckpt_path)
    return module


class StopAfter(pl.Callback):
    def __init__(self, path: Path, step: int) -> None:
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True
            trainer.limit_val_batches = 0


class Watch(pl.Callback):
    """Weights, codebooks and metrics after every step."""

    def __init__(self) -> None:
        self.states: list[dict[str, torch.Tensor]] = []
        self.metrics: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        self.states.append({k: v.clone() for k, v in module.state_dict().items()})
        self.metrics.append({k: float(v) for k, v in trainer.callback_metrics.items()})


def assert_same(one: Any, two: Any, where: str = "") -> None:
    assert type(one) is type(two), where
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two), where
    elif isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_same(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(two), where
        for i, pair in enumerate(zip(one, two, strict=True)):
            assert_same(*pair, f"{where}.{i}")
    else:
        assert one == two, where


# ---- Resuming

RUNS: dict[str, dict[str, Any]] = {
    "two stages": {"quantization": {"freeze_encoder": 0.5}, "warmup": 0.4},
    "three stages": {"quantization": {"start": 0.25, "freeze_encoder": 0.75}, "warmup": 0.4},
    "joint": {"quantization": {"start": 0.0}},
    "adversarial": {
        "adversarial": {"enabled": True, "start": 0.25, "filters": 2, "n_ffts": [32, 64]}
    },
}


@pytest.mark.parametrize(
    "kind, stop",
    [
        *(("two stages", 3), ("two stages", 5), ("joint", 3), ("adversarial", 5)),
        *(("three stages", 4), ("three stages", 7)),
    ],
)
def test_stopped_and_resumed_equals_uninterrupted(
    waveforms: Waveforms, tmp_path: Path, kind: str, stop: int
) -> None:
    """To the bit: weights, codebooks, optimisers, schedules, the averages of the balancer."""
    fit(waveforms, tmp_path / "whole", **RUNS[kind])
    fit(waveforms, tmp_path / "parts", StopAfter(tmp_path / "stop.ckpt", stop), **RUNS[kind])
    assert read_checkpoint(tmp_path / "stop.ckpt")["global_step"] == stop
    fit(waveforms, tmp_path / "parts", ckpt_path=tmp_path / "stop.ckpt", **RUNS[kind])
    whole, parts = (read_checkpoint(tmp_path / f / "last.ckpt") for f in ("whole", "parts"))
    for key in ("global_step", "state_dict", "optimizer_states", "lr_schedulers"):
        assert_same(whole[key], parts[key], key)
    assert whole["global_step"] == STEPS


def test_a_resumed_run_takes_the_rates_that_it_is_given(
    waveforms: Waveforms, tmp_path: Path
) -> None:
    change = RUNS["adversarial"]
    fit(waveforms, tmp_path, StopAfter(tmp_path / "stop.ckpt", 5), **change)
    slow = {"adversarial": change["adversarial"] | {"lr": 1e-9}, "optim": {"lr": 1e-9}}
    before = read_checkpoint(tmp_path / "stop.ckpt")["state_dict"]
    module = fit(waveforms, tmp_path / "b", ckpt_path=tmp_path / "stop.ckpt", **slow)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], atol=1e-6, rtol=1e-6)


# ---- Steps


def test_two_stages(waveforms: Waveforms, tmp_path: Path) -> None:
    """First no codebook and all is trained; then encoder and codebooks stay as they are."""
    watch = Watch()
    fit(waveforms, tmp_path, watch, **RUNS["two stages"])

    def moved(a: int, b: int, part: str) -> bool:
        one, two = watch.states[a], watch.states[b]
        return any(not torch.equal(one[k], two[k]) for k in one if k.startswith(part))

    assert moved(0, 3, "model.encoder") and moved(0, 3, "model.decoder")
    assert not moved(0, 3, "model.quantizer")
    assert moved(3, 4, "model.quantizer")
    assert moved(4, 7, "model.decoder")
    assert not moved(3, 7, "model.encoder") and not moved(4, 7, "model.quantizer")
    inited = [bool(s["model.quantizer.vq.layers.0._codebook.inited"]) for s in watch.states]
    assert inited == [False] * 4 + [True] * 4
    assert "train/commitment" not in watch.metrics[3] and watch.metrics[4]["train/commitment"] > 0
    # The best checkpoint waits for a codec that can be used.
    assert "valid/loss" not in watch.metrics[3] and "valid/loss" in watch.metrics[7]
    assert "valid/si_snr_unquantized" in watch.metrics[3]
    for k in (1, 2, 4):
        assert {f"valid/si_snr_k{k}", f"valid/mel_distance_k{k}"} <= watch.metrics[7].keys()
    assert all(1 <= watch.metrics[7][f"valid/perplexity_k{k}"] <= TINY["bins"] for k in range(4))


def test_three_stages(waveforms: Waveforms, tmp_path: Path) -> None:
    """No codebook; all together on codes; then encoder and codebooks stay as they are."""
    watch = Watch()
    fit(waveforms, tmp_path, watch, **RUNS["three stages"])

    def moved(a: int, b: int, part: str) -> bool:
        one, two = watch.states[a], watch.states[b]
        return any(not torch.equal(one[k], two[k]) for k in one if k.startswith(part))

    assert not moved(0, 1, "model.quantizer") and moved(1, 2, "model.quantizer")
    for part in ("model.encoder", "model.quantizer", "model.decoder"):
        assert moved(2, 3, part) and moved(3, 4, part), part
    assert moved(5, 7, "model.decoder")
    assert not moved(5, 7, "model.encoder") and not moved(5, 7, "model.quantizer")


def test_joint_training_moves_everything_and_follows_the_levels_sampled(
    waveforms: Waveforms, tmp_path: Path
) -> None:
    watch = Watch()
    module = make_module(**RUNS["joint"])
    sampled: list[int] = []
    original = module._sample_levels
    module._sample_levels = lambda: sampled.append(original()) or sampled[-1]  # type: ignore[method-assign]
    fit(waveforms, tmp_path, watch, module=module)
    assert len(sampled) == STEPS and len(set(sampled)) > 1 and set(sampled) <= {1, 2, 4}
    for step in range(1, STEPS):
        for level in range(4):
            name = f"model.quantizer.vq.layers.{level}._codebook.embed"
            same = torch.equal(watch.states[step - 1][name], watch.states[step][name])
            assert same == (level >= sampled[step]), (step, level)


def test_quantizer_dropout_samples_every_number_and_no_other() -> None:
    module = make_module(quantization={"levels": [2, 4, 4]})
    module._generator = torch.Generator().manual_seed(0)
    sampled = [module._sample_levels() for _ in range(300)]
    assert set(sampled) == {2, 4} and 150 < sampled.count(4) < 250
    module._generator = torch.Generator().manual_seed(0)  # as every process has it
    assert [module._sample_levels() for _ in range(300)] == sampled
    assert make_module(quantization={"levels": None}).quantization["levels"] == [4, 2]


def test_the_spectral_head_pulls_at_the_encoder_and_at_nothing_else(
    waveforms: Waveforms, tmp_path: Path
) -> None:
    """Gradients of one step: the decoder's have the same direction with and without it."""

    class Gradients(pl.Callback):
        def on_train_batch_end(self, trainer: Any, module: CodecTraining, *_: Any) -> None:
            self.of = {
                part: torch.cat(
                    [p.grad.flatten() for p in getattr(module.model, part).parameters()]
                )
                for part in ("encoder", "decoder")
            }

    found = {}
    for weight in (0.0, 2.0):
        watch = Gradients()
        fit(waveforms, tmp_path / str(weight), watch, max_steps=1, losses={"spectrum": weight})
        found[weight] = watch.of
    cosine = {
        part: float(torch.cosine_similarity(found[0.0][part], found[2.0][part], dim=0))
        for part in ("encoder", "decoder")
    }
    assert cosine["decoder"] > 0.999 and cosine["encoder"] < 0.9


def test_the_spectral_head_learns_until_the_encoder_is_frozen(
    waveforms: Waveforms, tmp_path: Path
) -> None:
    watch = Watch()
    fit(waveforms, tmp_path, watch, **RUNS["two stages"])
    weights = [state["spectral_head.linear.weight"] for state in watch.states]
    assert not torch.equal(weights[0], weights[3])
    assert torch.equal(weights[4], weights[7])
    # Its loss is measured on, now of codes; what is logged is not a metric of before.
    measured = [metrics["train/spectrum"] for metrics in watch.metrics]
    assert len(set(measured)) == STEPS


def test_it_learns_and_codebooks_stay_in_use(waveforms: Waveforms, tmp_path: Path) -> None:
    watch = Watch()
    fit(
        waveforms,
        tmp_path,
        watch,
        max_steps=60,
        quantization={"start": 0.3, "freeze_encoder": 1.0, "levels": [4]},
        optim={"lr": 3e-3, "warmup_steps": 5},
    )

    def mean(name: str, steps: range) -> float:
        return float(np.mean([watch.metrics[s][name] for s in steps]))

    for name in ("train/time", "train/mel"):
        assert mean(name, range(50, 60)) < 0.8 * mean(name, range(10)), name
    assert mean("train/commitment", range(50, 60)) < 2 * mean("train/commitment", range(18, 28))
    assert watch.metrics[-1]["valid/perplexity_k0"] > 4


def test_every_level_sends_the_encoder_a_gradient() -> None:
    """With the commitment loss alone, as a level alone would."""
    module = make_module()
    x = 0.1 * torch.randn(4, 1, 480, generator=torch.Generator().manual_seed(0))
    latents = module.model.encoder(x)
    initialise_codebooks(module.model.quantizer, latents.detach().transpose(1, 2).flatten(0, 1), 0)
    found = []
    for n_q in (1, 2, 4):
        loss = quantize(module.model.quantizer, latents, n_q).commitment * n_q
        weight = module.model.encoder.model[0].conv.conv.weight_g
        found.append(torch.autograd.grad(loss, weight, retain_graph=True)[0])
    assert not torch.allclose(found[0], found[1]) and not torch.allclose(found[1], found[2])


def test_a_silent_validation_segment_does_not_hide_the_others(waveforms: Waveforms) -> None:
    module = make_module()
    module.on_validation_epoch_start()
    sound = 0.1 * torch.randn(3, 1, 240, generator=torch.Generator().manual_seed(0))
    module.validation_step(sound, 0)
    alone = module._valid.take()["si_snr_unquantized"]
    module.validation_step(torch.cat([sound, torch.zeros(1, 1, 240)]), 0)
    assert float(module._valid.take()["si_snr_unquantized"]) == pytest.approx(float(alone), abs=0.1)
    module.validation_step(torch.zeros(1, 1, 240), 0)
    assert "si_snr_unquantized" not in module._valid.take()


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_not_finite_stops_before_it_is_in_the_weights(
    waveforms: Waveforms, tmp_path: Path, what: str
) -> None:
    module = make_module()

    def spoil(module: CodecTraining) -> None:
        if module.trainer.global_step != 4:
            return
        if what == "loss":
            module.mel.mels_64.fill_(math.nan)
        else:
            first = next(module.model.parameters())
            first.register_hook(lambda gradient: gradient * math.inf)

    class Spoil(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, module: Any, *_: Any) -> None:
            spoil(module)

    with pytest.raises(FloatingPointError, match=r"step 4; .*lower optim.lr=0.001"):
        fit(waveforms, tmp_path, Spoil(), module=module)
    assert all(bool(torch.isfinite(p).all()) for p in module.parameters())
    assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == 3


# ---- The result


@pytest.fixture(scope="module")
def trained(waveforms: Waveforms, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    best = BestCheckpoint(folder, monitor="valid/loss")
    fit(waveforms, folder, best, ReconstructionCallback(folder / "reconstructions", 1))
    return folder


def restore(checkpoint: Path, folder: Path) -> CodecTraining:
    """The module of a checkpoint, whose codec goes to `folder` as well."""
    found = read_checkpoint(checkpoint)
    module = CodecTraining(**found["hyper_parameters"])
    module.load_state_dict(found["state_dict"])
    save_local(module.settings, module.model.state_dict(), folder / "codec")
    return module.eval()


def test_saved_and_loaded_it_gives_the_codes_of_training(trained: Path, tmp_path: Path) -> None:
    module = restore(trained / "last.ckpt", tmp_path)
    x = 0.1 * torch.randn(2, 1, 41 * 12, generator=torch.Generator().manual_seed(0))
    for n_q in (1, 4):
        decoded, codes = module.reconstruct(x, n_q)
        assert codes is not None
        codec = load_local(tmp_path / "codec.safetensors", n_q)
        same = (codec.encode(x) == codes.transpose(0, 1)).float().mean()
        assert float(same) > 0.995  # ties aside: the loaded one multiplies out its weights
        again = codec.decode(codes.transpose(0, 1))
        torch.testing.assert_close(again[..., : x.shape[-1]], decoded, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("samples", [12 * 20, 12 * 20 + 1, 12 * 20 + 11])
def test_decoded_sound_is_as_long_as_the_original(
    trained: Path, samples: int, tmp_path: Path
) -> None:
    """The package's decoder gives whole frames."""
    module = restore(trained / "last.ckpt", tmp_path)
    x = torch.randn(1, 1, samples)
    assert module.model.decoder(module.model.encoder(x)).shape[-1] == math.ceil(samples / 12) * 12
    assert module.reconstruct(x, 4)[0].shape == x.shape


def test_the_best_checkpoint_is_of_a_codec_that_can_be_used(trained: Path, tmp_path: Path) -> None:
    best = read_checkpoint(trained / "best.ckpt")
    assert best["global_step"] > STEPS // 2
    restore(trained / "best.ckpt", tmp_path)


def test_reconstructions_lie_beside_their_originals(trained: Path, waveforms: Waveforms) -> None:
    names = {file.name for file in (trained / "reconstructions").iterdir()}
    steps = [f"step_{step:08d}_0" for step in (2, 4, 6, 8)]
    stems = [*steps, "original_0"]
    assert names == {f"{stem}.{end}" for stem in stems for end in ("wav", "png")}
    validation = make_data(waveforms).valid_segments
    samples, rate = soundfile.read(trained / "reconstructions" / "original_0.wav", dtype="float32")
    assert rate == 800
    np.testing.assert_allclose(samples, validation[0][0], atol=1e-4)
    copy, _ = soundfile.read(trained / "reconstructions" / "step_00000008_0.wav")
    assert copy.shape == samples.shape


def test_checkpoints_are_plain_data_with_all_settings(trained: Path) -> None:
    found = read_checkpoint(trained / "last.ckpt")  # which runs no code of the file
    assert found["audiolm_codec_format"] == 2
    assert "audiolm_format" not in found  # train.py refuses it
    assert found["hyper_parameters"]["settings"] == TINY
    assert not [k for k in found["state_dict"] if k.startswith("mel.")]
    assert (
        len(codebook_of(CodecTraining(**found["hyper_parameters"]).model.quantizer, 0).embed) == 32
    )


# ---- Settings


@pytest.mark.parametrize(
    "change, message",
    [
        ({"settings": {"bins": 48}}, "bins=48: must be a power of two"),
        ({"settings": {"ratios": [40, 30]}}, "product is 1200"),
        ({"settings": {"segment": 1.2, "bins": 512}}, "segment must be null"),
        ({"losses": {"mle": 1}}, "losses.mle is unknown"),
        ({"losses": {"mel": -1}}, "losses.mel=-1"),
        ({"losses": {"mel": 0, "time": 0}}, "nothing to train on"),
        ({"quantization": {"levels": [2, 8]}}, r"levels=\[2, 8\].* n_q=4"),
        ({"quantization": {"levels": [2]}}, "among them"),
        ({"quantization": {"levels": [0, 4]}}, "levels"),
        ({"quantization": {"levels": [2.5, 4]}}, "whole numbers"),
        ({"quantization": {"noise": [0.5]}}, "noise"),
        ({"quantization": {"noise": [0.5, 0.1]}}, "noise"),
        ({"quantization": {"start": 1.0}}, "start=1.0"),
        ({"quantization": {"decay": 1.0}}, "decay=1.0"),
        ({"quantization": {"dead_below": 1.0}}, "dead_below=1.0"),
        ({"quantization": {"init_segments": 0}}, "init_segments=0"),
        ({"quantization": {"dropout": 1}}, "quantization.dropout is unknown"),
        ({"adversarial": {"start": -0.1}}, "adversarial.start"),
        ({"adversarial": {"update_probability": 0}}, "update_probability"),
        ({"adversarial": {"features": -1}}, "adversarial.features"),
        ({"adversarial": {"lr": 0}}, "adversarial.lr"),
        ({"adversarial": {"enabled": True, "n_ffts": []}}, "n_ffts"),
        ({"clip": 0}, "clip=0"),
        ({"warmup": 1.5}, "warmup=1.5"),
        ({"mel_floor": [-20, 3]}, r"mel_floor=\[-20, 3\]"),
        ({"mel_floor": [-20]}, "mel_floor"),
        ({"mel_rise": 0}, "mel_rise=0"),
        ({"quantization": {"freeze_encoder": 0.4}}, "freeze_encoder=0.4: must not be before"),
        ({"quantization": {"freeze_encoder": 1.5}}, "freeze_encoder=1.5 must be"),
        ({"quantization": {"freeze_encoder": "later"}}, "freeze_encoder=later must be"),
    ],
)
def test_settings_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_module(**change)


@pytest.mark.parametrize(
    "change, length, message",
    [
        ({"quantization": {"start": 0.96}}, 192, "quantization.start=0.96 of .*max_steps=8"),
        ({"quantization": {"start": 0.01, "freeze_encoder": 0.01}}, 192, "trains no encoder"),
        ({"quantization": {"init_segments": 2}}, 120, "hold 20 frames"),
        (
            {"adversarial": {"enabled": True, "filters": 1, "n_ffts": [256]}},
            192,
            "longer than a segment of 192 samples",
        ),
        (
            {"adversarial": {"enabled": True, "filters": 1, "n_ffts": [64], "start": 0.99}},
            192,
            "adversarial.start=0.99",
        ),
    ],
)
def test_plans_that_would_fail_late(change: dict[str, Any], length: int, message: str) -> None:
    module = make_module(**change)
    with pytest.raises(ValueError, match=message):
        module.check_plan(length, STEPS)
    make_module().check_plan(192, STEPS)


def test_the_mel_loss_looks_deeper_and_weighs_more_after_the_warmup(waveforms, tmp_path) -> None:
    floors, weights = [], []

    class Watch(pl.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            floors.append(20 * math.log10(module.mel.floor / MEL_LEVEL))
            weights.append(module.balancer.weights["mel"])

    fit(waveforms, tmp_path, Watch(), warmup=0.25, mel_floor=[-10, -30], mel_rise=3.0)
    # Two of the eight steps warm up, and two more lead from the first floor to the last.
    assert floors == pytest.approx([-10, -10, -10, -20, -30, -30, -30, -30])
    assert weights == pytest.approx([1, 1, 1, 2, 3, 3, 3, 3])
