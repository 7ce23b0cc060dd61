"""Training as a whole: resumed = uninterrupted, what it can learn and what it must not."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from audiolm.codec import EncodecCodec
from audiolm.generation.checkpoint import load_checkpoint, read_checkpoint
from audiolm.model import interleave
from audiolm.tokens import TokenStore, unigram_entropy
from audiolm.training import EMA, LastCheckpoint, SampleCallback, measure_yardsticks

from .conftest import CONTEXT, MODEL, OPTIM, make_data, make_module, make_trainer

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
from training.conftest import make_data, make_module, make_trainer

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
    """Windows of one frame are all full, so the mean of means is the mean."""
    weights = []
    for batch_size, accumulate in ((8, 1), (2, 4)):
        module = make_module(tiny_codec, context_frames=1, model={**MODEL, "dropout": 0.0})
        data = make_data(store, context_frames=1, batch_size=batch_size)
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
    """Whatever the batch size: every held-out code counts once."""
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


def test_yardsticks(store: TokenStore, tiny_codec: EncodecCodec) -> None:
    yardsticks = measure_yardsticks(make_data(store))
    assert yardsticks.uniform == pytest.approx(math.log(32))
    assert len(yardsticks.unigram) == 3
    assert 0 < yardsticks.unigram_mean < yardsticks.uniform + 0.5


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
    codes = int(make_data(independent).valid_spans["frames"].sum()) * 3
    loss = float(trainer.callback_metrics["valid/nats_per_code"])
    assert loss > entropy - 3 * spread / math.sqrt(codes)
    assert loss < entropy + 0.3  # and it has learnt the frequencies
    assert unigram_entropy(np.array([[4, 3, 2, 1, 0]]))[0] < math.log(5)


def test_early_signals_do_not_lose_the_handler() -> None:
    """Nothing of a finished run stays behind in the process."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
