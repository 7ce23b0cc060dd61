"""Conditions, by name and as tensors, and how tensors are dropped at random."""

from __future__ import annotations

import pytest
import torch

from audiolm.model import AudioLM
from audiolm.model.condition_vocabulary import ConditionVocabulary, stack_rows
from audiolm.model.conditioning import FIRST_CHARACTER, START, drop_conditions, null_conditions

ALL = ConditionVocabulary({"label": ["7", "one"], "speaker": ["ada"]}, "text", "abc ", 9, "emb", 2)


def test_words_become_numbers() -> None:
    encoded = ALL.encode(
        [{"label": 7, "text": " A\tb "}, {"speaker": "ada", "emb": "[1, -2]"}, {"text": "c"}]
    )
    assert encoded["labels"].tolist() == [[1, 0], [0, 1], [0, 0]]
    a, b, space = (FIRST_CHARACTER + "abc ".index(c) for c in "ab ")
    assert encoded["text"].tolist() == [
        [START, a, space, b],
        [START, 0, 0, 0],
        [START, a + 2, 0, 0],
    ]
    assert encoded["vector"][1].tolist() == [1, -2] and encoded["vector"][0].isnan().all()


def test_a_vocabulary_is_plain_data() -> None:
    assert ConditionVocabulary.from_settings(ALL.settings()) == ALL
    wrong = [{"colour": 1}, {"labels": {"a": [1]}}, {"text": 5}, {"drop": "x"}, {"alphabet": None}]
    for other in wrong:
        with pytest.raises(TypeError):
            ConditionVocabulary.from_settings({**ALL.settings(), **other})


def test_characters_never_seen_are_skipped_and_can_be_named() -> None:
    assert ALL.readable("Ab! \N{LATIN SMALL LETTER E WITH ACUTE} c") == "ab c"
    assert ALL.unknown_characters("x a x y") == "xy"
    # A composed and a combining accent are one character.
    french = ConditionVocabulary({}, "text", "\N{LATIN SMALL LETTER E WITH ACUTE}", 3)
    assert french.readable("E\N{COMBINING ACUTE ACCENT}") == french.alphabet
    # What is left may not melt into a character that is not in the alphabet.
    loose = ConditionVocabulary({}, "text", "e\N{COMBINING ACUTE ACCENT}", 3)
    assert loose.encode([{"text": "ex\N{COMBINING ACUTE ACCENT}"}])["text"].shape == (1, 3)


