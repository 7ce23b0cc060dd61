"""The head on the latents: it learns what is in them, and knows what is not."""

import pytest
import torch

from audiolm.training.codec.spectral_head import NUM_MELS, SpectralHead

RATE, HOP, FRAMES = 8000, 160, 40


def waves(count: int) -> torch.Tensor:
    """Noises (count, 1, N), low-passed or not, each at a level of its own."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(count, 1, FRAMES * HOP + 1, generator=generator)
    dull = noise[..., 1:] + noise[..., :-1]
    bright = noise[..., 1:] - noise[..., :-1]
    levels = torch.logspace(-2, -0.5, count)[:, None, None]
    return torch.where(torch.arange(count)[:, None, None] % 2 == 0, dull, bright) * levels


def fit(head: SpectralHead, latents: torch.Tensor, waveform: torch.Tensor) -> float:
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    for _ in range(500):
        optimizer.zero_grad()
        loss = head.loss(latents, waveform)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(loss.detach())


def test_latents_that_hold_the_spectrum_have_a_lower_loss() -> None:
    waveform = waves(16)
    head = SpectralHead(NUM_MELS, RATE, HOP)
    spectra = head._spectra(waveform, FRAMES)
    assert spectra.shape == (16, NUM_MELS, FRAMES)
    informed = fit(head, spectra, waveform)
    blind = fit(SpectralHead(NUM_MELS, RATE, HOP), torch.zeros_like(spectra), waveform)
    assert informed < 0.2 * blind


def test_a_frame_is_that_of_its_own_samples() -> None:
    head = SpectralHead(8, RATE, HOP)
    waveform = torch.full((1, 1, FRAMES * HOP), 1e-6)
    waveform[..., 10 * HOP : 11 * HOP] = 0.3 * torch.randn(HOP)
    loudest = head._spectra(waveform, FRAMES)[0].mean(dim=0)
    assert loudest.argmax() == 10
    assert torch.allclose(loudest[9], loudest[11], atol=0.5)  # windows reach into both neighbours


def test_louder_audio_has_a_spectrum_as_much_higher() -> None:
    head = SpectralHead(8, RATE, HOP)
    waveform = waves(2)
    quiet, loud = head._spectra(waveform, FRAMES), head._spectra(waveform * 4, FRAMES)
    expected = torch.full_like(quiet, float(torch.tensor(4.0).log()) / 3)
    torch.testing.assert_close(loud - quiet, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("samples", [FRAMES * HOP, FRAMES * HOP - HOP + 1])
def test_the_last_frame_may_be_cut(samples: int) -> None:
    loss = SpectralHead(8, RATE, HOP).loss(torch.zeros(2, 8, FRAMES), waves(2)[..., :samples])
    assert torch.isfinite(loss)


def test_balanced_gradients_have_the_norm_of_the_others_on_average() -> None:
    head = SpectralHead(8, RATE, HOP)
    own = torch.full((2, 8, 4), 1e-3)
    for scale in (5.0, 5.0, 5.0):
        balanced = head.balanced(own, torch.full((2, 8, 4), scale))
    assert balanced.norm() == pytest.approx(float(torch.full((2, 8, 4), 5.0).norm()), rel=1e-5)
    # One outlier moves the average, not the balance of its own step alone.
    jumped = head.balanced(own * 100, torch.full((2, 8, 4), 5.0))
    assert jumped.norm() > 3 * balanced.norm()


def test_silence_is_finite() -> None:
    head = SpectralHead(8, RATE, HOP)
    latents = torch.zeros(2, 8, FRAMES, requires_grad=True)
    head.loss(latents, torch.zeros(2, 1, FRAMES * HOP)).backward()  # type: ignore[no-untyped-call]
    assert latents.grad is not None and torch.isfinite(latents.grad).all()
