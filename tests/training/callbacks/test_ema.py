from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn

from audiolm.model.checkpoint import read_checkpoint
from audiolm.training.callbacks.checkpoints import AtomicCheckpointIO
from audiolm.training.callbacks.ema import EMA, averaged_weights

from ..conftest import Batches

STEPS = 8


class Toy(pl.LightningModule):
    """Two layers that share a weight, with a buffer; keeps what it saw of its weights."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("offset", torch.tensor([1, 2, 3, 4]))
        self.trained: list[Tensor] = []
        self.validated: list[Tensor] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = (self.second(self.first(batch)) - batch - self.offset).square().mean()
        return loss

    def on_train_batch_end(self, *args: Any) -> None:
        self.trained.append(self.first.weight.detach().clone())

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated.append(self.first.weight.detach().clone())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.05)

    def train_dataloader(self) -> Any:
        per_step = self.trainer.accumulate_grad_batches
        return Batches(self.trainer.global_step * per_step, STEPS * per_step)

    def val_dataloader(self) -> Any:
        return Batches(0, 1)


class SaveAt(pl.Callback):
    """Saves a checkpoint in the given hook of the given step."""

    def __init__(self, path: Path, step: int, hook: str = "on_train_batch_end") -> None:
        self.path, self.step = path, step
        setattr(self, hook, self.save)

    def save(self, trainer: pl.Trainer, *args: Any) -> None:
        if trainer.global_step == self.step and not self.path.exists():
            trainer.save_checkpoint(self.path)


def fit(
    *callbacks: pl.Callback, steps: int = STEPS, ckpt_path: Path | None = None, **settings: Any
) -> Toy:
    module = Toy()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        max_epochs=-1,
        check_val_every_n_epoch=None,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        plugins=[AtomicCheckpointIO()],
        **({"val_check_interval": 2} | settings),
    )
    trainer.fit(module, ckpt_path=ckpt_path)
    return module


def expected_averages(start: Tensor, weights: list[Tensor], decay: float) -> Tensor:
    average = start.clone()
    for n, weight in enumerate(weights):
        d = min(decay, (1 + n) / (10 + n))
        average = d * average + (1 - d) * weight
    return average


@pytest.mark.parametrize("decay", [0.999, 0.2, 0.0])
def test_validation_sees_the_average_and_training_never_does(decay: float) -> None:
    module = fit(EMA(decay))
    plain = fit()
    torch.testing.assert_close(module.trained, plain.trained, rtol=0, atol=0)
    start = Toy().first.weight.detach()
    for seen, step in zip(module.validated, range(2, STEPS + 1, 2), strict=True):
        expected = expected_averages(start, module.trained[:step], decay)
        torch.testing.assert_close(seen, expected)
    torch.testing.assert_close(module.first.weight, plain.first.weight, rtol=0, atol=0)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_end"])
@pytest.mark.parametrize("saver_first", [True, False])
def test_a_resumed_run_has_the_same_weights_and_averages(
    tmp_path: Path, accumulate: int, hook: str, saver_first: bool
) -> None:
    end, middle = tmp_path / "end.ckpt", tmp_path / "middle.ckpt"
    settings = {"accumulate_grad_batches": accumulate, "val_check_interval": 4 * accumulate}
    ema, saver = EMA(0.9), SaveAt(middle, 4, hook)
    order = [saver, ema] if saver_first else [ema, saver]
    fit(*order, SaveAt(end, STEPS), **settings)
    expected = read_checkpoint(end)
    end.unlink()
    fit(EMA(0.9), SaveAt(end, STEPS), ckpt_path=middle, **settings)
    resumed = read_checkpoint(end)
    for key in ("state_dict", "ema_state_dict", "optimizer_states"):
        torch.testing.assert_close(resumed[key], expected[key], rtol=0, atol=0)
    assert not torch.equal(
        expected["state_dict"]["first.weight"], expected["ema_state_dict"]["first.weight"]
    )


def test_a_checkpoint_has_both_with_the_names_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "end.ckpt"
    module = fit(EMA(0.5), SaveAt(path, STEPS))
    checkpoint = read_checkpoint(path)
    assert checkpoint["ema_state_dict"].keys() == module.state_dict().keys()
    torch.testing.assert_close(checkpoint["state_dict"], dict(module.state_dict()))
    other = Toy()
    other.load_state_dict(checkpoint["ema_state_dict"])
    torch.testing.assert_close(other.first.weight, module.validated[-1], rtol=0, atol=0)
    assert other.second.weight is other.first.weight


def test_saving_while_the_model_holds_the_average(tmp_path: Path) -> None:
    path = tmp_path / "validating.ckpt"
    module = fit(EMA(0.5), SaveAt(path, 4, "on_validation_epoch_end"))
    checkpoint = read_checkpoint(path)
    for name in ("first.weight", "second.weight"):
        torch.testing.assert_close(checkpoint["state_dict"][name], module.trained[3])
        torch.testing.assert_close(checkpoint["ema_state_dict"][name], module.validated[1])


class Look(pl.Callback):
    def __init__(self) -> None:
        self.inside: list[Tensor] = []
        self.outside: list[Tensor] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, *args: Any) -> None:
        with averaged_weights(trainer), averaged_weights(trainer):
            self.inside.append(module.first.weight.detach().clone())
        self.outside.append(module.first.weight.detach().clone())


@pytest.mark.parametrize("look_first", [True, False])
def test_averaged_weights_gives_them_for_a_while(look_first: bool) -> None:
    look, ema = Look(), EMA(0.5)
    module = fit(*([look, ema] if look_first else [ema, look]))
    torch.testing.assert_close(look.outside, module.trained, rtol=0, atol=0)
    start = Toy().first.weight.detach()
    for step, seen in enumerate(look.inside, 1):
        torch.testing.assert_close(seen, expected_averages(start, module.trained[:step], 0.5))


def test_without_ema_averaged_weights_are_the_weights() -> None:
    look = Look()
    fit(look)
    torch.testing.assert_close(look.inside, look.outside, rtol=0, atol=0)


def test_ema_begins_with_the_weights_of_a_checkpoint_that_has_none(tmp_path: Path) -> None:
    middle = tmp_path / "middle.ckpt"
    plain = fit(SaveAt(middle, 4))
    module = fit(EMA(0.9), ckpt_path=middle)
    expected = expected_averages(plain.trained[3], module.trained, 0.9)
    torch.testing.assert_close(module.validated[-1], expected)


@pytest.mark.parametrize("decay", [1.0, -0.1])
def test_bad_settings(decay: float) -> None:
    with pytest.raises(ValueError, match="must"):
        EMA(decay)
