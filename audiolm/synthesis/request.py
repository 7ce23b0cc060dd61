"""What a user asks of a model: the settings of generation, of `Synthesizer` and generate.py alike.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch import Tensor

from audiolm.files import nearest
from audiolm.generation import Sampling
from audiolm.limits import COUNT, DURATION, POSITIVE, SEED

if TYPE_CHECKING:
    from audiolm.synthesis.sample import Sample

Waveform: TypeAlias = Tensor | np.ndarray[Any, Any]
"""(C, N), or (N,) of one channel, at the codec's sample rate."""

Conditions: TypeAlias = Mapping[str, Any]
"""What a model is conditioned on, by column: {"label": "7", "speaker": "theo"}."""

SAMPLING = Sampling(temperature=0.8, top_k=250)
"""As in configs/sampling/default.yaml: a little safer than the model's own distribution."""

_SAMPLING_FIELDS = tuple(each.name for each in dataclasses.fields(Sampling))


@dataclass(frozen=True)
class Request:
    """The settings of generation, of `Synthesizer.generate` and scripts/generate.py.

    Args:
        num_samples: how many.
        duration: seconds of each, prompt included; with an end token it may end sooner. math.inf,
            if streamed, goes on until the end.
        seed: of the first sample; the i-th has `seed` + i. The same one gives the same sample,
            whatever is generated beside it.
        conditions: what to say, by column, such as {"label": "7"}; or a list, with those of each
            sample. A vector is a list of numbers, or the path of a .npy file.
        prompt: what to continue: an audio file, a waveform (C, N) at the codec's sample rate, or a
            sample, whose codes are kept as they are.
        prompt_duration: seconds of it, from its start; None takes all.
        best_of: generate so many, of as many seeds, and keep the one that the model finds the most
            probable.
        sampling: how codes are chosen.
        engine: "auto", "eager", "native" or "compiled": what computes the steps.
        weights: "float32", "bfloat16" or "int8": what the model's matrices are rounded to.
        streamed: whether samples are played while they are generated.
        progress: whether a bar shows the frames that are done.

    Raises:
        ValueError: for settings out of range, or that do not go together.
    """

    num_samples: int = 1
    duration: float = 5.0
    seed: int = 0
    conditions: Conditions | Sequence[Conditions] = field(default_factory=dict)
    prompt: str | Path | Waveform | Sample | None = None
    prompt_duration: float | None = None
    best_of: int = 1
    sampling: Sampling = SAMPLING
    engine: str = "auto"
    weights: str = "float32"
    streamed: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        for name, limits in (
            ("num_samples", COUNT),
            ("best_of", COUNT),
            ("seed", SEED),
            ("duration", DURATION),
        ):
            self._set(name, limits.check(name, getattr(self, name)))
        last = self.seed + self.num_samples * self.best_of - 1
        SEED.check("the last sample's seed", last, f"lower seed={self.seed}, the first one's")
        if self.best_of > 1 and self.streamed:
            raise ValueError(
                f"best_of={self.best_of} chooses among whole samples, which cannot be played while "
                f"they are generated; take best_of=1, or do not stream"
            )
        if self.duration == math.inf and not self.streamed:
            raise ValueError(
                "duration=inf is for what is played as it is made; pass stream=true too, or from "
                "Python use stream()"
            )
        if self.prompt_duration is not None:
            duration = POSITIVE.check("prompt_duration", self.prompt_duration, "omit it for all")
            self._set("prompt_duration", duration)
            if self.prompt is None:
                raise ValueError(
                    f"prompt_duration={duration:g} is of a prompt, and there is none; give one, "
                    f"or omit it"
                )
        if not isinstance(self.sampling, Sampling):
            raise ValueError(
                f"sampling={self.sampling} must be a Sampling; give its settings by name, such as "
                f"temperature=0.6"
            )
        given = self.conditions
        rows = [given] if isinstance(given, Mapping) else given
        if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
            raise ValueError(
                f"conditions={given} must be a mapping, such as {{'label': '7'}}, or a list of one "
                f"for each sample"
            )
        if not isinstance(self.conditions, Mapping) and len(self.conditions) != self.num_samples:
            raise ValueError(
                f"conditions of {len(self.conditions)} samples for num_samples={self.num_samples}; "
                f"give one mapping for all, or one for each"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # it is frozen from here on

    def conditions_of_each(self) -> list[dict[str, Any]]:
        """Of each sample, without those that are None."""
        given = self.conditions
        rows = [given] * self.num_samples if isinstance(given, Mapping) else given
        return [{c: value for c, value in row.items() if value is not None} for row in rows]


def refuse_settings(named: Iterable[str]) -> None:
    """Refuse keywords that are settings of generation, where nothing is generated.

    Raises:
        ValueError: naming one.
    """
    fields = [each.name for each in dataclasses.fields(Request)]
    for name in named:
        if name in (*fields, *_SAMPLING_FIELDS):
            raise ValueError(
                f"{name} is a setting of generation, and changes nothing of a recording; omit it, "
                f"or give a condition of that name in conditions={{{name!r}: ...}}"
            )


def make_request(columns: Iterable[str], settings: Mapping[str, Any]) -> Request:
    """A request from keywords: fields of `Request` and `Sampling`, and columns of the model.

    A column with the name of a setting can be given in `conditions` only.

    Raises:
        ValueError: for a keyword that is none of these, and as `Request` and `Sampling`.
    """
    columns = list(columns)
    known = [each.name for each in dataclasses.fields(Request)]
    direct: dict[str, Any] = {}
    sampling: dict[str, Any] = {}
    conditions: dict[str, Any] = {}
    for name, value in settings.items():
        if name in known:
            direct[name] = value
        elif name in _SAMPLING_FIELDS:
            sampling[name] = value
        elif name in columns:
            conditions[name] = value
        else:
            choices = [*known, *_SAMPLING_FIELDS, *columns]
            has = f"its conditions are {', '.join(columns)}" if columns else "it has no conditions"
            raise ValueError(
                f"{name} is neither a setting of generation nor a condition of this model"
                f"{nearest(name, choices)}; {has}"
            )
    if sampling:
        whole = direct.get("sampling", SAMPLING)
        # What is none is for the request to refuse.
        is_one = isinstance(whole, Sampling)
        direct["sampling"] = dataclasses.replace(whole, **sampling) if is_one else whole
    if conditions:
        direct["conditions"] = _merged(direct.get("conditions") or {}, conditions)
    return Request(**{name: value for name, value in direct.items() if value is not None})


def _merged(given: Any, more: Conditions) -> Any:
    if isinstance(given, Mapping):
        return {**given, **more}
    if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given):
        return [{**row, **more} for row in given]
    return given  # for the request to refuse
