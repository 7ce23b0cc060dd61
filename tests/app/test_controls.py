"""The controls are those of the checkpoint, and what is set in them is a request."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from audiolm.app.controls import (
    NOTHING,
    SAMPLING_HELP,
    condition_controls,
    request_of,
    sampling_controls,
)
from audiolm.app.workshop import Workshop
from audiolm.generation import Sampling
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.synthesis.request import SAMPLING, Request
from audiolm.synthesis.synthesizer import Synthesizer

from .conftest import VOCABULARY, MakeRun

VALUES = {"num_samples": 1, "duration": 0.5, "seed": 3}


def test_conditions_are_menus_and_boxes(workshop: Workshop) -> None:
    label, text, vector = condition_controls(workshop.synthesizer)
    assert (label.name, label.kind) == ("label", "menu")
    assert label.choices == (NOTHING, *VOCABULARY.labels["label"]) and label.value == NOTHING
    assert (text.name, text.kind, text.value) == ("text", "text", "")
    assert "12 characters" in text.help and "2 numbers" in vector.help


def test_no_text_box_for_a_model_that_reads_none(make_run: MakeRun) -> None:
    must = ConditionVocabulary({"label": ["a", "b"]}, drop=0)
    synthesizer = Synthesizer.load(make_run("labels", vocabulary=must))
    (label,) = condition_controls(synthesizer)
    assert label.choices == ("a", "b") and label.value == "a"  # it cannot be left out
    assert "guidance" not in [c.name for c in sampling_controls(synthesizer, SAMPLING)]


def test_every_setting_of_sampling_has_its_line(workshop: Workshop) -> None:
    fields = [field.name for field in dataclasses.fields(Sampling)]
    assert sorted(SAMPLING_HELP) == sorted(fields)
    controls = {c.name: c for c in sampling_controls(workshop.synthesizer, SAMPLING)}
    assert set(controls) == set(fields)
    assert controls["top_k"].value == "250" and controls["top_k"].kind == "text"
    assert controls["top_p"].value == "" and controls["temperature"].kind == "number"
    assert controls["greedy"].kind == controls["end"].kind == "switch"
    each = dataclasses.replace(SAMPLING, temperature=(0.7, 0.8, 0.9, 1.0))
    assert "temperature" not in [c.name for c in sampling_controls(workshop.synthesizer, each)]


def request(workshop: Workshop, conditions: dict[str, Any], **values: Any) -> Request:
    return request_of(workshop.synthesizer, {**VALUES, **values}, conditions, SAMPLING, 100.0)


def test_what_is_set_is_the_request(workshop: Workshop) -> None:
    made = request(
        workshop,
        {"label": "no", "text": "", "embedding": None},
        top_k=None, temperature=0.5, guidance=2, prompt=None,
    )  # fmt: skip
    assert made.conditions == {"label": "no"} and made.seed == 3
    expected = dataclasses.replace(SAMPLING, top_k=None, temperature=0.5, guidance=2)
    assert made.sampling == expected
    typed = request(workshop, {}, top_k=" 9 ", top_p="0.5", min_p="", repetition_window=" ")
    assert typed.sampling == dataclasses.replace(SAMPLING, top_k=9, top_p=0.5)
    assert request(workshop, {"label": NOTHING}).conditions == {}


@pytest.mark.parametrize(
    ("values", "conditions", "message"),
    [
        ({"duration": None}, {}, "^duration is empty; give a number$"),
        ({"duration": -1}, {}, "^duration=-1 must be a number above 0"),
        ({"num_samples": 1.5}, {}, "^num_samples=1.5 must be a whole number"),
        ({"seed": -1}, {}, "^seed=-1 must be"),
        ({"top_k": "many"}, {}, "^top_k=many must be a whole number"),
        ({"top_k": "2.5"}, {}, "^top_k=2.5 must be a whole number"),
        ({"temperature": None}, {}, "^temperature=None must be"),
        ({"num_samples": 9, "duration": 20}, {}, "are 180 s of sound, more than max_seconds=100"),
        ({"prompt_duration": 2}, {}, "^prompt_duration=2 is of a prompt, and there is none"),
        ({}, {"embedding": "/etc/secret.npy"}, "is a file; give the numbers"),
    ],
)
def test_what_cannot_be_is_a_line(
    workshop: Workshop, values: dict[str, Any], conditions: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        request(workshop, conditions, **values)
    assert "\n" not in str(raised.value)
