"""Which engine computes the steps, and making it.

eager      the model as it is: everywhere, at once
native     one C++ function a step, built by the machine's compiler once: CPUs
compiled   torch.compile'd, with CUDA graphs on a GPU: long clips, after a minute of compiling
"""

from __future__ import annotations

from audiolm.generation.build import load_library
from audiolm.generation.compiled import CompiledStep
from audiolm.generation.native import NativeStep, check_native
from audiolm.generation.readers import EagerStep, Reader
from audiolm.model.language_model import AudioLM

ENGINES = ("auto", "eager", "native", "compiled")

COMPILED_STEPS = 10_000
"""Steps from which compiling pays on a GPU: it takes about a minute and saves about 5 ms a step."""


def choose_engine(engine: str, model: AudioLM, num_steps: int | None) -> str:
    """The engine that "auto" is for the model, or the named one itself.

    Args:
        engine: one of `ENGINES`.
        model: on its device.
        num_steps: to be drawn; None for no end.

    Raises:
        ValueError: for an unknown engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; choose one of {', '.join(ENGINES)}")
    if engine != "auto":
        return engine
    if model.heads.weight.device.type == "cuda":
        return "compiled" if num_steps is None or num_steps >= COMPILED_STEPS else "eager"
    try:
        check_native(model)
        load_library()
    except ValueError:
        return "eager"
    return "native"


def make_reader(
    engine: str, model: AudioLM, weights: str, batch: int, max_steps: int, ring: bool
) -> Reader:
    """A reader of `batch` samples by an engine that `choose_engine` returned.

    Args:
        model: its matrices rounded to `weights`.
        max_steps, ring: see `AudioLM.make_caches`.

    Raises:
        ValueError: where that engine cannot be had; it says why.
    """
    if engine == "native":
        step = NativeStep(model, weights, model.make_caches(batch, max_steps, ring))
        return Reader(model, step)
    if engine == "compiled":
        return Reader(model, CompiledStep(model, batch, max_steps, ring))
    return Reader(model, EagerStep(model, batch, max_steps, ring))
