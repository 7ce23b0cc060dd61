"""How far a decoded waveform is from the original: in time, in mel spectra, and as a ratio in dB.

B batch, C audio channels, N audio samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torchaudio
from torch import Tensor, nn

WINDOWS = (64, 128, 256, 512, 1024, 2048)  # samples
NUM_MELS = 64
# Of a normalised spectrum, where white noise of standard deviation s is about s: what lies below
# -60 dBFS takes bits, and its logarithm would outweigh what is audible.
FLOOR = 1e-3
QUIET = 1e-2


class MultiScaleMel(nn.Module):
    """Log-mel spectra at several resolutions, and the distance of two waveforms in them.

    Windows of several lengths with a hop of a quarter, 64 mel bands (fewer where a window has too
    few bins for them). Source: EnCodec (arXiv:2210.13438), section 3.4, equation 1, with the
    logarithm that the mel losses of later codecs take.

    Args:
        sample_rate: Hz.
        windows: samples of each window.
        floor: added to the mel spectra before the logarithm.
    """

    def __init__(
        self, sample_rate: int, windows: Sequence[int] = WINDOWS, floor: float = FLOOR
    ) -> None:
        super().__init__()
        self.floor = floor
        self.windows = tuple(windows)
        for window in self.windows:
            mels = torchaudio.functional.melscale_fbanks(
                n_freqs=window // 2 + 1,
                f_min=0.0,
                f_max=sample_rate / 2,
                n_mels=min(NUM_MELS, window // 8),
                sample_rate=sample_rate,
            )
            hann = torch.hann_window(window)
            centres = (mels * torch.arange(len(mels))[:, None]).sum(0) / mels.sum(0).clamp(min=1e-9)
            self.register_buffer(
                f"centres_{window}", centres * sample_rate / window, persistent=False
            )
            self.register_buffer(f"mels_{window}", mels, persistent=False)
            # Normalised here: the window's energy is then 1 and spectra of all windows compare.
            self.register_buffer(f"hann_{window}", hann / hann.norm(), persistent=False)

    def spectra(self, waveform: Tensor) -> list[Tensor]:
        """(B, C, N) as one (B * C, mels, frames) of natural logarithms a window."""
        flat = waveform.reshape(-1, waveform.shape[-1])
        return [self._log_mel(flat, window) for window in self.windows]

    def _log_mel(self, waveform: Tensor, window: int) -> Tensor:
        if waveform.shape[-1] <= window // 2:  # reflection needs more than it pads
            waveform = nn.functional.pad(waveform, (0, window // 2 + 1 - waveform.shape[-1]))
        spectrum = torch.stft(
            waveform,
            window,
            hop_length=window // 4,
            window=self.get_buffer(f"hann_{window}"),
            return_complex=True,
        )
        # The root of the power, kept off 0 where it has no gradient.
        magnitude = (spectrum.real.square() + spectrum.imag.square() + self.floor**2 / 100).sqrt()
        mel: Tensor = self.get_buffer(f"mels_{window}").T @ magnitude
        return (mel + self.floor).log()

    def forward(
        self, estimate: Tensor, target: Tensor, bandwidth: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """L1 and L2 (root mean square) distances of (B, C, N), as means over windows.

        bandwidth: (B,), Hz above which an item's bands do not count; None for none.
        """
        pairs = zip(self.spectra(estimate), self.spectra(target), strict=True)
        l1, l2 = [], []
        for window, (a, b) in zip(self.windows, pairs, strict=True):
            difference, share = a - b, 1.0
            if bandwidth is not None:
                inside = self.get_buffer(f"centres_{window}") <= bandwidth[:, None]
                inside = inside.repeat_interleave(len(a) // len(inside), dim=0)[..., None]
                difference, share = difference * inside, float(inside.float().mean())
            l1.append(difference.abs().mean() / max(share, 1e-6))
            l2.append((difference.square().mean() / max(share, 1e-6)).sqrt())
        return torch.stack(l1).mean(), torch.stack(l2).mean()


@torch.no_grad()
def mel_distance(estimate: Tensor, target: Tensor, sample_rate: int) -> Tensor:
    """Mean distance (B,) in dB of the log-mel spectra of (B, C, N), over all `WINDOWS`."""
    mel = MultiScaleMel(sample_rate).to(target.device)
    pairs = zip(mel.spectra(estimate), mel.spectra(target), strict=True)
    batch = target.shape[0]
    nats = torch.stack([(a - b).abs().reshape(batch, -1).mean(dim=1) for a, b in pairs])
    return nats.mean(dim=0) * (20 / math.log(10))


def time_loss(estimate: Tensor, target: Tensor) -> Tensor:
    """L1 of (B, C, N) as a share of the target's mean magnitude, so that loudness does not matter.

    Of each item; the error of those below -40 dBFS counts as if they were at it.
    """
    error = (estimate - target).abs().mean(dim=(1, 2))
    return (error / target.abs().mean(dim=(1, 2)).clamp(min=QUIET)).mean()


def si_snr(estimate: Tensor, target: Tensor) -> Tensor:
    """Scale-invariant signal-to-noise ratio in dB over the last dimension: (..., N) to (...).

    Source: Le Roux et al. 2019, "SDR - half-baked or well done?", section 2.
    """
    estimate = estimate.double() - estimate.double().mean(dim=-1, keepdim=True)
    target = target.double() - target.double().mean(dim=-1, keepdim=True)
    tiny = torch.finfo(torch.float32).tiny
    scale = (estimate * target).sum(-1, keepdim=True) / target.square().sum(-1, keepdim=True).clamp(
        min=tiny
    )
    projected = scale * target
    noise = (estimate - projected).square().sum(-1)
    ratio = projected.square().sum(-1).clamp(min=tiny) / noise.clamp(min=tiny)
    return 10 * ratio.log10()
