"""Past the end of a window: the ring is a band of attention, and streams have no end."""

from collections.abc import Callable
from itertools import islice

import pytest
import torch
from torch import Tensor

from audiolm.generation import Sampling, generate, stream
from audiolm.generation.engines.engine import Engine
from audiolm.generation.stream import takes_ring
from audiolm.model import AudioLM, make_pattern, scaled_dot_product_attention

K, V, CONTEXT = 3, 19, 8

MakeModel = Callable[..., AudioLM]

STRIDED = ("parallel", "delay", "flatten")


def prompt_of(frames: int) -> torch.Tensor | None:
    if frames == 0:
        return None
    return torch.randint(0, V, (K, frames), generator=torch.Generator().manual_seed(7))


def banded(model: AudioLM, inputs: torch.Tensor, window: int) -> torch.Tensor:
    """Logits (B, K, S, V) when every layer lets a step see the last `window` steps."""
    steps = inputs.shape[2]
    longer = AudioLM(K, V, steps, embed_dim=24, num_layers=2, num_heads=4).eval()
    longer.load_state_dict(model.state_dict())
    outside = torch.ones(steps, steps, dtype=torch.bool)
    outside = outside.triu(1) | outside.tril(-window)

    def kernel(q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> Tensor:
        return scaled_dot_product_attention(q, k, v, outside)

    for block in longer.transformer.blocks:
        block.attention.kernel = kernel
    return longer.extend(inputs)


@pytest.mark.parametrize("at_once", [1, 5, 8])
def test_a_ring_is_a_band_of_attention(engine: str, at_once: int, make_model: MakeModel) -> None:
    model, window, steps = make_model("parallel"), 8, 45
    inputs = torch.randint(0, V, (2, K, steps), generator=torch.Generator().manual_seed(3))
    decoder = Engine(engine, model, "float32", None).decoder(2, window, True)
    with torch.inference_mode():
        found = [decoder.extend(inputs[:, :, :at_once])]
        found += [decoder.extend(inputs[:, :, s : s + 1]) for s in range(at_once, steps)]
        expected = banded(model, inputs, window)[:, :, at_once - 1 :]
    torch.testing.assert_close(torch.stack(found, dim=2), expected, rtol=1e-4, atol=1e-4)


def test_a_ring_that_is_not_full_is_a_plain_cache(engine: str, make_model: MakeModel) -> None:
    model = make_model("parallel")
    inputs = torch.randint(0, V, (1, K, 8))
    with torch.inference_mode():
        plain, ring = (
            Engine(engine, model, "float32", None).decoder(1, 8, kind) for kind in (False, True)
        )
        for s in range(8):
            one = inputs[:, :, s : s + 1]
            assert torch.equal(plain.extend(one), ring.extend(one))


@pytest.mark.parametrize("pattern", STRIDED)
@pytest.mark.parametrize("prompt", [0, 3, CONTEXT])
@pytest.mark.parametrize("way", ["auto", "reread"], indirect=True)
def test_a_stream_without_end_begins_like_one_with(
    pattern: str, prompt: int, way: str, make_model: MakeModel
) -> None:
    model, laid_out = make_model(pattern), make_pattern(pattern, K)
    settings = (CONTEXT, [1, 2], prompt_of(prompt))
    endless = stream(model, laid_out, None, *settings)
    generated = torch.cat(list(islice(endless, 40)), dim=2)
    # Re-read, the last frames of a window stand beside its end, so whole windows are compared.
    frames = 2 * CONTEXT if way == "reread" else 2 * CONTEXT + 3
    finite = generate(model, laid_out, frames, *settings)
    assert torch.equal(finite, generated[:, :, :frames])
    if prompt:
        assert torch.equal(generated[0, :, :prompt], prompt_of(prompt))


def test_a_pattern_of_fixed_length_streams_without_end_too(make_model: MakeModel) -> None:
    endless = stream(
        make_model("coarse_first"), make_pattern("coarse_first", K), None, CONTEXT, [1]
    )
    assert torch.cat(list(islice(endless, 30)), dim=2).shape == (1, K, 30)


def test_a_stream_without_end_keeps_its_memory(engine: str, make_model: MakeModel) -> None:
    """No tensor grows: what the generator's frame and its decoder hold is the same size later."""
    model = make_model("delay")
    endless = stream(model, make_pattern("delay", K), None, CONTEXT, [1], engine=engine)

    def held() -> int:
        frame = endless.gi_frame  # type: ignore[attr-defined]
        inner = frame.f_locals
        tensors = [value for value in inner.values() if isinstance(value, torch.Tensor)]
        return sum(tensor.numel() for tensor in tensors)

    for _ in islice(endless, 3 * CONTEXT):
        pass
    before = held()
    for _ in islice(endless, 200):
        pass
    assert held() == before


@pytest.mark.parametrize(
    "pattern, positions, ring",
    [
        ("delay", "rotary", True),
        ("delay", "learned", False),
        ("flatten", "sinusoidal", False),
        ("coarse_first", "rotary", False),
    ],
)
def test_a_ring_is_taken_where_it_can_be_and_one_window_where_that_does(
    pattern: str, positions: str, ring: bool, make_model: MakeModel
) -> None:
    model, laid_out = make_model(pattern, positions), make_pattern(pattern, K)
    for frames, expected in ((None, ring), (CONTEXT + 1, ring), (CONTEXT, False)):
        assert takes_ring(model, laid_out, frames, CONTEXT) == expected


def test_a_prompt_longer_than_the_ring(make_model: MakeModel) -> None:
    """Read at once as far as the ring holds, then step by step: the band of attention again."""
    model, laid_out = make_model("parallel"), make_pattern("parallel", K)
    found = generate(
        model, laid_out, 20, CONTEXT, [1], prompt_of(CONTEXT), sampling=Sampling(greedy=True)
    )
    steps = torch.cat([torch.full((1, K, 1), V), found], dim=2)
    best = banded(model, steps[:, :, :-1], CONTEXT * 3 // 4).argmax(dim=-1)
    assert torch.equal(best[:, :, CONTEXT:], found[:, :, CONTEXT:])
