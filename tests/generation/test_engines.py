"""Every engine is the model: native and compiled steps, what is chosen, and how it is built."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from audiolm.generation import build, compiled, generate
from audiolm.generation.compiled import CompiledStep, decode_step
from audiolm.generation.engines import choose_engine
from audiolm.generation.native import NativeStep
from audiolm.generation.streaming import prepare
from audiolm.generation.weights import WEIGHTS, round_weights
from audiolm.model import AudioLM, make_pattern

MakeModel = Callable[..., AudioLM]

try:
    build.find_compiler()
    no_compiler = ""
except ValueError as error:
    no_compiler = str(error)

needs_compiler = pytest.mark.skipif(bool(no_compiler), reason=no_compiler)

# Codebooks, codes, width, heads, feed-forward: odd ones leave every vector and group unfilled.
SIZES = {
    "odd": (3, 7, 15, 3, 11),
    "wide heads": (2, 33, 160, 2, 96),
    "even": (1, 64, 64, 4, None),
    "tiny": (4, 5, 4, 2, 1),
}


def make(size: str, positions: str, steps: int = 12) -> AudioLM:
    torch.manual_seed(0)
    codebooks, codes, width, heads, feedforward = SIZES[size]
    model = AudioLM(
        codebooks, codes, steps, width, 2, heads, feedforward_dim=feedforward, positions=positions
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4) if weight.ndim >= 2 else weight.add_(torch.randn_like(weight) / 4)
    return model


def inputs_for(model: AudioLM, batch: int, steps: int = 12) -> torch.Tensor:
    shape = (batch, model.num_codebooks, steps)
    inputs = torch.randint(
        0, model.codebook_size, shape, generator=torch.Generator().manual_seed(1)
    )
    inputs[:, :, 0] = model.special
    return inputs


@torch.inference_mode()
def native_logits(model: AudioLM, weights: str, inputs: torch.Tensor) -> torch.Tensor:
    """(B, K, S, V), step by step."""
    step = NativeStep(model, weights, model.make_caches(len(inputs)))
    return torch.stack([step(codes) for codes in inputs.unbind(dim=2)], dim=2)


@needs_compiler
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "learned"])
@pytest.mark.parametrize("size", SIZES)
def test_native_logits_are_the_models(size: str, positions: str, weights: str) -> None:
    if size == "odd" and positions == "rotary":
        pytest.skip("rotary positions take an even head width")
    model = round_weights(make(size, positions), weights)
    for batch in (1, 2, 3, 8, 9):
        inputs = inputs_for(model, batch)
        expected = model.extend(inputs)
        found = native_logits(model, weights, inputs)
        largest = expected.abs().max().item()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * largest)


@needs_compiler
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("size", ["wide heads", "tiny"])
def test_native_logits_are_the_same_bits_in_every_batch(size: str, weights: str) -> None:
    model = round_weights(make(size, "rotary"), weights)
    inputs = inputs_for(model, 19)
    whole = native_logits(model, weights, inputs)
    for rows in ([5], [0, 1], [18, 3, 7], [9, 1, 4, 2], list(range(8)), list(range(18, 1, -1))):
        assert torch.equal(native_logits(model, weights, inputs[rows]), whole[rows])


@needs_compiler
def test_native_logits_are_the_same_bits_with_any_number_of_threads() -> None:
    model = make("wide heads", "rotary")
    inputs, before = inputs_for(model, 3), torch.get_num_threads()
    alone = native_logits(model, "float32", inputs)
    try:
        torch.set_num_threads(3)
        assert torch.equal(native_logits(model, "float32", inputs), alone)
    finally:
        torch.set_num_threads(before)


@needs_compiler
def test_native_reads_the_weights_of_now() -> None:
    model = make("even", "rotary")
    inputs = inputs_for(model, 1)
    native_logits(model, "float32", inputs)
    with torch.no_grad():
        model.heads.weight.mul_(3)
    torch.testing.assert_close(native_logits(model, "float32", inputs), model.extend(inputs))


@needs_compiler
def test_native_refuses_other_types() -> None:
    model = make("even", "rotary").bfloat16()
    with pytest.raises(ValueError, match=r"engine=native .* in torch.bfloat16; pass engine=eager"):
        NativeStep(model, "float32", model.make_caches(1))


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_compiled_logits_are_the_models(
    positions: str, ring: bool, real: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function as it is written, and, slow, as it is compiled."""
    if not real:
        monkeypatch.setattr(compiled, "_compiled", lambda: decode_step)
    model = make("even", positions)
    inputs = inputs_for(model, 2)
    with torch.inference_mode():
        step = CompiledStep(model, 2, 12, ring)
        found = torch.stack([step(codes) for codes in inputs.unbind(dim=2)], dim=2)
        torch.testing.assert_close(found, model.extend(inputs), rtol=1e-4, atol=1e-4)


@needs_compiler
def test_auto_is_native_on_a_cpu_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("even", "rotary")
    assert choose_engine("auto", model, 1) == "native"
    assert choose_engine("auto", make("even", "rotary").bfloat16(), 1) == "eager"
    assert choose_engine("eager", model, None) == "eager"


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As on a machine that has built nothing yet; its cache is the folder returned."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.load_library.cache_clear()
    yield tmp_path
    build.load_library.cache_clear()


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_auto_is_eager_and_native_says_why(
    compiler: str, nothing_built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler)
    model, pattern = make("even", "rotary"), make_pattern("delay", 1)
    assert generate(model, pattern, 3, 12, [0]).shape == (1, 1, 3)
    assert prepare(model, pattern, 3, 12, 1) == "eager"
    with pytest.raises(ValueError) as caught:
        generate(model, pattern, 3, 12, [0], engine="native")
    message = str(caught.value)
    assert "engine=native" in message and "pass engine=eager" in message and "\n" not in message


@needs_compiler
def test_a_folder_that_cannot_be_written_is_said(
    nothing_built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nothing_built / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(nothing_built / "file"))
    with pytest.raises(ValueError, match="XDG_CACHE_HOME=DIR"):
        build.load_library()
    assert choose_engine("auto", make("even", "rotary"), 1) == "eager"


@needs_compiler
def test_processes_that_build_at_once_all_get_a_whole_library(nothing_built: Path) -> None:
    code = "from audiolm.generation.build import load_library; load_library().decode_step"
    root = Path(build.__file__).parents[2]
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert len(list((nothing_built / "audiolm").iterdir())) == 1  # and nothing half-built is left


def test_unknown_engine() -> None:
    model = make("even", "rotary")
    with pytest.raises(ValueError, match="engine='fast' is unknown; choose one of auto, eager"):
        generate(model, make_pattern("delay", 1), 3, 12, [0], engine="fast")


@needs_compiler
def test_prepare_builds_and_says_the_engine() -> None:
    model, pattern = make("even", "rotary"), make_pattern("delay", 1)
    assert prepare(model, pattern, None, 12, 2, weights="int8") == "native"