def test_what_a_collection_says_and_the_model_does_not_know_is_dropped() -> None:
    known = [{"label": "two", "text": "xyz", "mood": "x"}, {"label": "one", "text": "a" * 10}]
    encoded = stack_rows([ALL.encode_known(values) for values in known])
    assert encoded["labels"].tolist() == [[0, 0], [2, 0]]
    assert encoded["text"].tolist() == [[START], [START]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"label": "on"}, "label=on is not a label .* did you mean one.; choose 7, one"),
        (
            {"lable": "one"},
            "lable is not a condition of .* did you mean label.; it has label, speaker, text",
        ),
        ({"text": ""}, "text='' holds no character"),
        ({"text": "xyz"}, "text='xyz' holds no character"),
        ({"text": "abc" * 4}, "12 characters, the longest text in training had 9"),
        ({"emb": [1, 2, 3]}, "emb has 3 numbers, this model wants 2"),
        ({"emb": [1, float("nan")]}, "not a list of finite numbers"),
        ({"emb": "one"}, "not a list of finite numbers"),
        ({"emb": {"a": 1}}, "not a list of finite numbers"),
    ],
    ids=str,
)
def test_what_cannot_be_a_condition(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ALL.encode([values])


def test_without_dropping_all_must_be_given() -> None:
    strict = ConditionVocabulary({"label": ["a"], "speaker": ["b"]}, drop=0.0)
    strict.encode([{"label": "a", "speaker": "b"}])
    with pytest.raises(ValueError, match=r"conditioning.speaker is not given.*drop=0"):
        strict.encode([{"label": "a"}])


def test_conditions_are_dropped_as_often_as_asked() -> None:
    """All with probability p; each of several on its own too, so 1 - (1 - p)^2 of each."""
    torch.manual_seed(0)
    one = ALL.encode([{"label": "one", "speaker": "ada", "text": "abc", "emb": [1, 2]}])
    many = {name: values.repeat(20_000, 1) for name, values in one.items()}
    kept = drop_conditions(many, 0.2)
    gone = torch.stack(
        [
            kept["labels"][:, 0] == 0,
            kept["labels"][:, 1] == 0,
            (kept["text"] == 0).any(dim=1),
            kept["vector"].isnan().any(dim=1),
        ]
    ).double()
    assert gone.mean(dim=1).sub(0.36).abs().max() < 0.015
    all_gone = gone.prod(dim=0).mean()
    assert abs(float(all_gone) - (0.2 + 0.8 * 0.2**4)) < 0.015
    assert (kept["text"][:, 0] == START).all()
    # Whole texts and whole vectors, or nothing of them.
    assert torch.equal((kept["text"][:, 1:] == 0).any(1), (kept["text"][:, 1:] == 0).all(1))
    assert torch.equal(kept["vector"].isnan().any(1), kept["vector"].isnan().all(1))
    single = {"labels": torch.ones(20_000, 1, dtype=torch.long)}
    assert abs(float((drop_conditions(single, 0.2)["labels"] == 0).double().mean()) - 0.2) < 0.01
    assert all(
        torch.equal(a.nan_to_num(9), b.nan_to_num(9))
        for a, b in zip(drop_conditions(many, 0.0).values(), many.values(), strict=True)
    )


def test_null_conditions_are_those_of_what_was_never_given() -> None:
    encoded = ALL.encode([{"label": "one", "text": "abc", "emb": [1, 2]}])
    never = ALL.encode([{}])
    assert torch.equal(null_conditions(encoded)["labels"], never["labels"])
    conditioner = ALL.make_conditioner(16, 2, 0.0)
    model = AudioLM(2, 5, 9, 16, 1, 2, conditioner=conditioner).eval()
    steps = torch.zeros(1, 2, 4, dtype=torch.long)
    for other in (never, conditioner.nothing(1)):
        torch.testing.assert_close(model(steps, null_conditions(encoded)), model(steps, other))


def test_conditions_reach_every_step_and_nothing_comes_from_the_future() -> None:
    torch.manual_seed(0)
    model = AudioLM(
        2, 5, 9, 16, 2, 2, end_token=True, conditioner=ALL.make_conditioner(16, 2, 0.0)
    ).eval()
    one, two = ({"text": "abc", "label": "one"}, {"text": "abca", "label": "7"})
    steps = torch.randint(5, (1, 2, 8))
    logits = model(steps, ALL.encode([one]))
    assert (logits != model(steps, ALL.encode([two])))[..., :5].any(dim=-1).all()
    changed = steps.clone()
    changed[:, :, 5:] = 0
    again = model(changed, ALL.encode([one]))
    assert torch.equal(again[:, :, :6], logits[:, :, :6])


def test_ids_of_ends_and_empty_cells_are_no_codes() -> None:
    plain, with_end = (AudioLM(2, 5, 9, 16, 1, 2, end_token=end) for end in (False, True))
    assert (plain.num_outputs, plain.special) == (5, 5)
    assert (with_end.num_outputs, with_end.special) == (6, 6)
    logits = with_end(torch.full((1, 2, 3), with_end.special))
    assert logits.shape == (1, 2, 3, 6)
    assert logits[:, 0].isfinite().all() and (logits[:, 1, :, 5] == -torch.inf).all()
    assert logits[:, 1, :, :5].isfinite().all()
