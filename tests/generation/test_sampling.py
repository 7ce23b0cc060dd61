"""Sampling: what is kept, how often it is drawn, and from which seed."""

import pytest
import torch

from audiolm.generation.sampling import (
    check_sampling,
    draw_noise,
    keep_top_k,
    keep_top_p,
    sample_codes,
)


def kept(logits: torch.Tensor) -> list[int]:
    return [int(n) for n in torch.isfinite(logits).sum(dim=-1).flatten()]


@pytest.mark.parametrize("top_k", [1, 3, 10, 50])
def test_top_k_keeps_exactly_k_also_among_equals(top_k: int) -> None:
    logits = torch.stack([torch.zeros(10), torch.arange(10.0)])
    assert kept(keep_top_k(logits, top_k)) == [min(top_k, 10)] * 2
    largest = keep_top_k(torch.arange(10.0), top_k)
    assert torch.isfinite(largest[10 - min(top_k, 10) :]).all()


def test_top_p_keeps_the_fewest_that_hold_p() -> None:
    logits = torch.tensor([0.1, 0.5, 0.4]).log()
    assert kept(keep_top_p(logits, 0.45)) == [1]
    assert kept(keep_top_p(logits, 0.6)) == [2]
    assert kept(keep_top_p(logits, 0.95)) == [3]
    assert torch.isfinite(keep_top_p(logits, 1e-9)).tolist() == [False, True, False]


def test_frequencies_are_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = probabilities.log().expand(20_000, 1, 4)
    noise = torch.empty(20_000, 1, 4).exponential_(generator=torch.Generator().manual_seed(0))
    drawn = sample_codes(logits, noise)
    shares = torch.bincount(drawn.flatten(), minlength=4) / 20_000
    torch.testing.assert_close(shares, probabilities, rtol=0, atol=0.015)
    cold = sample_codes(logits, noise, temperature=0.5)
    shares = torch.bincount(cold.flatten(), minlength=4) / 20_000
    expected = probabilities.square() / probabilities.square().sum()
    torch.testing.assert_close(shares, expected, rtol=0, atol=0.015)
    assert set(sample_codes(logits, noise, top_k=2).unique().tolist()) == {0, 1}
    assert set(sample_codes(logits, noise, top_p=0.7).unique().tolist()) == {0, 1}
    assert sample_codes(logits, noise, top_k=1).unique().tolist() == [0]
    assert sample_codes(logits, noise, greedy=True).unique().tolist() == [0]


def test_noise_of_a_sample_depends_on_its_seed_alone() -> None:
    def generators(*seeds: int) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed) for seed in seeds]

    many = draw_noise(generators(3, 4, 5), 2, 7)
    alone = draw_noise(generators(4), 2, 7)
    assert many.shape == (3, 2, 7)
    assert torch.equal(many[1], alone[0])
    assert not torch.equal(many[0], many[1])


@pytest.mark.parametrize(
    "settings, message",
    [
        ((0.0, None, None), "temperature=0.0 must be above 0"),
        ((-1.0, None, None), "temperature=-1.0"),
        ((1.0, 0, None), "top_k=0 must be at least 1"),
        ((1.0, None, 0.0), "top_p=0.0"),
        ((1.0, None, 1.5), "top_p=1.5"),
    ],
)
def test_bad_settings(settings: tuple[float, int | None, float | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_sampling(*settings)
