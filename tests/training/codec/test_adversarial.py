from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from audiolm.training.codec.adversarial import Adversary


def noise(channels: int = 1, seed: int = 0, samples: int = 256) -> Tensor:
    return torch.randn(2, channels, samples, generator=torch.Generator().manual_seed(seed))


def make(channels: int = 1) -> Adversary:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Adversary(channels, filters=2, n_ffts=[64, 32])


@pytest.mark.parametrize("channels", [1, 2])
def test_gradients_go_where_they_belong(channels: int) -> None:
    adversary = make(channels)
    real, fake = noise(channels), noise(channels, seed=1).requires_grad_()
    adversary.discriminator_loss(real, fake).backward()
    assert fake.grad is None
    assert all(p.grad is not None for p in adversary.parameters())
    for parameter in adversary.parameters():
        parameter.grad = None
    sum(adversary.generator_losses(real, fake)).backward()
    assert fake.grad is not None and bool(fake.grad.any())
    assert all(p.grad is None and p.requires_grad for p in adversary.parameters())


def test_features_of_the_same_sound_are_at_no_distance() -> None:
    adversary = make()
    real = noise()
    same, other = (adversary.generator_losses(real, f) for f in (real, noise(seed=1)))
    assert float(same.features) == 0 < float(other.features)


def test_it_learns_to_tell_and_the_generator_pays_for_it() -> None:
    adversary = make()
    real, fake = noise(), 0.1 * noise(seed=1)
    optimizer = torch.optim.AdamW(adversary.parameters(), lr=1e-2)
    losses, passing = [], []
    for _ in range(25):
        passing.append(float(adversary.generator_losses(real, fake).adversarial.detach()))
        loss = adversary.discriminator_loss(real, fake)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(2, abs=0.5)  # of hinges on logits around 0
    assert losses[-1] < 0.5 * losses[0]
    assert passing[-1] > passing[0]


@pytest.mark.parametrize("filters, n_ffts", [(0, [64]), (2, []), (2, [64, 8])])
def test_bad_settings(filters: int, n_ffts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"adversarial\.filters"):
        Adversary(1, filters, n_ffts)
