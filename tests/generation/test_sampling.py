"""Sampling: what is kept, how often it is sampled, and from which seed."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from audiolm.generation.sampling import (
    Sampling,
    guide,
    keep_min_p,
    keep_top_p,
    sample_codes,
    sample_noise,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def many_samples(
    probabilities: list[float], sampling: Sampling, recent: list[int] | None = None
) -> Tensor:
    """20,000 codes sampled from one row."""
    count = 20_000
    logits = torch.tensor(probabilities).log().expand(count, 1, -1)
    rows = None if recent is None else torch.tensor(recent).expand(count, -1)
    # One long row, cut: a generator for each sample would take longer than the samples.
    width = len(probabilities)
    noise = sample_noise([generator()], count * 2, width).view(2, count, 1, width)
    pair = noise[0] if rows is None else torch.cat([noise[0], noise[1]], dim=1)
    return sample_codes(logits, pair, sampling, rows).flatten()


def assert_sampled_from(sampled: Tensor, probabilities: list[float]) -> None:
    """Pearson's chi-square test at a level of 1 in 10,000 (Wilson and Hilferty's approximation)."""
    expected = torch.tensor(probabilities, dtype=torch.double)
    expected = expected / expected.sum() * len(sampled)
    counts = torch.bincount(sampled, minlength=len(expected)).double()
    assert (counts[expected == 0] == 0).all()
    counts, expected = counts[expected > 0], expected[expected > 0]
    freedom = max(1, len(expected) - 1)
    limit = freedom * (1 - 2 / (9 * freedom) + 3.719 * math.sqrt(2 / (9 * freedom))) ** 3
    assert float(((counts - expected).square() / expected).sum()) < limit


def plain_keep(
    row: list[float], top_k: int | None, top_p: float | None, min_p: float | None
) -> Any:
    """By definition, in double precision: the codes that stay."""
    order = sorted((i for i, x in enumerate(row) if x > -math.inf), key=lambda i: -row[i])
    order = order[:top_k]
    weights = {i: math.exp(row[i] - row[order[0]]) for i in order}
    total, before, kept = sum(weights.values()), 0.0, []
    for i in order:
        if top_p is None or before < top_p:
            kept.append(i)
        before += weights[i] / total
    return {i for i in kept if min_p is None or weights[i] >= min_p}


def kept(logits: Tensor) -> list[set[int]]:
    return [set(row.isfinite().nonzero().flatten().tolist()) for row in logits.reshape(-1, 9)]


@pytest.mark.parametrize("excluded", [0, 3, 8])
def test_filters_keep_what_their_definitions_say(excluded: int) -> None:
    logits = 2 * torch.randn(4, 5, 9, generator=generator())
    logits[..., :excluded] = -math.inf
    rows = logits.view(-1, 9).tolist()
    for share in (1e-9, 0.05, 0.3, 0.7, 0.95):
        assert kept(keep_top_p(logits, share)) == [plain_keep(r, None, share, None) for r in rows]
        assert kept(keep_min_p(logits, share)) == [plain_keep(r, None, None, share) for r in rows]
    for found in (keep_top_p(logits, 0.7), keep_min_p(logits, 0.1)):
        assert torch.equal(found.where(found.isfinite(), logits), logits)  # the rest is untouched


def test_filters_at_their_limits() -> None:
    logits = torch.tensor([0.1, 0.5, 0.4]).log()
    assert [int(keep_top_p(logits, p).isfinite().sum()) for p in (0.45, 0.6, 0.95)] == [1, 2, 3]
    assert keep_top_p(logits, 1e-9).isfinite().tolist() == [False, True, False]
    assert [int(keep_min_p(logits, p).isfinite().sum()) for p in (0.1, 0.7, 0.9)] == [3, 2, 1]
    assert keep_min_p(logits, 1.0).isfinite().tolist() == [False, True, False]
    assert keep_min_p(torch.zeros(3), 1.0).isfinite().all()  # equals are no less probable


@pytest.mark.parametrize("top_k", [1, 3, 10, 50])
def test_top_k_keeps_exactly_k_also_among_equals(top_k: int) -> None:
    rows = torch.stack([torch.zeros(10), torch.arange(10.0)])
    logits = rows.expand(2000, 2, 10)
    noise = sample_noise([generator()], 4000, 10).view(2000, 2, 10)
    sampled = sample_codes(logits, noise, Sampling(temperature=50.0, top_k=top_k))
    largest = min(top_k, 10)
    assert len(sampled[:, 0].unique()) == largest
    assert sampled[:, 1].unique().tolist() == list(range(10 - largest, 10))


@pytest.mark.parametrize("top_k", [None, 1, 3, 6, 9])
@pytest.mark.parametrize("top_p", [None, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("min_p", [None, 0.01, 0.3])
def test_codes_sampled_are_those_kept_and_all_of_them(
    top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    row = torch.randn(9, generator=generator(3))
    row[4] = -math.inf
    noise = sample_noise([generator()], 5000, 9).view(5000, 1, 9)
    # Sharp enough that the filters differ, flat enough that 5000 samples find all that is left.
    sampling = Sampling(temperature=0.8, top_k=top_k, top_p=top_p, min_p=min_p)
    sampled = sample_codes(row.expand(5000, 1, 9), noise, sampling)
    wanted = plain_keep((row / 0.8).tolist(), top_k, None if top_p == 1 else top_p, min_p)
    assert set(sampled.flatten().tolist()) == wanted


PROBABILITIES = [0.4, 0.0, 0.3, 0.15, 0.1, 0.05]


@pytest.mark.parametrize(
    "settings, wanted",
    [
        ({}, PROBABILITIES),
        ({"temperature": 0.5}, [p**2 for p in PROBABILITIES]),
        ({"temperature": 2}, [p**0.5 for p in PROBABILITIES]),
        ({"top_k": 3}, [0.4, 0, 0.3, 0.15, 0, 0]),
        ({"top_k": 6}, PROBABILITIES),
        ({"top_p": 0.8}, [0.4, 0, 0.3, 0.15, 0, 0]),
        ({"min_p": 0.3}, [0.4, 0, 0.3, 0.15, 0, 0]),
        ({"top_k": 4, "top_p": 0.74, "temperature": 0.5}, [0.4**2, 0, 0.3**2, 0, 0, 0]),
        ({"top_k": 2, "min_p": 0.1}, [0.4, 0, 0.3, 0, 0, 0]),
        ({"greedy": True, "temperature": 100.0}, [1, 0, 0, 0, 0, 0]),
    ],
)
def test_frequencies_are_the_probabilities(settings: dict[str, Any], wanted: list[float]) -> None:
    assert_sampled_from(many_samples(PROBABILITIES, Sampling(**settings)), wanted)


@pytest.mark.parametrize("temperature", [1, 0.8])
@pytest.mark.parametrize("top_k", [None, 5])
def test_what_is_off_changes_no_bit(temperature: float, top_k: int | None) -> None:
    """Codes of a seed, written out; they stay the same from version to version."""
    logits = 3 * torch.randn(200, 3, 40, generator=generator())
    noise = sample_noise([generator(seed) for seed in range(200)], 3, 40)
    assert torch.equal(noise[7], -torch.rand(3, 40, generator=generator(7)).log())
    scores = logits / temperature - noise.log()
    if top_k is not None:
        worst = logits.topk(top_k).values.amin(dim=-1, keepdim=True)
        scores = scores.masked_fill(logits < worst, -math.inf)
    for off in (Sampling(), Sampling(top_p=1.0, guidance=3.0, end=False, repetition_share=0.9)):
        sampling = replace(off, temperature=temperature, top_k=top_k)
        assert torch.equal(sample_codes(logits, noise, sampling), scores.argmax(dim=-1))


def test_temperatures_of_the_codebooks_are_as_sampled_one_by_one() -> None:
    logits = 3 * torch.randn(4, 3, 50, generator=generator())
    noise = sample_noise([generator(seed) for seed in range(4)], 3, 50)
    temperatures = [0.3, 1.0, 1.7]
    for rest in ({}, {"top_k": 10}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 20, "top_p": 0.5}):
        together = sample_codes(logits, noise, Sampling(temperature=temperatures, **rest))
        for k, temperature in enumerate(temperatures):
            alone = Sampling(temperature=temperature, **rest)
            codes = sample_codes(logits[:, k : k + 1], noise[:, k : k + 1], alone)
            assert torch.equal(together[:, k], codes[:, 0])


def test_half_precision_is_sampled_from_as_if_whole() -> None:
    logits = torch.randn(500, 2, 50, generator=generator()).bfloat16()
    noise = sample_noise([generator()], 1000, 50).view(500, 2, 50)
    sampling = Sampling(temperature=[0.7, 1.3], top_p=0.9)
    assert torch.equal(
        sample_codes(logits, noise, sampling), sample_codes(logits.float(), noise, sampling)
    )


def test_excluded_codes_are_never_sampled() -> None:
    """Whatever the settings, and however few codes are left."""
    choose = random.Random(0)
    for trial in range(600):
        batch, codebooks, outputs = (
            choose.randint(1, 3),
            choose.randint(1, 4),
            choose.randint(1, 12),
        )
        scale = choose.choice([0.0, 1.0, 30.0, 1e4])
        logits = scale * torch.randn(batch, codebooks, outputs, generator=generator(trial))
        # Often all are small numbers, below the 0 that an overflow or a fill might leave.
        logits -= choose.choice([0.0, 1e3])
        excluded = torch.rand(logits.shape, generator=generator(trial)) < choose.random()
        excluded[..., choose.randrange(outputs)] = False
        logits[excluded] = -math.inf
        if choose.random() < 0.2:
            logits = logits.bfloat16()
        window = choose.choice([None, 1, 5])
        several = choose.random() < 0.5
        sampling = Sampling(
            temperature=[10 ** choose.uniform(-3, 3) for _ in range(codebooks)]
            if several
            else choose.choice([0.001, 1, 1000]),
            top_k=choose.choice([None, 1, 2, outputs, 100]),
            top_p=choose.choice([None, 1e-9, 0.5, 0.9999999, 1.0]),
            min_p=choose.choice([None, 1e-300, 0.5, 1.0]),
            greedy=choose.random() < 0.2,
            repetition_window=window,
        )
        generators = [generator(seed) for seed in range(batch)]
        noise = sample_noise(generators, codebooks, outputs, window is not None)
        recent = None if window is None else torch.randint(-1, outputs, (batch, window))
        codes = sample_codes(logits, noise, sampling, recent)
        assert codes.shape == (batch, codebooks) and codes.dtype == torch.int64
        assert not excluded.gather(-1, codes[..., None]).any(), (trial, sampling)


def test_a_uniform_number_of_0_excludes_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def lowest(row: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Tensor:
        return row.fill_(low)

    monkeypatch.setattr(Tensor, "uniform_", lowest)
    noise = sample_noise([generator()], 1, 3)
    logits = torch.tensor([[[-math.inf, 0.0, -math.inf]]])
    assert sample_codes(logits, noise).tolist() == [[1]]


def test_noise_of_a_sample_depends_on_its_seed_alone() -> None:
    def generators(*seeds: int) -> list[torch.Generator]:
        return [generator(seed) for seed in seeds]

    for again in (False, True):
        many = sample_noise(generators(3, 4, 5), 2, 7, again)
        alone = sample_noise(generators(4), 2, 7, again)
        assert many.shape == (3, 2 + again, 7)
        assert torch.equal(many[1], alone[0])
        assert not torch.equal(many[0], many[1])


def test_codes_of_a_sample_do_not_depend_on_its_batch() -> None:
    """Nor on whether another sample of it repeats."""
    sampling = Sampling(temperature=0.7, top_k=5, repetition_window=3)
    logits = torch.randn(6, 2, 9, generator=generator())
    recent = torch.randint(0, 9, (6, 3), generator=generator(1))
    recent[0], recent[1] = -1, int(logits[1, 0].argmax())

    def sample(*rows: int) -> Tensor:
        generators = [generator(seed) for seed in rows]
        sampled = []
        for _ in range(20):
            noise = sample_noise(generators, 2, 9, again=True)
            sampled.append(sample_codes(logits[list(rows)], noise, sampling, recent[list(rows)]))
        return torch.stack(sampled, dim=1)

    many = sample(*range(6))
    for rows in itertools.permutations(range(6), 2):
        assert torch.equal(sample(*rows), many[list(rows)])


@pytest.mark.parametrize("greedy", [False, True])
def test_repeating_codes_are_sampled_again_from_the_plain_distribution(greedy: bool) -> None:
    narrow = Sampling(temperature=0.5, top_k=1, greedy=greedy, repetition_window=4)
    assert_sampled_from(many_samples(PROBABILITIES, narrow, [0, 2, 2, -1]), PROBABILITIES)
    assert set(many_samples(PROBABILITIES, narrow, [-1, 5, 2, 2]).tolist()) == {0}
    assert set(many_samples(PROBABILITIES, narrow, [-1] * 4).tolist()) == {0}


def test_the_second_sample_has_noise_of_its_own() -> None:
    """With that of the first, it would be the same code."""
    again_at_0 = Sampling(repetition_window=1)
    assert_sampled_from(many_samples([0.5, 0.5], again_at_0, [0]), [0.25, 0.75])


@pytest.mark.parametrize(
    "share, window, times",
    [(0.1, 10, 1), (0.11, 10, 2), (0.3, 10, 3), (0.07, 100, 7), (0.01, 5, 1), (1.0, 6, 6)],
)
def test_share_from_which_on_a_code_repeats(share: float, window: int, times: int) -> None:
    sampling = Sampling(greedy=True, repetition_window=window, repetition_share=share)
    below, from_on = ([0] * n + [-1] * (window - n) for n in (times - 1, times))
    assert set(many_samples([0.6, 0.4], sampling, below).tolist()) == {0}
    assert set(many_samples([0.6, 0.4], sampling, from_on).tolist()) == {0, 1}


def test_the_rule_touches_codebook_0_alone() -> None:
    logits = torch.randn(50, 3, 9, generator=generator())
    noise = sample_noise([generator(seed) for seed in range(50)], 3, 9, again=True)
    plain = sample_codes(logits, noise[:, :-1], Sampling(top_k=3))
    recent = torch.arange(9).expand(50, 9)  # every code repeats
    found = sample_codes(logits, noise, Sampling(top_k=3, repetition_window=9), recent)
    assert torch.equal(found[:, 1:], plain[:, 1:])
    assert not torch.equal(found[:, 0], plain[:, 0])
    none = torch.full_like(recent, -1)
    assert torch.equal(
        sample_codes(logits, noise, Sampling(top_k=3, repetition_window=9), none), plain
    )


def test_the_rule_leads_out_of_a_loop() -> None:
    """A made-up model that is nearly sure of the code before, and moves on to the next if not."""

    def longest_run(window: int | None) -> int:
        sampling = Sampling(temperature=0.3, repetition_window=window, repetition_share=0.5)
        source = [generator()]
        codes = [0]
        for _ in range(300):
            logits = torch.full((1, 1, 8), -math.inf)
            logits[0, 0, codes[-1]], logits[0, 0, (codes[-1] + 1) % 8] = 3.0, 0.0
            recent = None
            if window is not None:
                recent = torch.tensor([([-1] * window + codes)[-window:]])
            noise = sample_noise(source, 1, 8, window is not None)
            codes.append(int(sample_codes(logits, noise, sampling, recent)))
        return max(len(list(run)) for _, run in itertools.groupby(codes))

    assert longest_run(None) == 301
    assert longest_run(10) < 100


def test_guidance_is_its_formula_in_probabilities() -> None:
    conditional, unconditional = torch.randn(2, 3, 4, 9, generator=generator(), dtype=torch.double)
    assert torch.equal(guide(conditional, unconditional, 0.0), unconditional)
    torch.testing.assert_close(guide(conditional, unconditional, 1.0), conditional)
    found = guide(conditional, unconditional, 3.0).softmax(dim=-1)
    with_, without = conditional.softmax(dim=-1), unconditional.softmax(dim=-1)
    wanted = with_**3 / without**2
    torch.testing.assert_close(found, wanted / wanted.sum(dim=-1, keepdim=True))


@pytest.mark.parametrize("guidance", [0.0, 0.5, 1.0, 3.0, 100.0])
def test_guidance_leaves_excluded_codes_out(guidance: float) -> None:
    conditional, unconditional = torch.randn(2, 3, 4, 9, generator=generator())
    conditional[..., 8] = unconditional[..., 8] = -math.inf
    found = guide(conditional, unconditional, guidance)
    assert (found[..., 8] == -math.inf).all() and found[..., :8].isfinite().all()
    assert conditional[..., :8].isfinite().all() and (conditional[..., 8] == -math.inf).all()
    # Masking after guidance comes to the same.
    torch.testing.assert_close(
        found[..., :8], guide(conditional[..., :8], unconditional[..., :8], guidance)
    )


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"temperature": 0.0}, r"temperature=0.0 must .* 0.001 to 1000; .* greedy=true"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": math.nan}, "temperature=nan"),
        ({"temperature": math.inf}, "temperature=inf"),
        ({"temperature": "warm"}, "temperature=warm must be a number"),
        ({"temperature": [1.0, 0.0]}, "temperature=0.0"),
        ({"temperature": None}, "temperature=None"),
        ({"top_k": 0}, "top_k=0 must be a whole number from 1 .* or null"),
        ({"top_k": 2.5}, "top_k=2.5"),
        ({"top_p": 0.0}, "top_p=0.0 must be a number above 0, at most 1; or null"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"min_p": 0}, "min_p=0 must be a number above 0"),
        ({"min_p": math.nan}, "min_p=nan"),
        ({"repetition_window": 0}, "repetition_window=0"),
        ({"repetition_window": True}, "repetition_window=True"),
        ({"repetition_share": 0.0}, "repetition_share=0.0 .* repetition_window=null"),
        ({"repetition_share": None}, "repetition_share=None .* repetition_window=null"),
        ({"guidance": -1.0}, "guidance=-1.0 must be a number from 0 to 100; 1 is off"),
        ({"guidance": 1e9}, "guidance=1000000000.0"),
        ({"guidance": None}, "guidance=None"),
        ({"greedy": "yes"}, "greedy=yes must be true or false"),
        ({"end": 1}, "end=1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        Sampling(**settings)
    assert "\n" not in str(raised.value)


def test_temperatures_are_as_many_as_codebooks() -> None:
    several = Sampling(temperature=[0.7, 0.8, 1])
    assert several.temperature == (0.7, 0.8, 1) and hash(several) == hash(several)
    several.check(3)
    Sampling(temperature=0.7).check(3)
    with pytest.raises(ValueError, match=r"\[0.7, 0.8, 1\] holds 3 numbers, the model has 4"):
        several.check(4)
    with pytest.raises(ValueError, match="holds 0 numbers"):
        Sampling(temperature=[]).check(4)
