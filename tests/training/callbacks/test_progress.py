from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn

from audiolm.training.callbacks import progress
from audiolm.training.callbacks.progress import StepProgressBar, _duration


class Batches:
    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def __len__(self) -> int:
        return self.last

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.first, self.last):
            yield torch.ones(2, 4)


class Toy(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.layer(batch).square().mean()
        self.log("loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log("valid", batch.mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def train_dataloader(self) -> Any:
        per_step = self.trainer.accumulate_grad_batches
        return Batches(self.trainer.global_step * per_step, 50 * per_step)

    def val_dataloader(self) -> Any:
        return Batches(0, 2)


class Heard(Toy):
    """Counts the audio that it trains on."""

    audio_seconds = 0.0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.audio_seconds += 25.0
        return super().training_step(batch, batch_idx)


def fit(bar: StepProgressBar, max_steps: int, **settings: Any) -> pl.Trainer:
    ckpt_path = settings.pop("ckpt_path", None)
    torch.manual_seed(0)  # of the weights, and so of the first loss
    module = settings.pop("module", None) or Toy()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=max_steps,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[bar],
        **({"val_check_interval": 7} | settings),
    )
    trainer.fit(module, ckpt_path=ckpt_path)
    return trainer


ESTIMATE = r"about \d+ seconds left \([0-9.e+]+ steps/s\)"


def test_without_a_terminal_there_are_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    fit(StepProgressBar(seconds_between_lines=0), 14)
    out = capsys.readouterr().out
    assert "\r" not in out
    lines = out.splitlines()
    assert len(lines) == 14
    assert lines[0].startswith("step 1/14, loss 0.")
    assert re.fullmatch(ESTIMATE, lines[10])
    assert re.fullmatch(r"step 12/14, loss [0-9.e-]+, valid 1, " + ESTIMATE, lines[11])
    assert re.fullmatch(r"step 14/14, loss [0-9.e-]+, valid 1, [0-9.e+]+ steps/s", lines[13])


def test_lines_are_rare(capsys: pytest.CaptureFixture[str]) -> None:
    fit(StepProgressBar(seconds_between_lines=1000), 14)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["about", "step"]


def test_a_resumed_run_goes_on_counting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = fit(StepProgressBar(), 5, accumulate_grad_batches=2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    capsys.readouterr()
    bar = StepProgressBar(seconds_between_lines=0)
    fit(bar, 8, accumulate_grad_batches=2, ckpt_path=tmp_path / "last.ckpt")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["step 6/8", "step 7/8", "step 8/8"]


def test_on_a_terminal_there_is_one_bar_over_all_steps_and_the_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    bar = StepProgressBar()
    trainer = fit(bar, 12, accumulate_grad_batches=2)
    assert (bar.train_progress_bar.n, bar.train_progress_bar.total) == (12, 12)
    out = capsys.readouterr().out
    assert re.search(r"^(.*\r)?" + ESTIMATE + "$", out, re.MULTILINE)
    assert "| 12/12 [" in out
    assert "loss=" in out
    assert "/24" not in out

    trainer.save_checkpoint(tmp_path / "last.ckpt")
    bar = StepProgressBar()
    fit(bar, 15, accumulate_grad_batches=2, ckpt_path=tmp_path / "last.ckpt")
    out = capsys.readouterr().out
    assert bar.train_progress_bar.initial == 12
    assert "| 13/15 [" in out
    assert "| 15/15 [" in out
    assert "| 1/15 [" not in out


def test_audio_a_minute_is_that_of_the_steps_after_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = itertools.count(0, 10)  # each step takes 10 s, and trains on 25 s
    clock = SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr(progress, "time", clock)
    trainer = fit(StepProgressBar(seconds_between_lines=0), 14, module=Heard())
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(" 0.1 steps/s, 2.5 minutes of audio a minute")
    assert any(" left (0.1 steps/s, 2.5 minutes of audio a minute)" in line for line in lines)
    assert trainer.global_step == 14


def test_without_max_steps_there_is_a_speed(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=2,
        limit_train_batches=6,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[StepProgressBar(seconds_between_lines=0)],
    )
    trainer.fit(Toy())
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[0-9.e+]+ steps/s", lines[10])
    assert re.fullmatch(r"step 12, loss [0-9.e-]+, [0-9.e+]+ steps/s", lines[11])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.4, "12 seconds"),
        (89, "89 seconds"),
        (91, "2 minutes"),
        (3600, "60 minutes"),
        (5400, "1.5 hours"),
        (100_000, "27.8 hours"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert _duration(seconds) == f"about {text}"
