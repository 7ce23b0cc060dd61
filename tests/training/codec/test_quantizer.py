"""What the package's quantizer gets wrong in training, each by a test that it fails."""

from __future__ import annotations

import pytest
import torch
from encodec.quantization.vq import ResidualVectorQuantizer
from torch import Tensor

from audiolm.training.codec.quantizer import (
    codebook_of,
    initialise_codebooks,
    kmeans,
    nearest,
    perplexity,
    quantize,
    update_codebooks,
)

WIDTH, BINS, LEVELS = 6, 16, 4


def latents(batch: int = 2, frames: int = 200, seed: int = 0) -> Tensor:
    """(B, D, T)."""
    return torch.randn(batch, WIDTH, frames, generator=torch.Generator().manual_seed(seed))


def flat(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(-1, WIDTH)


@pytest.fixture
def quantizer() -> ResidualVectorQuantizer:
    made = ResidualVectorQuantizer(dimension=WIDTH, n_q=LEVELS, bins=BINS)
    initialise_codebooks(made, flat(latents()), seed=0)
    return made


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


# ---- quantize


@pytest.mark.parametrize("n_q", range(1, LEVELS + 1))
def test_codes_and_sums_are_those_of_the_package(
    quantizer: ResidualVectorQuantizer, n_q: int
) -> None:
    x = latents(seed=1)
    found = quantize(quantizer, x, n_q)
    quantizer.eval()
    codes = quantizer.vq.encode(x, n_q=n_q)
    assert torch.equal(found.codes, codes)
    torch.testing.assert_close(found.latents, quantizer.decode(codes), atol=1e-5, rtol=0)
    assert len(found.residuals) == n_q


def test_the_straight_through_gradient_is_passed_on_whole(
    quantizer: ResidualVectorQuantizer,
) -> None:
    x = latents(seed=1).requires_grad_()
    weights = latents(seed=2)
    (quantize(quantizer, x, LEVELS).latents * weights).sum().backward()
    torch.testing.assert_close(x.grad, weights)


def test_commitment_reaches_the_encoder_from_every_level(
    quantizer: ResidualVectorQuantizer,
) -> None:
    """In the package only the first level's does."""
    x = latents(seed=1)
    for n_q in range(1, LEVELS + 1):
        leaf = x.clone().requires_grad_()
        found = quantize(quantizer, leaf, n_q)
        (gradient,) = torch.autograd.grad(found.commitment, leaf)
        rest, wanted = flat(x), torch.zeros_like(flat(x))
        for level in range(n_q):
            error = rest - codebook_of(quantizer, level).embed[found.codes[level].reshape(-1)]
            wanted += 2 * error / (n_q * error.numel())
            rest = error
        torch.testing.assert_close(flat(gradient), wanted, atol=1e-8, rtol=1e-4)
    assert not any(r.requires_grad for r in found.residuals)


def test_a_step_along_the_commitment_gradient_makes_the_last_residual_smaller(
    quantizer: ResidualVectorQuantizer,
) -> None:
    x = latents(seed=1).requires_grad_()
    before = quantize(quantizer, x, LEVELS)
    (gradient,) = torch.autograd.grad(before.commitment, x)
    after = quantize(quantizer, x - 200 * gradient, LEVELS)
    assert float(after.commitment.detach()) < float(before.commitment.detach())


def test_nearest_is_the_nearest() -> None:
    vectors, codebook = flat(latents()), flat(latents(1, BINS, seed=3))
    assert torch.equal(nearest(vectors, codebook), torch.cdist(vectors, codebook).argmin(1))


# ---- k-means


def test_kmeans_finds_clusters_and_does_not_collapse() -> None:
    centres = 10 * flat(latents(1, BINS, seed=4))
    which = torch.arange(1600) % BINS
    vectors = centres[which] + 0.1 * flat(latents(1, 1600, seed=5))
    codebook = kmeans(vectors, BINS, 30, generator())
    used = torch.bincount(nearest(vectors, codebook), minlength=BINS)
    assert float(perplexity(used)) > 0.8 * BINS
    distance = (vectors - codebook[nearest(vectors, codebook)]).square().sum(1).mean()
    assert distance < 0.2 * vectors.var(0).sum()


def test_kmeans_lowers_the_distance_and_follows_its_seed() -> None:
    vectors = flat(latents())

    def distance(codebook: Tensor) -> float:
        return float((vectors - codebook[nearest(vectors, codebook)]).square().sum(1).mean())

    found = [distance(kmeans(vectors, BINS, n, generator())) for n in (0, 1, 20)]
    assert found[0] > found[1] > found[2]
    assert torch.equal(*(kmeans(vectors, BINS, 5, generator()) for _ in range(2)))


def test_kmeans_of_one_point_stays_finite() -> None:
    assert bool(torch.isfinite(kmeans(torch.ones(50, WIDTH), BINS, 5, generator())).all())


def test_every_level_is_fitted_to_what_the_ones_before_leave(
    quantizer: ResidualVectorQuantizer,
) -> None:
    x = latents()
    found = quantize(quantizer, x, LEVELS)
    energies = [float(r.square().mean()) for r in found.residuals]
    left = float((x - found.latents).square().mean())
    assert all(b < 0.8 * a for a, b in zip(energies, [*energies[1:], left], strict=True))
    for level in range(LEVELS):
        book = codebook_of(quantizer, level)
        counts = torch.bincount(found.codes[level].reshape(-1), minlength=BINS)
        assert float(perplexity(counts)) > 0.6 * BINS
        assert bool(book.inited)
        # The averages say the same as the codes, so that the first update does not jump.
        assert torch.equal(book.cluster_size, counts.float())
        torch.testing.assert_close(book.embed_avg, book.embed * book.cluster_size[:, None])


def test_fewer_latents_than_codes_are_refused() -> None:
    made = ResidualVectorQuantizer(dimension=WIDTH, n_q=2, bins=BINS)
    with pytest.raises(ValueError, match=f"15 frames .* {BINS} codes"):
        initialise_codebooks(made, torch.randn(15, WIDTH), seed=0)
    assert not bool(codebook_of(made, 0).inited)


# ---- Updates


def test_codes_are_running_means_of_their_vectors(quantizer: ResidualVectorQuantizer) -> None:
    """By hand: counts and sums decay alike, and the code is sum over count."""
    decay = 0.9
    book = codebook_of(quantizer, 0)
    count, total = book.cluster_size.double(), book.embed_avg.double()
    for step in range(5):
        found = quantize(quantizer, latents(seed=10 + step), 2)
        vectors, chosen = found.residuals[0].double(), found.codes[0].reshape(-1)
        update_codebooks(quantizer, found, decay, 0.0, generator())
        for code in range(BINS):
            mine = vectors[chosen == code]
            count[code] = decay * count[code] + (1 - decay) * len(mine)
            total[code] = decay * total[code] + (1 - decay) * mine.sum(0)
        torch.testing.assert_close(
            book.embed.double(), total / count[:, None], atol=1e-5, rtol=1e-4
        )


def test_only_levels_that_were_used_are_updated(quantizer: ResidualVectorQuantizer) -> None:
    before = [codebook_of(quantizer, k).embed.clone() for k in range(LEVELS)]
    update_codebooks(quantizer, quantize(quantizer, latents(seed=6), 2), 0.9, 0.1, generator())
    same = [torch.equal(codebook_of(quantizer, k).embed, before[k]) for k in range(LEVELS)]
    assert same == [False, False, True, True]


def test_a_dead_code_is_alive_after_the_next_updates_too(
    quantizer: ResidualVectorQuantizer,
) -> None:
    """In the package the next forward pass computes the dead code anew from its old sums."""
    book = codebook_of(quantizer, 0)
    dead = torch.tensor([3, 7])
    book.embed[dead] = 1000.0
    book.embed_avg[dead] = 1e-3 * 1000.0
    book.cluster_size[dead] = 1e-3
    rng = generator()
    x = latents(seed=7)
    found = quantize(quantizer, x, 1)
    assert not torch.isin(found.codes, dead).any()
    assert update_codebooks(quantizer, found, 0.99, 0.15, rng) == 2
    # Each is a vector of the batch now,
    distances = torch.cdist(book.embed[dead], found.residuals[0]).min(dim=1).values
    assert float(distances.max()) < 0.05
    # is used by the same batch, and stays so: no update brings the old place back.
    for step in range(20):
        found = quantize(quantizer, x if step == 0 else latents(seed=20 + step), 1)
        if step == 0:
            assert torch.isin(dead, found.codes).all()
        assert update_codebooks(quantizer, found, 0.99, 0.15, rng) == 0
        assert float(book.embed[dead].abs().max()) < 10
    counts = torch.bincount(quantize(quantizer, latents(), 1).codes.reshape(-1), minlength=BINS)
    assert bool((counts[dead] > 0).all())


def test_small_batches_do_not_make_live_codes_dead(quantizer: ResidualVectorQuantizer) -> None:
    """The package's threshold counts vectors a batch: with few vectors all would be dead."""
    rng = generator()
    revived = 0
    for step in range(50):
        found = quantize(quantizer, latents(1, 8, seed=100 + step), LEVELS)
        revived += update_codebooks(quantizer, found, 0.99, 0.15, rng)
    assert revived <= 3


def test_nothing_is_revived_at_0(quantizer: ResidualVectorQuantizer) -> None:
    codebook_of(quantizer, 0).cluster_size[2] = 1e-6
    found = quantize(quantizer, latents(), LEVELS)
    assert update_codebooks(quantizer, found, 0.99, 0.0, generator()) == 0


def test_training_does_not_collapse() -> None:
    """As an encoder that moves: the codes in use stay many."""
    made = ResidualVectorQuantizer(dimension=WIDTH, n_q=2, bins=BINS)
    initialise_codebooks(made, flat(latents()), seed=0)
    rng = generator()
    for step in range(100):
        x = (1 + step / 50) * latents(seed=step) + step / 20
        update_codebooks(made, quantize(made, x, 2), 0.9, 0.15, rng)
    codes = quantize(made, 3 * latents(seed=200) + 5, 2).codes.flatten(1)
    counts = torch.stack([torch.bincount(c, minlength=BINS) for c in codes])
    assert float(perplexity(counts).min()) > 0.5 * BINS


def test_perplexity() -> None:
    counts = torch.tensor([[5, 5, 5, 5], [9, 0, 0, 0], [3, 3, 0, 0], [0, 0, 0, 0]])
    assert perplexity(counts).tolist() == pytest.approx([4, 1, 2, 1])
