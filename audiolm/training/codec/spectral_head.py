"""A loss on the latents themselves: do they hold the spectrum of their frame?

Trained through the decoder alone, the encoder of a small EnCodec fills its latents with the
waveform below some 700 Hz, and what tells vowels apart above is not in them (a linear probe
explained 5 to 28% of the shape of the spectrum above 1 kHz). So a linear layer, which is not part
of the codec, has to tell the log-mel spectrum of each frame from its latents.

B batch, C audio channels, N audio samples, T codec frames, D width of the latents, M mel bands.
"""

from __future__ import annotations

import torch
import torchaudio
from torch import Tensor, nn

from audiolm.training.codec.balancer import running_norm

NUM_MELS = 40
LEVEL = 0.1  # rms of an item at which FLOOR is meant
QUIETEST = 5e-3  # rms below which an item counts as if it had it
FLOOR = 0.05  # of magnitudes of windows of two frames: what lies below is not asked for
MEAN, SPREAD = -4.0, 3.0  # nats, of log-mel magnitudes of recordings at usual levels
DECAY = 0.99  # of the averages of the gradients' norms


class SpectralHead(nn.Module):
    """A linear layer from latents to log-mel spectra, its loss, and its pull on the latents.

    The idea of a head on the latents that is discarded after training is that of SpeechTokenizer
    (arXiv:2308.16692, section 3.2) and Mimi (arXiv:2410.00037, section 3.3.2), which ask for the
    features of a pretrained speech model instead.

    Args:
        dimension: D.
        sample_rate: Hz.
        hop: samples of a frame.
    """

    def __init__(self, dimension: int, sample_rate: int, hop: int) -> None:
        super().__init__()
        self.hop = hop
        bands = min(NUM_MELS, max(1, hop // 4))  # each has bins then
        self.linear = nn.Conv1d(dimension, bands, 1)
        self.mel = torchaudio.transforms.MelSpectrogram(
            sample_rate, n_fft=2 * hop, hop_length=hop, n_mels=bands, power=1.0
        )
        self.register_buffer("norm_own", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("norm_others", torch.zeros(2, dtype=torch.float64))

    def loss(self, latents: Tensor, waveform: Tensor) -> Tensor:
        """Mean absolute error, in units of `SPREAD` nats.

        Args:
            latents: (B, D, T).
            waveform: (B, C, N) that they are of, N at least T - 1 frames.
        """
        target = self._spectra(waveform, latents.shape[-1])
        predicted: Tensor = self.linear(latents)
        return (predicted - target).abs().mean()

    @torch.no_grad()
    def _spectra(self, waveform: Tensor, frames: int) -> Tensor:
        """Log-mel spectra (B, M, T) at the middle of each frame, about 0 and 1 wide."""
        gain = LEVEL / waveform.square().mean(dim=(1, 2)).sqrt().clamp(min=QUIETEST)
        mono = waveform.mean(dim=1) * gain[:, None]
        short = frames * self.hop - mono.shape[-1]
        half = self.hop // 2  # torch's frames are centred on their beginning
        mono = nn.functional.pad(mono, (0, max(0, short) + half))[:, half:]
        mel: Tensor = self.mel(mono)[..., :frames]
        # At the item's own level again, which the latents know.
        logarithm = (mel + FLOOR).log() - gain.log()[:, None, None]
        return (logarithm - MEAN) / SPREAD

    @torch.no_grad()
    def balanced(self, own: Tensor, others: Tensor) -> Tensor:
        """The gradient `own` at the latents, brought to the average norm of the gradient `others`.

        As the loss balancer of the paper does at the waveform.
        """
        norm_own = running_norm(self.get_buffer("norm_own"), own, DECAY)
        norm_others = running_norm(self.get_buffer("norm_others"), others, DECAY)
        return own * (norm_others / norm_own).to(own)
