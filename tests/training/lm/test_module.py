"""Training as a whole: resumed = uninterrupted, what it can learn and what it must not."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping

from audiolm.audio import read_audio
from audiolm.codec import EncodecCodec
from audiolm.generation import generate
from audiolm.model import interleave
from audiolm.model.checkpoint import load_checkpoint, read_checkpoint
from audiolm.model.likelihood import with_noise
from audiolm.tokens import TokenStore, unigram_entropy
from audiolm.training import (
    EMA,
    BestCheckpoint,
    LanguageModelTraining,
    LastCheckpoint,
    SampleCallback,
    make_optimizer,
    measure_baselines,
)
from audiolm.training.lm.clock import StepClock

from ..conftest import CONTEXT, MODEL, OPTIM, make_data, make_module, make_trainer

RESUME = """
import os, signal, sys
sys.path[:0] = [{tests!r}]
import torch
torch.set_num_threads(1)
import lightning.pytorch as pl
from pathlib import Path
from audiolm.codec import load_local
from audiolm.tokens import TokenStore
from audiolm.training import EMA, LastCheckpoint, SampleCallback
from conftest import make_data, make_module, make_trainer

class KillAt(pl.Callback):
    def __init__(self, batch, hook):
        self.batch, self.hook = batch, hook
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.hook == "start" and batch_idx == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_before_optimizer_step(self, trainer, module, optimizer):
        if self.hook == "optimizer" and trainer.fit_loop.epoch_loop.batch_idx >= self.batch:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_validation_start(self, trainer, module):
        if self.hook == "validation" and trainer.fit_loop.epoch_loop.batch_idx >= self.batch:
            os.kill(os.getpid(), signal.SIGKILL)

def run(folder, kills, **settings):
    # Each attempt in a process of its own; the last one is not killed.
    for kill in [*kills, None]:
        child = os.fork()
        if child == 0:
            try:
                codec = load_local({codec!r}, 3)
                data = make_data(TokenStore({store!r}))
                last = Path(folder) / "last.ckpt"
                callbacks = [
                    EMA(0.9),
                    SampleCallback(codec, folder, every_n_steps=4, num_samples=1, duration=0.2),
                    LastCheckpoint(folder, 2),
                ]
                if kill is not None:
                    callbacks.append(KillAt(*kill))
                trainer = make_trainer(folder, max_steps=11, callbacks=callbacks, **settings)
                trainer.fit(make_module(codec), data, ckpt_path=last if last.exists() else None)
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        expected = -signal.SIGKILL if kill is not None else 0
        assert os.waitstatus_to_exitcode(status) == expected, (kill, status)

