from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn

from audiolm.model.checkpoint import read_checkpoint
from audiolm.parallel import ignore_interrupts
from audiolm.training.callbacks.checkpoints import AtomicCheckpointIO
from audiolm.training.callbacks.interrupt import GracefulInterrupt

from ..conftest import Batches

STEPS = 8


class Toy(pl.LightningModule):
    """A layer; sends itself a signal in the given batches."""

    def __init__(self, signals: dict[int, list[int]] | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = nn.Linear(4, 4)
        self.signals = signals or {}
        self.validations = 0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = (self.layer(batch) - batch).square().mean()
        for number in self.signals.get(batch_idx, []):
            signal.raise_signal(number)
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.validations += not self.trainer.sanity_checking

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self) -> Any:
        per_step = self.trainer.accumulate_grad_batches
        return Batches(self.trainer.global_step * per_step, STEPS * per_step)

    def val_dataloader(self) -> Any:
        return Batches(0, 1)


def fit(
    folder: Path,
    signals: dict[int, list[int]] | None = None,
    ckpt_path: Path | None = None,
    **settings: Any,
) -> tuple[pl.Trainer, Toy, GracefulInterrupt]:
    interrupt = GracefulInterrupt(folder / "last.ckpt")
    # Of those that save, the one most likely to get in the way: it has saved nothing before.
    keep = ModelCheckpoint(
        folder, every_n_train_steps=100, save_last=True, enable_version_counter=False
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=STEPS,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[interrupt, keep],
        plugins=[AtomicCheckpointIO()],
        **({"val_check_interval": 3} | settings),
    )
    module = Toy(signals)
    trainer.fit(module, ckpt_path=ckpt_path)
    return trainer, module, interrupt


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("step", [2, 3])
def test_the_step_is_finished_and_the_resumed_run_is_the_uninterrupted_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int, accumulate: int, step: int
) -> None:
    settings = {"accumulate_grad_batches": accumulate, "val_check_interval": 3 * accumulate}
    uninterrupted, whole, untouched = fit(tmp_path / "whole", **settings)
    assert not untouched.interrupted
    assert whole.validations == 2

    batch = (step - 1) * accumulate
    trainer, stopped, interrupt = fit(tmp_path, {batch: [number]}, **settings)
    assert interrupt.interrupted
    assert trainer.global_step == step
    assert stopped.validations == 0
    line = f"stopping after step {step}, press Ctrl-C again to stop at once"
    assert capfd.readouterr().err.count(line) == 1
    saved = read_checkpoint(tmp_path / "last.ckpt")
    assert saved["global_step"] == step
    torch.testing.assert_close(saved["state_dict"], dict(stopped.state_dict()), rtol=0, atol=0)

    trainer, resumed, interrupt = fit(tmp_path, ckpt_path=tmp_path / "last.ckpt", **settings)
    assert trainer.global_step == STEPS
    assert trainer.current_epoch == uninterrupted.current_epoch
    assert not interrupt.interrupted
    for mine, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert resumed.validations == (2 if step < 3 else 1)


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        fit(tmp_path, {4: [signal.SIGINT, signal.SIGINT]}, val_check_interval=100)
    assert not (tmp_path / "last.ckpt").exists()


def test_a_failing_step_restores_the_handlers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise FloatingPointError("the loss is nan")

    monkeypatch.setattr(Toy, "training_step", fail)
    with pytest.raises(FloatingPointError):
        fit(tmp_path)


def test_a_forked_child_leaves_ctrl_c_to_its_parent_and_dies_of_sigterm(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    interrupt = GracefulInterrupt(tmp_path / "last.ckpt")
    interrupt._process = os.getppid()  # as a child sees it
    with pytest.MonkeyPatch.context() as patch:
        killed: list[int] = []
        patch.setattr(os, "kill", lambda pid, number: killed.append(number))
        interrupt._on_signal(signal.SIGINT, None)
        assert killed == []
        old = signal.getsignal(signal.SIGTERM)
        interrupt._on_signal(signal.SIGTERM, None)
        signal.signal(signal.SIGTERM, old)
        assert killed == [signal.SIGTERM]
    assert not interrupt._requested


def test_workers_can_ignore_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGINT)
    ignore_interrupts(0)
    signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
