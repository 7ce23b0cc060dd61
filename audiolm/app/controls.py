"""What can be set for a model, read from its checkpoint; and what was set, as a `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audiolm.generation import Sampling
from audiolm.synthesis.request import Request, make_request
from audiolm.synthesis.synthesizer import Synthesizer

NOTHING = "(none)"
"""Of a menu: the model is not conditioned on that column."""

SAMPLING_HELP = {
    "temperature": "below 1 is safer and duller, above 1 wilder",
    "top_k": "sample from so many of the most probable codes; empty: from all",
    "top_p": "sample from the most probable codes that hold this probability; empty: from all",
    "min_p": "only codes at least this share as probable as the most probable; empty: all",
    "greedy": "always the most probable code; the settings above then do not matter",
    "repetition_window": "sample a coarse code again that repeats within so many frames; empty: no",
    "repetition_share": "it repeats if it is in at least this share of them",
    "guidance": "above 1 follows the conditions more closely, such as 3; 1 is off",
    "end": "whether a sample may end by itself; if not it lasts for the whole duration",
}
"""A line for each setting of `Sampling`."""

TYPED = ("prompt_duration", *(name for name, about in SAMPLING_HELP.items() if "empty" in about))
"""Settings that may be empty, and are typed as text."""


@dataclass(frozen=True)
class Control:
    """Something to set.

    Attributes:
        name: of the setting, or the column.
        kind: menu, text, number or switch.
        help: a line that says what it does.
        value: at first.
        choices: of a menu.
    """

    name: str
    kind: str
    help: str
    value: Any
    choices: tuple[str, ...] = ()


def condition_controls(synthesizer: Synthesizer) -> list[Control]:
    """One for each column that the model is conditioned on: a menu of names, a box for a text."""
    vocabulary = synthesizer.trained.vocabulary
    if vocabulary is None:
        return []
    optional = vocabulary.drop > 0
    controls = []
    for column, names in vocabulary.labels.items():
        choices = (NOTHING, *names) if optional else tuple(names)
        about = f"one of {len(names)} of the training" + (", or none" if optional else "")
        controls.append(Control(column, "menu", about, choices[0], choices))
    if vocabulary.text is not None:
        about = f"at most {vocabulary.max_text_len} characters" + ("; may be empty" * optional)
        controls.append(Control(vocabulary.text, "text", about, ""))
    if vocabulary.vector is not None:
        about = f"{vocabulary.vector_size} numbers, such as [1, 2]"
        controls.append(Control(vocabulary.vector, "text", about + "; may be empty" * optional, ""))
    if vocabulary.sequence is not None:
        about = f"a .npy file of vectors of {vocabulary.sequence_size} numbers"
        if vocabulary.text_encoder is not None:
            about = f"a description of at most {vocabulary.max_sequence} tokens, in English"
        about += "; may be empty" * optional
        controls.append(Control(vocabulary.sequence, "text", about, ""))
    return controls


def sampling_controls(synthesizer: Synthesizer, sampling: Sampling) -> list[Control]:
    """One for each setting of sampling that does something with this model.

    sampling: as they stand at first.
    """
    trained = synthesizer.trained
    can_drop = trained.vocabulary is not None and trained.vocabulary.drop > 0
    idle = {"guidance": not can_drop, "end": not trained.model.end_token}
    controls = []
    for name, about in SAMPLING_HELP.items():
        value = getattr(sampling, name)
        several = isinstance(value, tuple | list)  # temperatures, one a codebook
        if not idle.get(name, False) and not several:
            kind = "switch" if isinstance(value, bool) else "number"
            if name in TYPED:  # Gradio makes 0 of a number that is not there
                kind, value = "text", "" if value is None else f"{value:g}"
            controls.append(Control(name, kind, about, value))
    return controls


def request_of(
    synthesizer: Synthesizer,
    values: Mapping[str, Any],
    conditions: Mapping[str, Any],
    sampling: Sampling,
    max_seconds: float,
) -> Request:
    """What was set, checked.

    Args:
        synthesizer: the model.
        values: num_samples, duration, seed, prompt, prompt_duration, engine, weights, and settings
            of sampling; also numbers as they were typed, "" for none.
        conditions: by column; empty texts and `NOTHING` are none.
        sampling: what the settings that are not among the values are.
        max_seconds: of all samples together.

    Raises:
        ValueError: one line with the value, the limit and the remedy.
    """
    values = {**values, **{name: _as_number(values[name]) for name in TYPED if name in values}}
    for name in ("num_samples", "duration", "seed"):
        if values.get(name) is None:
            raise ValueError(f"{name} is empty; give a number")
    vocabulary = synthesizer.trained.vocabulary
    vector = None if vocabulary is None else vocabulary.vector
    given = {c: v for c, v in conditions.items() if v not in (None, "", NOTHING)}
    if vector in given and str(given[vector]).endswith(".npy"):
        # A file of this machine, which a visitor from another may have no right to.
        raise ValueError(f"{vector}={given[vector]} is a file; give the numbers, such as [1, 2]")
    request = make_request((), {**values, "conditions": given, "sampling": sampling})
    seconds = request.num_samples * request.duration
    if seconds > max_seconds:
        raise ValueError(
            f"num_samples={request.num_samples} of duration={request.duration:g} are {seconds:g} s "
            f"of sound, more than max_seconds={max_seconds:g}; ask for less, or start the app with "
            f"more"
        )
    return request


def _as_number(typed: Any) -> Any:
    """The number that was typed, None for none; what is no number as it is, to be refused."""
    if not isinstance(typed, str):
        return typed
    for kind in (int, float):
        try:
            return kind(typed)
        except ValueError:
            continue
    return typed.strip() or None
