"""Conditions change a sample, alone as in a batch, cached as uncached; and guidance."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from audiolm.generation import Sampling, cut_at_end, generate
from audiolm.generation.engines import compiled
from audiolm.generation.engines.build import find_compiler
from audiolm.generation.engines.compiled import decode_step
from audiolm.generation.engines.engine import Engine
from audiolm.generation.engines.rounding import round_weights
from audiolm.generation.sampling import guide
from audiolm.model import AudioLM, make_pattern
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.conditioning import null_conditions
from audiolm.model.likelihood import nats_per_code
from audiolm.model.loss import lay_out

K, V, CONTEXT = 3, 19, 8
MakeModel = Callable[..., AudioLM]

LABELS = ConditionVocabulary({"label": ["one", "two"], "speaker": ["ada", "ben", "cy"]})
TEXT = ConditionVocabulary({}, "text", "abc ", 12)
ALL = ConditionVocabulary(LABELS.labels, "text", "abc ", 12, "embedding", 3)
SEQUENCE = ConditionVocabulary({}, sequence="states", sequence_size=3, max_sequence=6)
VOCABULARIES = {"labels": LABELS, "text": TEXT, "all": ALL, "sequence": SEQUENCE}

CONDITIONS: list[dict[str, Any]] = [
    {
        "label": "one",
        "speaker": "cy",
        "text": "a",
        "embedding": [1.0, -2.0, 0.5],
        "states": [[0.0, 1.0, 2.0]],
    },
    {
        "label": "two",
        "text": "abc cab abc",
        "states": [[-2.0, 1.0, 2.0], [3.0, 0.0, 0.0], [0.0, 4.0, 0.0], [1.0, 1.0, 1.0]],
    },
    {},
    {
        "speaker": "ben",
        "text": "bbb",
        "embedding": [0.0, 0.0, 3.0],
        "states": [[0.0, -5.0, 2.0], [1.0, 0.0, 0.0]],
    },
    {
        "label": "one",
        "speaker": "cy",
        "text": "a",
        "embedding": [1.0, -2.0, 0.5],
        "states": [[0.0, 1.0, 2.0]],
    },
]
SEEDS = list(range(len(CONDITIONS)))


def conditions_of(vocabulary: ConditionVocabulary) -> dict[str, Tensor]:
    known = [{c: v for c, v in one.items() if c in vocabulary.columns} for one in CONDITIONS]
    return vocabulary.encode(known)


def row(conditions: Mapping[str, Tensor], b: int) -> dict[str, Tensor]:
    """Alone, and without the padding that its neighbours need."""
    alone = {name: values[b : b + 1] for name, values in conditions.items()}
    if "text" in alone:
        alone["text"] = alone["text"][:, : int((alone["text"] > 0).sum())]
    if "sequence" in alone:
        known = int(alone["sequence"].isfinite().all(dim=2).sum())
        alone["sequence"] = alone["sequence"][:, : max(1, known)]
    return alone


@pytest.fixture(params=VOCABULARIES)
def vocabulary(request: pytest.FixtureRequest) -> ConditionVocabulary:
    return VOCABULARIES[request.param]


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("name", ["eager", "native", "compiled"])
@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_every_engine_is_the_model(
    name: str,
    positions: str,
    weights: str,
    vocabulary: ConditionVocabulary,
    make_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cached step by step, in a batch of unlike texts, as a full pass over each alone."""
    if name == "native":
        try:
            find_compiler()
        except ValueError as error:
            pytest.skip(str(error))
    monkeypatch.setattr(compiled, "_compiled", lambda: decode_step)
    model = make_model("delay", positions, end_token=True, vocabulary=vocabulary)
    conditions = conditions_of(vocabulary)
    inputs = torch.randint(V, (len(CONDITIONS), K, 9), generator=torch.Generator().manual_seed(0))
    inputs[:, :, 0] = model.special
    with torch.inference_mode():
        engine = Engine(name, model, weights, None)
        given = engine.model.condition(conditions)
        decoder = engine.decoder(len(CONDITIONS), 9, False, given)
        found = torch.stack([decoder.extend(inputs[:, :, s : s + 1]) for s in range(9)], dim=2)
        rounded = round_weights(model, weights)
        for b in range(len(CONDITIONS)):
            alone = rounded.condition(row(conditions, b))
            expected = rounded.extend(inputs[b : b + 1], conditions=alone)
            torch.testing.assert_close(found[b : b + 1], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("prompted", [False, True])
def test_a_sample_is_the_same_alone_and_in_a_batch(
    guidance: float,
    prompted: bool,
    vocabulary: ConditionVocabulary,
    make_model: MakeModel,
    engine: str,
) -> None:
    model, pattern = make_model("delay", vocabulary=vocabulary), make_pattern("delay", K)
    conditions, sampling = conditions_of(vocabulary), Sampling(guidance=guidance)
    prompt = torch.arange(K * 3).view(K, 3) if prompted else None
    together = generate(
        model,
        pattern,
        20,
        CONTEXT,
        SEEDS,
        prompt,
        sampling=sampling,
        conditions=conditions,
        engine=engine,
    )
    for b, seed in enumerate(SEEDS):
        alone = generate(
            model,
            pattern,
            20,
            CONTEXT,
            [seed],
            prompt,
            sampling=sampling,
            conditions=row(conditions, b),
            engine=engine,
        )
        assert torch.equal(alone[0], together[b])


def test_conditions_change_the_sample(
    vocabulary: ConditionVocabulary, make_model: MakeModel
) -> None:
    model, pattern = make_model("delay", vocabulary=vocabulary), make_pattern("delay", K)
    conditions = conditions_of(vocabulary)
    codes = generate(model, pattern, 8, CONTEXT, [0] * len(CONDITIONS), conditions=conditions)
    same = [
        (a, b) for a in range(len(CONDITIONS)) for b in range(a) if torch.equal(codes[a], codes[b])
    ]
    assert same == [(4, 0)]  # the two of the same conditions
    assert torch.equal(
        generate(model, pattern, 8, CONTEXT, [0]), codes[2:3]
    )  # telling nothing is the same as no conditions at all


@pytest.mark.parametrize("guidance", [0.0, 0.5, 4.0])
def test_guided_samples_are_those_of_two_full_passes(
    guidance: float, vocabulary: ConditionVocabulary, make_model: MakeModel, engine: str
) -> None:
    """Uncached: greedy ids are the most probable ones of the two passes' mixture."""
    model, pattern = make_model("delay", vocabulary=vocabulary), make_pattern("delay", K)
    conditions = conditions_of(vocabulary)
    sampling = Sampling(greedy=True, guidance=guidance)
    codes = generate(
        model,
        pattern,
        CONTEXT,
        CONTEXT,
        SEEDS,
        sampling=sampling,
        conditions=conditions,
        engine=engine,
    )
    lengths = torch.full((len(codes),), CONTEXT)
    steps, mask = lay_out(codes, lengths, None, pattern, CONTEXT, model.special)
    with torch.inference_mode():
        conditional, unconditional = (
            model(steps, conditions),
            model(steps, null_conditions(conditions)),
        )
    best = guide(conditional, unconditional, guidance).argmax(dim=-1)
    assert torch.equal(best[mask], steps[mask])
    if guidance == 0:
        assert torch.equal(codes[0], codes[1])


def test_ends_conditions_and_guidance_together(make_model: MakeModel, engine: str) -> None:
    """Samples that end at unlike frames, conditional and guided, alone as in a batch."""
    model, pattern = make_model("delay", end_token=True, vocabulary=ALL), make_pattern("delay", K)
    with torch.no_grad():
        model.heads.weight.mul_(0.3)
        model.heads.weight[V] *= 3
    given, sampling = conditions_of(ALL), Sampling(guidance=2.0)
    sample = partial(generate, model, pattern, 30, CONTEXT, sampling=sampling, engine=engine)
    together = cut_at_end(sample(SEEDS, conditions=given), V)
    assert len({codes.shape[1] for codes in together}) > 1
    for b, seed in enumerate(SEEDS):
        assert torch.equal(sample([seed], conditions=row(given, b))[0], together[b])


def test_conditions_are_heard_without_end(make_model: MakeModel, engine: str) -> None:
    """Conditions are not pushed out of a ring by the steps."""
    vocabulary = ALL
    model, pattern = make_model("delay", vocabulary=vocabulary), make_pattern("delay", K)
    given = conditions_of(vocabulary)
    one, other = (
        generate(
            model,
            pattern,
            60,
            CONTEXT,
            [7],
            prompt=torch.zeros(K, 2, dtype=torch.long),
            conditions=row(given, b),
            engine=engine,
        )
        for b in (0, 1)
    )
    assert not torch.equal(one[:, :, 50:], other[:, :, 50:])


def test_likelihood_is_that_of_the_loss(make_model: MakeModel) -> None:
    model = make_model("delay", end_token=True, vocabulary=ALL)
    pattern, conditions = make_pattern("delay", K), conditions_of(ALL)
    codes = torch.randint(V, (K, 6), generator=torch.Generator().manual_seed(0))
    steps, mask = lay_out(
        codes[None], torch.tensor([6]), torch.tensor([True]), pattern, CONTEXT, model.special
    )
    with torch.inference_mode():
        log_p = model(steps, row(conditions, 0)).log_softmax(dim=-1)
    picked = log_p.gather(3, steps.clamp(max=V)[..., None])[..., 0][mask]
    found = nats_per_code(model, pattern, codes, CONTEXT, row(conditions, 0), ended=True)
    assert found == pytest.approx(-float(picked.mean()), rel=1e-5)
    assert len(picked) == K * 6 + 1
    other = nats_per_code(model, pattern, codes, CONTEXT, row(conditions, 1), ended=True)
    assert other != pytest.approx(found, rel=1e-3)
    # Longer than a window: each window alone, and the end in the last.
    both = codes.repeat(1, 2)
    parts = [(both[:, :CONTEXT], False), (both[:, CONTEXT:], True)]
    given = row(conditions, 0)
    sums = [
        nats_per_code(model, pattern, part, CONTEXT, given, ended) * (part.numel() + ended)
        for part, ended in parts
    ]
    long = nats_per_code(model, pattern, both, CONTEXT, given, ended=True)
    assert long == pytest.approx(sum(sums) / (K * 12 + 1), rel=1e-5)


@pytest.mark.parametrize("problem", ["conditions", "guidance", "rows"])
def test_what_does_not_fit_is_refused(problem: str, make_model: MakeModel) -> None:
    pattern = make_pattern("delay", K)
    if problem == "conditions":
        with pytest.raises(ValueError, match=r"conditions are for a model .* and this one was not"):
            given = conditions_of(LABELS)
            generate(make_model("delay"), pattern, 3, CONTEXT, SEEDS, conditions=given)
    elif problem == "guidance":
        with pytest.raises(ValueError, match=r"guidance is for a model"):
            generate(make_model("delay"), pattern, 3, CONTEXT, [0], sampling=Sampling(guidance=2.0))
    else:
        with pytest.raises(ValueError, match=r"conditions of 5 samples .*, 1 are generated"):
            model = make_model("delay", vocabulary=LABELS)
            generate(model, pattern, 3, CONTEXT, [0], conditions=conditions_of(LABELS))
