"""Every engine is the model: native and compiled steps, what is chosen, and how it is built."""

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from audiolm.generation import generate
from audiolm.generation.engines import build, compiled
from audiolm.generation.engines.compiled import CompiledDecodeStep, decode_step
from audiolm.generation.engines.engine import choose_engine
from audiolm.generation.engines.native import NativeDecodeStep, PackedWeights
from audiolm.generation.engines.rounding import WEIGHTS, round_weights
from audiolm.generation.stream import prepare
from audiolm.model import AudioLM, make_pattern
from audiolm.training import make_optimizer

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
    step = NativeDecodeStep(
        model, PackedWeights(model, weights), model.make_caches(len(inputs)), None
    )
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


@pytest.mark.parametrize("weights", WEIGHTS)
def test_samples_during_training_are_those_of_the_weights_of_now(engine: str, weights: str) -> None:
    # torch's fused AdamW changes weights without counting it in their version.
    model, pattern = make("even", "rotary"), make_pattern("delay", 1)
    optimizer, _ = make_optimizer(model, 100, lr=0.3, warmup_steps=0)
    samples = []
    for _ in range(3):
        samples_now = generate(model, pattern, 12, 12, [0], engine=engine, weights=weights)
        fresh = generate(deepcopy(model), pattern, 12, 12, [0], engine=engine, weights=weights)
        assert torch.equal(samples_now, fresh)
        samples.append(samples_now)
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()
    assert not torch.equal(samples[0], samples[1]) and not torch.equal(samples[1], samples[2])


def test_a_prepared_engine_generates_the_same(engine: str) -> None:
    model, pattern = make("even", "rotary"), make_pattern("delay", 1)
    ready = prepare(model, pattern, 12, 12, 2, engine=engine, weights="int8")
    samples_now = [
        generate(model, pattern, 12, 12, [0, 1], engine=named, weights="int8")
        for named in (ready, engine, ready)
    ]
    assert torch.equal(samples_now[0], samples_now[1]) and torch.equal(
        samples_now[0], samples_now[2]
    )


def test_a_model_in_training_is_refused(engine: str) -> None:
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        generate(
            make("even", "rotary").train(), make_pattern("delay", 1), 3, 12, [0], engine=engine
        )


def test_more_steps_than_the_model_has_are_refused(engine: str) -> None:
    model = make("even", "learned", steps=12)
    with pytest.raises(ValueError, match="13 steps exceeds max_seq_len=12"):
        generate(model, make_pattern("delay", 1), 13, 13, [0], engine=engine)


@needs_compiler
def test_native_refuses_other_types() -> None:
    model = make("even", "rotary").bfloat16()
    with pytest.raises(ValueError, match=r"engine=native .* in torch.bfloat16; pass engine=eager"):
        PackedWeights(model, "float32")


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
        step = CompiledDecodeStep(model, 2, 12, ring, None)
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


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "true", "no-program"])
def test_without_a_compiler_auto_is_eager_and_native_says_why(
    compiler: str, nothing_built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiler == "no-program":
        (nothing_built / compiler).write_bytes(b"\x7fELF no program")
        (nothing_built / compiler).chmod(0o755)
        compiler = str(nothing_built / compiler)
    monkeypatch.setenv("CXX", compiler)
    model, pattern = make("even", "rotary"), make_pattern("delay", 1)
    assert generate(model, pattern, 3, 12, [0]).shape == (1, 1, 3)
    assert prepare(model, pattern, 3, 12, 1).name == "eager"
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


def test_without_a_home_auto_is_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    build.load_library.cache_clear()
    assert choose_engine("auto", make("even", "rotary"), 1) == "eager"
    build.load_library.cache_clear()


@needs_compiler
@pytest.mark.parametrize("kept", [0, 100, 4096, None])
def test_a_damaged_library_is_built_anew(nothing_built: Path, kept: int | None) -> None:
    build.load_library()
    (path,) = (nothing_built / "audiolm").iterdir()
    whole = path.read_bytes()
    build.load_library.cache_clear()
    # Under another name: it is loaded, and must stay as it is.
    damaged = path.with_suffix(".damaged")
    damaged.write_bytes(whole[:kept] if kept is not None else whole[:64] + bytes(len(whole) - 64))
    damaged.replace(path)
    assert build.load_library().lanes() >= 4
    assert path.read_bytes() == whole


@needs_compiler
def test_the_compiler_may_have_options(
    nothing_built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", f"{build.find_compiler()[0]} -DOPTION")
    assert build.load_library().lanes() >= 4


@needs_compiler
def test_processes_that_build_at_once_all_get_a_whole_library(nothing_built: Path) -> None:
    code = "from audiolm.generation.engines.build import load_library; load_library().decode_step"
    root = Path(build.__file__).parents[3]
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
    assert prepare(model, pattern, None, 12, 2, weights="int8").name == "native"
