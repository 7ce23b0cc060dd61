"""Samples end by themselves, each at its own frame, and what is behind an end is nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from audiolm.generation import Sampling, cut_at_end, generate, stream
from audiolm.generation.stream import takes_ring
from audiolm.model import AudioLM, make_pattern
from audiolm.model.loss import lay_out
from audiolm.model.patterns import PATTERNS

K, V, CONTEXT = 3, 19, 8
MakeModel = Callable[..., AudioLM]
SEEDS = list(range(8))


def lively(make_model: MakeModel, pattern: str) -> AudioLM:
    """A model that ends about every sixth frame."""
    model = make_model(pattern, end_token=True)
    with torch.no_grad():
        model.heads.weight.mul_(0.3)
        model.heads.weight[V] *= 3
    return model


def lengths(codes: Tensor) -> list[int]:
    return [row.shape[1] for row in cut_at_end(codes, V)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_sample_ends_in_its_own_place(
    pattern: str, make_model: MakeModel, engine: str
) -> None:
    model, laid_out = lively(make_model, pattern), make_pattern(pattern, K)
    codes = generate(model, laid_out, 30, CONTEXT, SEEDS, engine=engine)
    found = lengths(codes)
    assert len(set(found)) > 3 and min(found) >= 1 and max(found) == codes.shape[2]
    for b, (row, length) in enumerate(zip(codes, found, strict=True)):
        assert (row[:, :length] < V).all()
        assert (row[:, length:] == V).all()
        alone = generate(model, laid_out, 30, CONTEXT, [SEEDS[b]], engine=engine)
        assert torch.equal(alone[0], row[:, :length])
    assert any(length < 30 for length in found)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_chunks_are_the_whole(pattern: str, make_model: MakeModel) -> None:
    model, laid_out = lively(make_model, pattern), make_pattern(pattern, K)
    chunks = list(stream(model, laid_out, 30, CONTEXT, SEEDS))
    assert torch.equal(torch.cat(chunks, dim=2), generate(model, laid_out, 30, CONTEXT, SEEDS))


def test_endless_generation_ends_with_its_last_sample(make_model: MakeModel) -> None:
    model, laid_out = lively(make_model, "delay"), make_pattern("delay", K)
    assert takes_ring(model, laid_out, None, CONTEXT)
    codes = torch.cat(list(stream(model, laid_out, None, CONTEXT, SEEDS)), dim=2)
    assert max(lengths(codes)) == codes.shape[2]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_duration_is_a_guard(pattern: str, way: str, make_model: MakeModel) -> None:
    model, laid_out = lively(make_model, pattern), make_pattern(pattern, K)
    whole = generate(model, laid_out, 30, CONTEXT, SEEDS)
    short = generate(model, laid_out, 3, CONTEXT, SEEDS)
    assert short.shape[2] == 3
    # The finer codes of the last frames no longer see a coarse one of a frame behind.
    assert torch.equal(short[:, 0], whole[:, 0, :3])
    assert torch.equal(short[:, :, 0], whole[:, :, 0]) or pattern == "coarse_first"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ends_can_be_forbidden(pattern: str, make_model: MakeModel) -> None:
    model, laid_out = lively(make_model, pattern), make_pattern(pattern, K)
    for sampling in (Sampling(end=False), Sampling(end=False, greedy=True, top_k=1)):
        codes = generate(model, laid_out, 30, CONTEXT, SEEDS, sampling=sampling)
        assert codes.shape[2] == 30 and (codes < V).all()


def test_a_sample_is_never_empty_but_a_prompt_may_be_all(make_model: MakeModel) -> None:
    model, laid_out = make_model("delay", end_token=True), make_pattern("delay", K)
    sampling = Sampling(greedy=True)
    extend = model.extend

    def always_end_token(*args: object, **kwargs: object) -> Tensor:
        logits = extend(*args, **kwargs)  # type: ignore[arg-type]
        logits[..., V] += 999
        return logits

    model.extend = always_end_token  # type: ignore[method-assign]
    generated = generate(model, laid_out, 5, CONTEXT, [0], engine="eager", sampling=sampling)
    assert lengths(generated) == [1]
    prompt = torch.zeros(K, 4, dtype=torch.long)
    generated = generate(
        model, laid_out, 9, CONTEXT, [0], prompt, engine="eager", sampling=sampling
    )
    assert torch.equal(generated, prompt[None])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_greedy_samples_end_where_a_full_pass_says(pattern: str, make_model: MakeModel) -> None:
    """Uncached: each id is the most probable one, given those before, of what can stand there."""
    model, laid_out = lively(make_model, pattern), make_pattern(pattern, K)
    checked = 0
    for seed in range(20):
        prompt = torch.randint(V, (K, 2), generator=torch.Generator().manual_seed(seed))
        codes = generate(
            model, laid_out, CONTEXT, CONTEXT, [0], prompt, sampling=Sampling(greedy=True)
        )
        frames = codes.shape[2]
        ended = frames < CONTEXT
        lengths, reaches_end = torch.tensor([frames]), torch.tensor([ended])
        steps, mask = lay_out(codes, lengths, reaches_end, laid_out, CONTEXT, model.special)
        with torch.inference_mode():
            best = model(steps).argmax(dim=-1)
        positions = laid_out.positions((CONTEXT if laid_out.fixed_length else frames) + 1)
        mask.scatter_(2, positions[:, :2].expand(1, -1, -1), False)
        assert torch.equal(best[mask], steps[mask])
        checked += int(ended)
    assert checked


def test_layout_of_ends() -> None:
    codes = torch.arange(12).view(2, 2, 3)
    steps, mask = lay_out(
        codes,
        torch.tensor([2, 3]),
        torch.tensor([True, False]),
        make_pattern("delay", 2),
        context_frames=9,
        special=13,
    )
    assert steps.tolist() == [
        [[0, 1, 12, 13, 13], [13, 3, 4, 13, 13]],
        [[6, 7, 8, 13, 13], [13, 9, 10, 11, 13]],
    ]
    assert torch.equal(mask, steps < 13)
