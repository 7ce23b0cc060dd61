"""The generation loop: cached = uncached, batch = alone, stream = one-shot, prompts survive."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from audiolm.generation import Sampling, generate, loop, stream
from audiolm.generation.decoder import Decoder
from audiolm.generation.engines.eager import ROWS, EagerDecodeStep
from audiolm.generation.engines.engine import Engine
from audiolm.model import PATTERNS, AudioLM, make_pattern

K, V, CONTEXT = 3, 19, 8

MakeModel = Callable[..., AudioLM]


def prompt_of(frames: int) -> torch.Tensor | None:
    if frames == 0:
        return None
    return torch.randint(0, V, (K, frames), generator=torch.Generator().manual_seed(7))


class Uncached:
    """Reads every step from the whole window anew."""

    def __init__(self, model: AudioLM) -> None:
        self.model = model
        self.inputs = torch.empty(0)

    def extend(self, new: torch.Tensor) -> torch.Tensor:
        self.inputs = torch.cat([self.inputs, new], dim=2) if self.inputs.numel() else new
        return self.model.extend(self.inputs)[:, :, -1]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("prompt", [0, 1, 5, CONTEXT])
@pytest.mark.parametrize("frames", [CONTEXT, 3 * CONTEXT + 1])
@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal"])
def test_every_engine_gives_the_logits_of_no_cache(
    pattern: str,
    prompt: int,
    frames: int,
    positions: str,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    way: str,
    make_model: MakeModel,
) -> None:
    model = make_model(pattern, positions)
    seen: list[torch.Tensor] = []
    sample_codes = loop.sample_codes

    def recording(logits: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        seen.append(logits)
        return sample_codes(logits, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "sample_codes", recording)
    sample = partial(
        generate,
        model,
        make_pattern(pattern, K),
        frames,
        CONTEXT,
        [5, 6],
        prompt_of(prompt),
    )
    found = sample(engine=engine)
    cached = list(seen)
    seen.clear()
    monkeypatch.setattr(Engine, "decoder", lambda *_, **__: Uncached(model))
    assert torch.equal(sample(engine="eager"), found)
    assert found.shape == (2, K, frames) and len(cached) == len(seen)
    for one, other in zip(cached, seen, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("prompt", [0, 3])
def test_a_sample_depends_on_its_own_seed_only(
    pattern: str, prompt: int, engine: str, make_model: MakeModel
) -> None:
    model = make_model(pattern)
    seeds = list(range(2 * ROWS + 1))

    def sample(chosen: list[int]) -> torch.Tensor:
        laid_out = make_pattern(pattern, K)
        prompt_codes = prompt_of(prompt)
        return generate(model, laid_out, 2 * CONTEXT, CONTEXT, chosen, prompt_codes, engine=engine)

    many = sample(seeds)
    for chosen in ([4], [4, 3], seeds[:ROWS], seeds[::-1], [4] * 3):
        assert torch.equal(sample(chosen), many[chosen])
    assert len({tuple(row.flatten().tolist()) for row in many}) == len(seeds)


@pytest.mark.parametrize("width", [24, 192])
def test_logits_of_a_sample_are_the_same_bits_in_every_batch(width: int) -> None:
    """The codes could agree by luck; this is why they cannot differ."""
    torch.manual_seed(0)
    model = AudioLM(K, V, CONTEXT, embed_dim=width, num_layers=2, num_heads=4).eval()
    steps = torch.randint(0, V, (2 * ROWS + 3, K, CONTEXT))

    def last_logits(rows: torch.Tensor) -> torch.Tensor:
        decoder = Decoder(model, EagerDecodeStep(model, len(rows), CONTEXT, False, None), None)
        inputs = torch.cat([torch.full_like(rows[:, :, :1], V), rows], dim=2)
        with torch.inference_mode():
            decoder.extend(inputs[:, :, :3])  # several steps at once, then one by one
            return torch.cat(
                [decoder.extend(inputs[:, :, s : s + 1]) for s in range(3, CONTEXT)], dim=-1
            )

    whole = last_logits(steps)
    for rows in ([5], [0, 1], [18, 3, 7, 9, 1], list(range(ROWS)), list(range(18, 0, -1))):
        assert torch.equal(last_logits(steps[rows]), whole[rows])


def test_a_pattern_of_fixed_length_is_always_laid_out_for_the_context(
    make_model: MakeModel,
) -> None:
    model, laid_out = make_model("coarse_first"), make_pattern("coarse_first", K)
    whole = generate(model, laid_out, CONTEXT, CONTEXT, [0, 1])
    for frames in (1, 3, CONTEXT - 1):
        short = generate(model, laid_out, frames, CONTEXT, [0, 1])
        assert torch.equal(short, whole[:, :, :frames])


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("frames", [1, 5, CONTEXT, CONTEXT + 1, 4 * CONTEXT])
@pytest.mark.parametrize("way", ["auto", "reread"], indirect=True)
def test_stream_equals_generate_and_wastes_nothing(
    pattern: str, frames: int, way: str, make_model: MakeModel
) -> None:
    model, laid_out = make_model(pattern), make_pattern(pattern, K)
    chunks = list(stream(model, laid_out, frames, CONTEXT, [1, 2]))
    assert all(chunk.shape[2] > 0 for chunk in chunks)
    whole = generate(model, laid_out, frames, CONTEXT, [1, 2])
    assert torch.equal(torch.cat(chunks, dim=2), whole)
    assert whole.shape == (2, K, frames)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("prompt", [1, 4, CONTEXT])
@pytest.mark.parametrize("way", ["auto", "reread"], indirect=True)
def test_the_prompt_survives_verbatim(
    pattern: str, prompt: int, way: str, engine: str, make_model: MakeModel
) -> None:
    model, laid_out = make_model(pattern), make_pattern(pattern, K)
    codes = generate(
        model,
        laid_out,
        2 * CONTEXT,
        CONTEXT,
        [1, 2],
        prompt_of(prompt),
        engine=engine,
    )
    assert torch.equal(codes[0, :, :prompt], prompt_of(prompt))
    assert torch.equal(codes[1, :, :prompt], prompt_of(prompt))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_prompt_a_sample(pattern: str, make_model: MakeModel) -> None:
    model, laid_out = make_model(pattern), make_pattern(pattern, K)
    prompts = torch.randint(0, V, (3, K, 4))
    together = generate(model, laid_out, 14, CONTEXT, [1, 2, 3], prompts)
    for i in range(3):
        alone = generate(model, laid_out, 14, CONTEXT, [i + 1], prompts[i])
        assert torch.equal(alone[0], together[i])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_only_codes_come_out(pattern: str, make_model: MakeModel) -> None:
    model = make_model(pattern)
    wild = Sampling(temperature=5.0)
    codes = generate(model, make_pattern(pattern, K), 40, CONTEXT, list(range(4)), sampling=wild)
    assert int(codes.min()) >= 0 and int(codes.max()) < V


@pytest.mark.parametrize("pattern", PATTERNS)
def test_greedy_codes_are_the_most_probable_of_a_full_pass(
    pattern: str, make_model: MakeModel
) -> None:
    from audiolm.model import deinterleave, interleave

    model, laid_out = make_model(pattern), make_pattern(pattern, K)
    codes = generate(model, laid_out, CONTEXT, CONTEXT, [0], sampling=Sampling(greedy=True))
    positions = laid_out.positions(CONTEXT)
    best = model(interleave(codes, positions, V)).argmax(dim=-1)
    assert torch.equal(deinterleave(best, positions), codes)


def test_a_context_of_one_frame() -> None:
    laid_out = make_pattern("delay", K)
    model = AudioLM(K, V, K, embed_dim=24, num_layers=1, num_heads=4).eval()
    assert generate(model, laid_out, 5, 1, [0]).shape == (1, K, 5)


def test_bad_prompts_are_refused(make_model: MakeModel) -> None:
    model, laid_out = make_model("delay"), make_pattern("delay", K)
    with pytest.raises(ValueError, match="9 frames is longer than the model's context of 8"):
        generate(model, laid_out, 20, CONTEXT, [0], prompt_of(9))
    with pytest.raises(ValueError, match="5 frames is longer than the 3 asked for"):
        generate(model, laid_out, 3, CONTEXT, [0], prompt_of(5))
    with pytest.raises(ValueError, match="ids from 19 to 19"):
        generate(model, laid_out, 9, CONTEXT, [0], torch.full((K, 2), V))
    with pytest.raises(ValueError, match="shape"):
        generate(model, laid_out, 9, CONTEXT, [0], torch.zeros(K + 1, 2, dtype=torch.long))


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
def test_damaged_weights_are_named_and_not_sampled(
    engine: str, damage: float, make_model: MakeModel
) -> None:
    model = make_model("delay")
    with torch.no_grad():
        model.transformer.blocks[0].feedforward.out_proj.weight[3, 5] = damage
    with pytest.raises(FloatingPointError, match="not finite at frame 0"):
        generate(model, make_pattern("delay", K), 5, CONTEXT, [0], engine=engine)


@pytest.mark.parametrize("way", ["auto", "reread"], indirect=True)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_a_prompt_may_be_of_any_whole_numbers(
    make_model: MakeModel, engine: str, dtype: torch.dtype, way: str
) -> None:
    prompt = prompt_of(CONTEXT)
    assert prompt is not None
    sample = partial(
        generate, make_model("delay"), make_pattern("delay", K), 3 * CONTEXT, CONTEXT, [0, 1]
    )
    expected = sample(prompt, engine=engine)
    found = sample(prompt.to(dtype), engine=engine)
    assert found.dtype == torch.int64 and torch.equal(found, expected)


@pytest.mark.parametrize(
    "frames, context, codebooks, message",
    [
        (0, CONTEXT, K, "num_frames=0 must be at least 1"),
        (-5, CONTEXT, K, "num_frames=-5"),
        (3, 0, K, "context_frames=0"),
        (3, CONTEXT, K + 1, "lays out 4 codebooks, the model has 3"),
    ],
)
def test_nothing_to_generate_and_patterns_that_do_not_fit(
    make_model: MakeModel, frames: int, context: int, codebooks: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        stream(make_model("delay"), make_pattern("delay", codebooks), frames, context, [0])


def test_a_prompt_of_fractions_is_refused(make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match="codes are whole"):
        stream(make_model("delay"), make_pattern("delay", K), 5, CONTEXT, [0], torch.rand(K, 3))
