"""A run that begins with another model is that model, where it knows the same; the rest is new."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from audiolm.model import AudioLM
from audiolm.model.checkpoint import build_model
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.training.lm.initial_weights import InitialModel, begin_with, origin_of

CODEC = {
    "name": "c",
    "num_codebooks": 3,
    "codebook_size": 8,
    "frame_rate": 50.0,
    "fingerprint": "f",
}
MODEL = {"embed_dim": 16, "num_layers": 2, "num_heads": 2}
OLD = ConditionVocabulary(
    {"label": ["a", "c"], "speaker": ["x"]},
    *("text", "ab ", 6),
    vector="v",
    vector_size=2,
    drop=0.2,
)


def initial_of(
    vocabulary: ConditionVocabulary | None = OLD, frames: int = 12, **model: Any
) -> tuple[InitialModel, AudioLM]:
    torch.manual_seed(1)
    settings = {**MODEL, **model}
    old, _ = build_model(settings, "delay", CODEC, frames, vocabulary)
    for weight in old.parameters():  # none at zero, where a wrong row would not be seen
        torch.nn.init.normal_(weight, std=0.3)
    found = {"model": settings, "pattern": "delay", "context_frames": frames, "codec": CODEC}
    return InitialModel(Path("x.ckpt"), "x", 5, found, old.state_dict(), vocabulary), old.eval()


def begun(
    initial: InitialModel, vocabulary: ConditionVocabulary | None, frames: int = 12, **model: Any
) -> tuple[AudioLM, list[str]]:
    torch.manual_seed(2)
    new, _ = build_model({**initial.settings["model"], **model}, "delay", CODEC, frames, vocabulary)
    return new.eval(), begin_with(new, vocabulary, initial)


def logits(
    model: AudioLM,
    vocabulary: ConditionVocabulary | None,
    conditions: Sequence[dict[str, Any]] = ({},),
    steps: int = 9,
) -> Tensor:
    rows = None if vocabulary is None else vocabulary.encode(conditions)
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(8, (len(conditions), 3, steps), generator=generator)
    codes[:, 1, 0] = model.special
    return model(codes, rows).detach()[..., :8]


KNOWN = [
    {"label": "c", "speaker": "x", "text": "ba ab", "v": [1.0, 2.0]},
    {"label": "a", "text": "b"},
    {},
]


def test_the_same_settings_are_the_same_model() -> None:
    initial, old = initial_of()
    new, lines = begun(initial, OLD)
    assert torch.equal(logits(new, OLD, KNOWN), logits(old, OLD, KNOWN))
    assert len(lines) == 1 and "x, step 5: " in lines[0]
    total = sum(w.numel() for w in new.state_dict().values())
    assert f"{total:,} of {total:,} numbers taken" in lines[0]


def test_what_is_known_keeps_its_rows_and_what_is_new_gets_new_ones() -> None:
    initial, old = initial_of()
    data = ConditionVocabulary(
        {"speaker": ["w", "x"], "label": ["b", "c", "d"], "room": ["r"]},
        *("text", "bcz", 9),
        vector="v",
        vector_size=2,
        text_layers=4,
    )
    vocabulary = initial.extended(data)
    assert vocabulary.labels == {
        "speaker": ["x", "w"],
        "label": ["a", "c", "b", "d"],
        "room": ["r"],
    }
    assert vocabulary.alphabet == "ab cz" and vocabulary.max_text_len == 9
    assert vocabulary.text_layers == OLD.text_layers and vocabulary.drop == data.drop
    new, lines = begun(initial, vocabulary)
    with torch.no_grad():  # a new column says something of its own when nothing is said, too
        assert new.conditioner is not None and new.conditioner.labels is not None
        new.conditioner.labels.weight[-2:] = 0
    assert torch.allclose(logits(new, vocabulary, KNOWN), logits(old, OLD, KNOWN), atol=1e-5)
    known, unknown = logits(new, vocabulary, [{"label": "c"}, {"label": "d"}])
    assert not torch.allclose(known, unknown, atol=1e-3)
    said = "\n".join(lines)
    assert "new speaker: 'w'" in said and "new label: 'b', 'd'" in said
    assert "new characters: 'c', 'z'" in said


def test_a_model_without_conditions_leaves_them_out() -> None:
    initial, _ = initial_of()
    new, lines = begun(initial, None)
    assert torch.equal(new.heads.weight, initial.weights["heads.weight"])
    assert "left out: 'transformer.blocks.*.cross_norm'" in lines[1] and " more" in lines[1]
    unconditional, old = initial_of(None)
    new, lines = begun(unconditional, OLD)
    assert "new: 'transformer.blocks.*.cross_norm'" in lines[1]
    assert unconditional.extended(OLD) is OLD
    assert torch.equal(new.heads.weight, old.heads.weight)


@pytest.mark.parametrize("had", [True, False])
def test_an_end_token_comes_or_goes_and_the_codes_stay(had: bool) -> None:
    initial, old = initial_of(None, end_token=had)
    new, lines = begun(initial, None, end_token=not had)
    assert torch.equal(logits(new, None), logits(old, None))
    assert lines[-1].strip() == f"end token: {'left out' if had else 'new'}"


@pytest.mark.parametrize("frames", [6, 30])
def test_another_context_keeps_the_positions_that_both_have(frames: int) -> None:
    initial, old = initial_of(None, positions="learned")
    new, _ = begun(initial, None, frames=frames)
    assert torch.equal(logits(new, None, steps=6), logits(old, None, steps=6))


def test_a_weight_of_another_shape_is_named() -> None:
    initial, _ = initial_of(None)
    with pytest.raises(ValueError, match=r"init_from=x: transformer\..* is \(.*\) there and \("):
        begun(initial, None, feedforward_dim=20)


def test_another_codec_is_refused_with_both() -> None:
    initial, _ = initial_of(None)
    initial.check_codec(CODEC)
    with pytest.raises(ValueError, match=r"codes of c \(f\), this run has d \(g\)"):
        initial.check_codec({**CODEC, "name": "d", "fingerprint": "g"})
    with pytest.raises(ValueError, match=r"models 3 codebooks, this run has 2.*num_codebooks=3"):
        initial.check_codec({**CODEC, "num_codebooks": 2})
    initial, _ = initial_of()
    with pytest.raises(ValueError, match="reads 2 numbers of v, the data have 3"):
        initial.extended(ConditionVocabulary({}, vector="v", vector_size=3))


def test_where_it_is_from_goes_on() -> None:
    initial, _ = initial_of(None)
    assert origin_of(initial) == {"license": None, "base_model": None}
    initial.settings["origin"] = {"license": "cc-by-nc-4.0", "base_model": "a/b"}
    assert origin_of(initial) == initial.settings["origin"]
    named = InitialModel(initial.path, "hf://ann/voice@v1", 5, initial.settings, {}, None)
    assert origin_of(named) == {"license": "cc-by-nc-4.0", "base_model": "ann/voice"}