for name, settings in {runs!r}.items():
    run({folder!r} + "/" + name + "_whole", [], **settings)
    run({folder!r} + "/" + name + "_killed", {kills!r}, **settings)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    """Bit for bit: weights, averages, optimiser and schedule, wherever it was killed."""
    tiny_codec.save(tmp_path / "codec")
    runs: dict[str, Any] = {
        "plain": {},
        "accumulated": {"accumulate_grad_batches": 2},
        "bf16": {"precision": "bf16-mixed"},
    }
    kills = [(1, "start"), (3, "optimizer"), (4, "validation"), (6, "optimizer"), (9, "start")]
    script = RESUME.format(
        tests=str(Path(__file__).parents[1]),
        codec=str(tmp_path / "codec"),
        store=str(store.path),
        folder=str(tmp_path),
        runs=runs,
        kills=kills,
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in runs:
        whole = read_checkpoint(tmp_path / f"{name}_whole" / "last.ckpt")
        killed = read_checkpoint(tmp_path / f"{name}_killed" / "last.ckpt")
        assert whole["global_step"] == killed["global_step"] == 11
        for key in ("state_dict", "ema_state_dict", "optimizer_states", "lr_schedulers"):
            assert_equal(whole[key], killed[key], f"{name} {key}")
    # The comparison itself can fail: two steps apart, the weights differ.
    with pytest.raises(AssertionError):
        other = read_checkpoint(tmp_path / "accumulated_whole" / "last.ckpt")
        assert_equal(whole["state_dict"], other["state_dict"], "")


def assert_equal(one: Any, two: Any, where: str) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two), where
    elif isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_equal(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(two), where
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_equal(a, b, f"{where}.{i}")
    else:
        assert one == two, where


def fit(
    folder: Path, store: TokenStore, codec: EncodecCodec, callbacks: list[Any], **settings: Any
) -> pl.Trainer:
    module = settings.pop("module", None) or make_module(codec)
    data = settings.pop("data", None) or make_data(store)
    trainer = make_trainer(folder, callbacks=callbacks, **settings)
    trainer.fit(module, data)
    return trainer


def test_accumulated_batches_equal_one_large_batch(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    """Also where some windows are full and others nearly empty: every code weighs the same."""
    weights = []
    for batch_size, accumulate in ((8, 1), (2, 4)):
        module = make_module(tiny_codec, model={**MODEL, "dropout": 0.0})
        data = make_data(store, batch_size=batch_size)
        fit(
            tmp_path,
            store,
            tiny_codec,
            [],
            module=module,
            data=data,
            max_steps=4,
            accumulate_grad_batches=accumulate,
            limit_val_batches=0,
            enable_checkpointing=False,
        )
        weights.append(module.model.heads.weight.detach().clone())
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=2e-5)


def test_a_checkpoint_gives_the_very_model_back(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    module = make_module(tiny_codec)
    fit(tmp_path, store, tiny_codec, [LastCheckpoint(tmp_path)], module=module)
    trained = load_checkpoint(tmp_path / "last.ckpt")
    assert trained.step == 12 and trained.context_frames == CONTEXT
    assert trained.codec == tiny_codec.identity()
    codes = torch.randint(0, 32, (2, 3, CONTEXT))
    steps = interleave(codes, trained.pattern.positions(CONTEXT), trained.model.special)
    module.eval()
    assert torch.equal(trained.model(steps), module.model(steps))
    # Plain data only, and loadable as such by torch itself.
    torch.load(tmp_path / "last.ckpt", weights_only=True)


def test_averaged_weights_are_the_ones_to_use(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    module = make_module(tiny_codec)
    fit(tmp_path, store, tiny_codec, [EMA(0.9), LastCheckpoint(tmp_path)], module=module)
    checkpoint = read_checkpoint(tmp_path / "last.ckpt")
    used = load_checkpoint(tmp_path / "last.ckpt").model.state_dict()
    for name, weight in used.items():
        assert torch.equal(weight, checkpoint["ema_state_dict"][f"model.{name}"])
    assert not torch.equal(used["heads.weight"], module.model.heads.weight)


def test_the_last_step_is_saved_also_between_intervals(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    fit(tmp_path, store, tiny_codec, [LastCheckpoint(tmp_path, 5)], max_steps=7)
    assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == 7


def test_a_loss_that_is_not_finite_stops_and_keeps_the_good_weights(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    class Poison(pl.Callback):
        def on_train_batch_start(
            self, trainer: pl.Trainer, module: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch_idx == 7:
                with torch.no_grad():
                    module.model.heads.weight[0, 0] = float("nan")

    with pytest.raises(FloatingPointError, match=r"loss is nan at step 7.*ckpt_path=last"):
        fit(tmp_path, store, tiny_codec, [Poison(), LastCheckpoint(tmp_path, 3)])
    kept = read_checkpoint(tmp_path / "last.ckpt")
    assert kept["global_step"] == 6
    assert all(bool(torch.isfinite(w).all()) for w in kept["state_dict"].values())


def test_samples_are_written_and_change_nothing(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    plain, sampled = make_module(tiny_codec), make_module(tiny_codec)
    fit(tmp_path, store, tiny_codec, [], module=plain)
    samples = SampleCallback(
        tiny_codec, tmp_path / "samples", every_n_steps=5, num_samples=2, duration=0.4
    )
    fit(tmp_path, store, tiny_codec, [samples], module=sampled)
    names = {f"step_{s:08d}_sample_{i:03d}" for s in (5, 10, 12) for i in (0, 1)}
    written = {file.name for file in (tmp_path / "samples").iterdir()}
    assert written == {f"{n}.wav" for n in names} | {f"{n}.png" for n in names}
    assert_equal(dict(plain.state_dict()), dict(sampled.state_dict()), "")


def test_validation_is_the_token_weighted_mean(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    """Whatever the batch size: every validation code counts once."""
    module = make_module(tiny_codec)
    found = []
    for batch_size in (1, 3, 16):
        data = make_data(store, batch_size=batch_size)
        (metrics,) = make_trainer(tmp_path).validate(module, data, verbose=False)
        found.append(metrics)
    for metrics in found[1:]:
        for name, value in found[0].items():
            assert metrics[name] == pytest.approx(value, rel=1e-5), name
    assert found[0]["valid/nats_per_code"] == pytest.approx(math.log(32), rel=0.02)
    per_second = found[0]["valid/nats_per_code"] * 3 * tiny_codec.frame_rate / math.log(2)
    assert found[0]["valid/bits_per_second"] == pytest.approx(per_second, rel=1e-4)


def test_baselines(store: TokenStore, tiny_codec: EncodecCodec) -> None:
    baselines = measure_baselines(make_data(store))
    assert baselines.uniform == pytest.approx(3 * [math.log(32)])
    assert len(baselines.unigram) == 3
    assert 0 < baselines.unigram_mean < baselines.uniform_mean + 0.5


class IndependentCodes(TokenStore):
    """A store's clips with codes that have nothing to do with each other."""

    probabilities = np.array([0.4, 0.3, 0.15, 0.1, 0.05])

    def read(self, clip: int, start: int, length: int) -> Any:
        rng = np.random.default_rng(clip)
        codes = rng.choice(5, size=(int(self.frames[clip]), 3), p=self.probabilities)
        return codes[start : start + length].T.astype(np.uint8)


def test_independent_codes_are_not_predicted_better_than_by_their_frequency(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    """A loss below the entropy would mean that the model sees what it predicts."""
    independent = IndependentCodes(store.path)
    module = make_module(tiny_codec, optim={**OPTIM, "lr": 1e-2})
    trainer = fit(
        tmp_path,
        independent,
        tiny_codec,
        [],
        module=module,
        data=make_data(independent, batch_size=16),
        max_steps=150,
        val_check_interval=150,
        enable_checkpointing=False,
    )
    p = IndependentCodes.probabilities
    entropy = -(p * np.log(p)).sum()
    spread = math.sqrt((p * np.log(p) ** 2).sum() - entropy**2)
    codes = make_data(independent).valid_frames * 3
    loss = float(trainer.callback_metrics["valid/nats_per_code"])
    assert loss > entropy - 3 * spread / math.sqrt(codes)
    assert loss < entropy + 0.3  # and it has learnt the frequencies
    assert unigram_entropy(np.array([[4, 3, 2, 1, 0]]))[0] < math.log(5)


def full_batch(lengths: list[int], filling: int = 0) -> dict[str, Any]:
    codes = torch.randint(0, 32, (len(lengths), 3, CONTEXT), generator=torch.Generator())
    for row, length in zip(codes, lengths, strict=True):
        row[:, length:] = filling
    return {
        "codes": codes,
        "lengths": torch.tensor(lengths),
        "reaches_end": torch.zeros(len(lengths), dtype=torch.bool),
        "conditions": {},
    }


def test_padding_is_not_seen(tiny_codec: EncodecCodec) -> None:
    module = make_module(tiny_codec).eval()
    one, two = (module.predict(full_batch([3, CONTEXT, 7], filling)).nats() for filling in (0, 5))
    assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
    assert one[1].tolist() == [3 + CONTEXT + 7] * 3


def test_dropout_differs_between_steps_ranks_and_seeds(tiny_codec: EncodecCodec) -> None:
    noises = set()
    for seed, step, rank in ((0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)):
        module = make_module(tiny_codec, seed=seed)
        module._trainer = SimpleNamespace(global_rank=rank)  # type: ignore[assignment]
        for _ in range(2):  # the same step, the same numbers
            LanguageModelTraining.on_train_batch_start(module, {}, step)
            numbers = tuple(torch.rand(4).tolist())
        noises.add(numbers)
    assert len(noises) == 4


@pytest.mark.parametrize("limit, clipped", [(1e-3, True), (0, False), (None, False)])
def test_gradients_are_clipped_where_asked_for(
    tmp_path: Path,
    store: TokenStore,
    tiny_codec: EncodecCodec,
    limit: float | None,
    clipped: bool,
) -> None:
    norms = []

    class Norms(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, module: Any, *_: Any) -> None:
            parts = [p.grad.norm() for p in module.parameters()]
            norms.append(float(torch.stack(parts).norm()))

    fit(tmp_path, store, tiny_codec, [Norms()], gradient_clip_val=limit, max_steps=3)
    assert all((norm <= 1.001e-3) == clipped for norm in norms)


def test_a_gradient_that_is_not_finite_never_reaches_a_checkpoint(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    class Poison(pl.Callback):
        def on_after_backward(self, trainer: pl.Trainer, module: Any) -> None:
            if trainer.global_step == 5:
                module.model.heads.weight.grad[0, 0] = float("inf")

    with pytest.raises(FloatingPointError, match=r"gradient is \w+ at step 5"):
        fit(tmp_path, store, tiny_codec, [Poison(), LastCheckpoint(tmp_path, 3)])
    kept = read_checkpoint(tmp_path / "last.ckpt")
    assert kept["global_step"] == 3
    assert all(bool(torch.isfinite(w).all()) for w in kept["state_dict"].values())


def test_decay_is_for_matrices_only(tiny_codec: EncodecCodec) -> None:
    optimizer, _ = make_optimizer(make_module(tiny_codec).model, 10, weight_decay=0.3)
    for group in optimizer.param_groups:
        dimensions = {min(p.ndim, 2) for p in group["params"]}
        assert dimensions == ({2} if group["weight_decay"] == 0.3 else {1})


def test_a_resumed_run_takes_the_settings_it_is_given(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    fit(tmp_path, store, tiny_codec, [LastCheckpoint(tmp_path)], max_steps=6)
    for lr, decay in ((OPTIM["lr"], 0.1), (1e-5, 0.5)):
        module = make_module(tiny_codec, optim={**OPTIM, "lr": lr, "weight_decay": decay})
        trainer = make_trainer(tmp_path, max_steps=8)
        trainer.fit(module, make_data(store), ckpt_path=tmp_path / "last.ckpt")
        matrices = trainer.optimizers[0].param_groups[0]
        assert matrices["weight_decay"] == decay
        assert 0 < matrices["lr"] <= lr


def test_the_best_checkpoint_stays_the_best_over_a_resumed_run(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    """Also where the checkpoint was written just before the validation that was the best."""
    losses = iter([3.0, 2.0, 2.5, 2.4])

    class Scripted(LanguageModelTraining):
        def on_validation_epoch_end(self) -> None:
            self.log("valid/nats_per_code", next(losses))

    def run(max_steps: int, last: Path | None) -> BestCheckpoint:
        pl.seed_everything(0, verbose=False)
        module = Scripted(MODEL, "delay", tiny_codec.identity(), CONTEXT, OPTIM)
        best = BestCheckpoint(tmp_path)
        trainer = make_trainer(
            tmp_path,
            max_steps=max_steps,
            val_check_interval=4,
            callbacks=[LastCheckpoint(tmp_path, 8), best],
        )
        trainer.fit(module, make_data(store), ckpt_path=last)
        return best

    run(8, None)  # last.ckpt is of step 8, from before the validation of that step
    resumed = run(16, tmp_path / "last.ckpt")
    assert float(resumed.best_model_score) == 2.0
    assert read_checkpoint(tmp_path / "best.ckpt")["global_step"] == 8


def test_early_stopping_leaves_a_last_checkpoint_and_samples(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    stopping = EarlyStopping("valid/nats_per_code", patience=1, min_delta=100.0)
    samples = SampleCallback(tiny_codec, tmp_path / "s", every_n_steps=0, duration=0.1)
    callbacks = [stopping, samples, LastCheckpoint(tmp_path, 100)]
    trainer = fit(tmp_path, store, tiny_codec, callbacks, max_steps=40)
    assert trainer.global_step < 40
    assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == trainer.global_step
    assert list((tmp_path / "s").glob("*.wav"))


def test_samples_are_generated_as_generation_would(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    """Without dropout, and with the averaged weights."""
    callbacks = [
        EMA(0.5),
        SampleCallback(tiny_codec, tmp_path, every_n_steps=0, num_samples=1, duration=0.3),
        LastCheckpoint(tmp_path),
    ]
    fit(tmp_path, store, tiny_codec, callbacks, module=make_module(tiny_codec))
    trained = load_checkpoint(tmp_path / "last.ckpt")
    codes = generate(trained.model, trained.pattern, 20, CONTEXT, [0])
    waveform, _ = read_audio(tmp_path / "step_00000012_sample_000.wav")
    expected = tiny_codec.decode(codes)[0]
    expected = expected / max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(waveform, expected, rtol=0, atol=1e-3)


def test_without_validation_clips_there_is_no_validation(
    tmp_path: Path, store: TokenStore, tiny_codec: EncodecCodec
) -> None:
    data = make_data(store, valid_fraction=0.0)
    assert measure_baselines(data).unigram_mean > 0
    trainer = fit(tmp_path, store, tiny_codec, [LastCheckpoint(tmp_path)], data=data)
    assert trainer.global_step == 12 and "valid/nats_per_code" not in trainer.callback_metrics


def batches(store: TokenStore, rank: int, world_size: int, batch_size: int, seed: int = 0) -> Any:
    data = make_data(store, batch_size=batch_size, seed=seed)
    data.trainer = SimpleNamespace(
        global_rank=rank,
        world_size=world_size,
        accumulate_grad_batches=1,
        global_step=0,
        max_steps=3,
        overfit_batches=0,
    )
    return [batch["codes"] for batch in data.train_dataloader()], data


def test_ranks_share_the_batches_of_one_process(store: TokenStore) -> None:
    (whole, alone), (zero, first), (one, second) = (
        batches(store, *split) for split in ((0, 1, 4), (0, 2, 2), (1, 2, 2))
    )
    for joined, a, b in zip(whole, zero, one, strict=True):
        for part, rank in ((a, 0), (b, 1)):
            assert torch.equal(joined[rank::2, :, : part.shape[2]], part)
    assert not torch.equal(whole[0], batches(store, 0, 1, 4, seed=1)[0][0])
    validation = [sum(int(b["lengths"].sum()) for b in d.val_dataloader()) for d in (first, second)]
    assert sum(validation) == alone.valid_frames and min(validation) > 0


def test_too_few_validation_windows_for_the_processes(store: TokenStore) -> None:
    _, data = batches(store, 0, 999, 1)
    with pytest.raises(ValueError, match=r"too few for 999 processes; raise data\.valid_fraction"):
        data.val_dataloader()


def test_speed_counts_undisturbed_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 2.0, 50.0, 51.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    clock = StepClock()
    for codes, disturbed in ((10, False), (10, False), (99, True), (20, False)):
        clock.start_step()
        clock.count(codes)
        if disturbed:
            clock.disturbed()
    clock.start_step()
    assert clock.codes_per_second() == pytest.approx((10 + 10 + 20) / 3)
    assert clock.codes_per_second() is None


def test_noise_in_the_history_is_codes_for_codes() -> None:
    """As often as asked, in every row another share; ends, empty cells and targets stay."""
    torch.manual_seed(0)
    steps = torch.randint(0, 9, (400, 3, 50))
    steps[:, 1:, 0], steps[:, 0, 40] = 10, 9  # the special id, and ends
    is_code = steps < 9
    noisy = with_noise(steps, is_code, 9, 0.2)
    assert torch.equal(noisy[~is_code], steps[~is_code])
    assert noisy[is_code].max() < 9
    changed = ((noisy != steps) & is_code).sum(dim=(1, 2)) / is_code.sum(dim=(1, 2))
    assert float(changed.mean()) == pytest.approx(0.2 * 8 / 9, abs=0.01)  # one in nine is the same
    assert float(changed.min()) < 0.02 and float(changed.max()) > 0.3


def test_noise_is_for_training_alone(tiny_codec: EncodecCodec) -> None:
    module = make_module(tiny_codec, history_noise=0.4, model={**MODEL, "dropout": 0.0})
    batch: Any = full_batch([CONTEXT, 9])
    assert torch.equal(module.predict(batch).nats()[0], module.predict(batch).nats()[0])
    module.log = lambda *args, **kwargs: None  # type: ignore[method-assign]
    batch["full"] = 1
    assert not torch.equal(module.training_step(batch, 0), module.training_step(batch, 0))
