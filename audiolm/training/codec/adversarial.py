"""The adversarial part of an EnCodec's training: a discriminator of spectra, and its losses.

B batch, C audio channels, N audio samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from encodec.msstftd import MultiScaleSTFTDiscriminator
from torch import Tensor, nn
from torch.nn import functional as F


class GeneratorLosses(NamedTuple):
    """What the codec is trained on."""

    adversarial: Tensor
    features: Tensor


class Adversary(nn.Module):
    """`encodec`'s multi-scale STFT discriminator with the losses of EnCodec, section 3.4.

    Args:
        channels: C.
        filters: of its convolutions, 32 in the paper.
        n_ffts: samples of the windows, one discriminator each; the hop is a quarter.

    Raises:
        ValueError: numbers below 1, or no window.
    """

    def __init__(
        self, channels: int, filters: int = 32, n_ffts: Sequence[int] = (1024, 2048, 512)
    ) -> None:
        super().__init__()
        if filters < 1 or not n_ffts or min(n_ffts) < 16:
            raise ValueError(
                f"adversarial.filters={filters}, n_ffts={list(n_ffts)}: give at least 1 filter and "
                "one window of at least 16 samples"
            )
        self.longest_window = max(n_ffts)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)
            self.discriminator = MultiScaleSTFTDiscriminator(
                filters,
                in_channels=channels,
                n_ffts=list(n_ffts),
                hop_lengths=[n // 4 for n in n_ffts],
                win_lengths=list(n_ffts),
            )

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """Hinge loss of telling (B, C, N) apart; no gradient goes to `fake`."""
        real_logits, _ = self.discriminator(real)
        fake_logits, _ = self.discriminator(fake.detach())
        terms = [
            F.relu(1 - r).mean() + F.relu(1 + f).mean()
            for r, f in zip(real_logits, fake_logits, strict=True)
        ]
        return torch.stack(terms).mean()

    def generator_losses(self, real: Tensor, fake: Tensor) -> GeneratorLosses:
        """Hinge loss of passing for real, and the distance of the discriminator's features.

        The latter is relative to the features' mean magnitude, equation 2 of the paper. No
        gradient stays in the discriminator.
        """
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        try:
            with torch.no_grad():
                _, real_features = self.discriminator(real)
            logits, features = self.discriminator(fake)
        finally:
            for parameter in self.parameters():
                parameter.requires_grad_(True)
        adversarial = torch.stack([F.relu(1 - logit).mean() for logit in logits]).mean()
        distances = [
            F.l1_loss(f, r) / r.abs().mean().clamp(min=1e-8)
            for fs, rs in zip(features, real_features, strict=True)
            for f, r in zip(fs, rs, strict=True)
        ]
        return GeneratorLosses(adversarial, torch.stack(distances).mean())
