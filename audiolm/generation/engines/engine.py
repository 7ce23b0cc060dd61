"""Which engine computes the steps, and making it.

eager      the model as it is: everywhere, at once
native     one C++ function a step, built by the machine's compiler once: CPUs
compiled   torch.compile'd, with CUDA graphs on a GPU: long clips, after a minute of compiling
"""

from __future__ import annotations

from audiolm.generation.decoder import Decoder
from audiolm.generation.engines.build import load_library
from audiolm.generation.engines.compiled import CompiledDecodeStep
from audiolm.generation.engines.decode_step import DecodeStep
from audiolm.generation.engines.eager import EagerDecodeStep
from audiolm.generation.engines.known import check_known, is_known
from audiolm.generation.engines.native import NativeDecodeStep, PackedWeights, check_native
from audiolm.generation.engines.rounding import round_weights
from audiolm.model.conditioning import Conditions
from audiolm.model.language_model import AudioLM

ENGINES = ("auto", "eager", "native", "compiled")

COMPILED_STEPS = 10_000
"""Steps from which compiling pays on a GPU: it takes about a minute and saves about 5 ms a step."""


def choose_engine(engine: str, model: AudioLM, num_steps: int | None) -> str:
    """The engine that "auto" is for the model, or the named one itself.

    Args:
        engine: one of `ENGINES`.
        model: on its device.
        num_steps: to be generated; None for no end.

    Raises:
        ValueError: for an unknown engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; choose one of {', '.join(ENGINES)}")
    if engine != "auto":
        return engine
    if model.heads.weight.device.type == "cuda":
        pays = num_steps is None or num_steps >= COMPILED_STEPS
        return "compiled" if pays and is_known(model) else "eager"
    return "eager" if why_not_native(model) else "native"


def why_not_native(model: AudioLM) -> str | None:
    """What keeps the native engine from reading the model, in a line; None if nothing does."""
    try:
        check_native(model)
        load_library()
    except ValueError as error:
        return str(error)
    return None


class Engine:
    """A model ready to be read step by step, with its weights as they are now.

    Args:
        name: one of `ENGINES`.
        model: in eval mode, on its device, in float32 for rounded weights and the native engine.
        weights: see `rounding.round_weights`.
        num_steps: to be generated; None for no end.

    Attributes:
        name: the engine chosen.
        model: its matrices rounded.

    Raises:
        ValueError: for an engine or weights that are unknown or cannot be had, and for a model in
            training mode.
    """

    def __init__(self, name: str, model: AudioLM, weights: str, num_steps: int | None) -> None:
        if model.training:
            raise ValueError("the model is in training mode, with dropout: call model.eval() first")
        self.name = choose_engine(name, model, num_steps)
        if self.name == "compiled":
            check_known(model, self.name)
        self.model = round_weights(model, weights)
        self._packed = PackedWeights(self.model, weights) if self.name == "native" else None

    def decoder(
        self, batch: int, max_steps: int, ring: bool, conditions: Conditions | None = None
    ) -> Decoder:
        """A decoder of `batch` samples that has read nothing.

        Args:
            max_steps, ring: see `AudioLM.make_caches`.
            conditions: of the samples, from this engine's model; None where it has none.

        Raises:
            ValueError: for more steps than the model was built for.
        """
        model = self.model
        if max_steps > model.max_seq_len:
            raise ValueError(
                f"a sequence of {max_steps} steps exceeds max_seq_len={model.max_seq_len}; shorten "
                f"context_frames, or build the model for longer ones"
            )
        if self._packed is not None:
            caches = model.make_caches(batch, max_steps, ring)
            decode_step: DecodeStep = NativeDecodeStep(model, self._packed, caches, conditions)
        elif self.name == "compiled":
            decode_step = CompiledDecodeStep(model, batch, max_steps, ring, conditions)
        else:
            decode_step = EagerDecodeStep(model, batch, max_steps, ring, conditions)
        return Decoder(model, decode_step, conditions)
