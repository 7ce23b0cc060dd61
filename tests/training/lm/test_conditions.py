"""Conditions of clips, from the columns of a store to the loss."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audiolm.batches.conditions import ClipConditions, conditions_of, read_vocabulary, whole_clips
from audiolm.batches.splits import SPAN, Split
from audiolm.codec import EncodecCodec
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.tokens import Mix, TokenStore
from audiolm.training import TokenData
from audiolm.training.lm.summary import estimate_memory

from ..conftest import CONTEXT, MODEL, encode_folder, make_module
from .test_data import serve

WORDS = ("ah", "bee", "sea")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory, tiny_codec: EncodecCodec) -> TokenStore:
    """Clips of 5 to 14 frames with texts; one has none, one has a vector of its own."""
    folder = tmp_path_factory.mktemp("labelled")
    rng = np.random.default_rng(0)
    lines: list[dict[str, Any]] = []
    for i in range(30):
        noise = rng.normal(0, 0.1, 12 * (5 + i % 10))
        soundfile.write(folder / f"{i:02d}.wav", noise, 800)
        states = np.stack([np.full(1 + i % 3, i), np.arange(1 + i % 3)], axis=1)
        np.save(folder / f"states_{i:02d}.npy", states)
        np.save(folder / f"{i:02d}.npy", np.full((1, 3), float(i)))
        word = WORDS[i % 3]
        lines.append(
            {
                "file_name": f"{i:02d}.wav",
                "label": word,
                "speaker": str(i % 2),
                "text": " ".join([word] * (1 + i % 4)),
                "embedding": f"{i:02d}.npy",
                "states": f"states_{i:02d}.npy",
            }
        )
    lines[7] = {"file_name": "07.wav"}
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return encode_folder(folder, tmp_path_factory.mktemp("tokens"), tiny_codec)


def vocabulary_of(store: TokenStore, **columns: Any) -> ConditionVocabulary:
    found = read_vocabulary(Mix([store]), 0.2, columns.pop("context_frames", CONTEXT), **columns)
    assert found is not None
    return found


def everything(store: TokenStore) -> ConditionVocabulary:
    return vocabulary_of(store, labels=["label", "speaker"], text="text", vector="embedding")


def data_of(store: TokenStore, vocabulary: ConditionVocabulary, **overrides: Any) -> TokenData:
    settings = {"context_frames": CONTEXT, "batch_size": 4, "valid_fraction": 0.2}
    return TokenData(
        store, **{**settings, "end_token": True, "vocabulary": vocabulary, **overrides}
    )


def test_a_sequence_is_that_of_the_clips(labelled: TokenStore) -> None:
    vocabulary = vocabulary_of(labelled, labels=["label"], sequence="states")
    assert (vocabulary.sequence_size, vocabulary.max_sequence) == (2, 3)
    data = data_of(labelled, vocabulary)
    batch = next(iter(data.training_loader(1)))["conditions"]["sequence"]
    assert batch.shape[2] == 2 and batch.dtype == torch.float32
    known = batch.isfinite().all(dim=2)
    assert bool((known == batch.isfinite().any(dim=2)).all())
    # A vector says its clip and its place; the clip without one has none at all.
    for row, there in zip(batch, known, strict=True):
        assert row[there, 1].tolist() == list(range(int(there.sum())))
        assert len(row[there, 0].unique()) <= 1
    for wrong, message in (
        ({"sequence": "label"}, "is not the path of a .npy file"),
        ({"sequence": "nothing"}, "no clip has the condition nothing"),
        ({"sequence": "states", "text": "text"}, "a model looks at one of the two"),
    ):
        with pytest.raises(ValueError, match=message):
            vocabulary_of(labelled, **wrong)


def test_the_names_are_those_of_the_clips(labelled: TokenStore) -> None:
    vocabulary = everything(labelled)
    assert vocabulary.labels == {"label": sorted(WORDS), "speaker": ["0", "1"]}
    assert set(vocabulary.alphabet) == set(" ".join(WORDS))
    assert vocabulary.vector_size == 3
    assert vocabulary_of(labelled, text="text", context_frames=20).max_text_len == len(
        "bee bee bee bee"
    )
    assert read_vocabulary(Mix([labelled]), 0.2, CONTEXT) is None
    # Clips that are not trained on, as they are longer than a window, teach no vocabulary.
    few = vocabulary_of(labelled, labels=["label", "speaker"], text="text", context_frames=7)
    assert few.labels["speaker"] == ["0"]  # those of 7 frames are even ones


def test_each_row_has_the_conditions_of_its_own_clip(labelled: TokenStore) -> None:
    vocabulary = everything(labelled)
    conditions = pickle.loads(pickle.dumps(data_of(labelled, vocabulary).conditions))
    assert isinstance(conditions, ClipConditions)
    for batch in serve(data_of(labelled, vocabulary)):
        rows = batch["conditions"]
        for b in range(len(batch["lengths"])):
            i = rows["vector"][b, 0]
            if i.isnan():
                assert rows["labels"][b].tolist() == [0, 0]
                assert rows["text"][b].tolist()[1:] == [0] * (rows["text"].shape[1] - 1)
                continue
            word = WORDS[int(i) % 3]
            assert rows["labels"][b].tolist() == [1 + sorted(WORDS).index(word), 1 + int(i) % 2]
            assert int(batch["lengths"][b]) == 5 + int(i) % 10
            text = " ".join([word] * (1 + int(i) % 4))
            assert torch.equal(
                rows["text"][b, : len(text) + 1], vocabulary.encode([{"text": text}])["text"][0]
            )


def test_a_text_is_that_of_a_whole_clip(labelled: TokenStore) -> None:
    with_text = data_of(labelled, vocabulary_of(labelled, text="text"))
    longer = sum(5 + i % 10 > CONTEXT for i in range(30))
    assert with_text.too_long == longer > 0
    assert all(batch["reaches_end"].all() for batch in serve(with_text))
    without = data_of(labelled, vocabulary_of(labelled, labels=["label"]))
    assert without.too_long == 0
    assert not all(batch["reaches_end"].all() for batch in serve(without))


def test_a_text_beyond_the_limit_leaves_its_clip_out_and_costs_nothing(
    labelled: TokenStore,
) -> None:
    """The longest text decides how much memory a batch takes, whatever the others are."""
    everything = data_of(labelled, vocabulary_of(labelled, text="text"))
    limited = vocabulary_of(labelled, text="text", max_text=len("bee bee"))
    assert limited.max_text_len == len("bee bee")
    data = data_of(labelled, limited)
    spans = [np.concatenate([split.train, split.valid]) for split in everything.splits]
    texts = [conditions_of(labelled, int(clip)).get("text", "") for clip in spans[0]["clip"]]
    longer = sum(len(text) > len("bee bee") for text in texts)
    assert data.long_texts == longer > 0 == everything.long_texts
    assert data.too_long == everything.too_long
    batches = serve(data)
    assert all(batch["conditions"]["text"].shape[1] <= 1 + len("bee bee") for batch in batches)
    with pytest.raises(ValueError, match=r"max_text=1 characters"):
        vocabulary_of(labelled, labels=["label"], text="text", max_text=1, context_frames=2)
    with pytest.raises(ValueError, match=r"conditioning\.max_text=0 must be at least 1"):
        vocabulary_of(labelled, text="text", max_text=0)


def test_the_plan_counts_what_texts_cost(labelled: TokenStore, tiny_codec: EncodecCodec) -> None:
    def memory(longest: int) -> int:
        vocabulary = dataclasses.replace(vocabulary_of(labelled, text="text"), max_text_len=longest)
        model = make_module(
            tiny_codec, model={**MODEL, "end_token": True}, conditioning=vocabulary.settings()
        ).model
        return estimate_memory(model, 4, 20, ema=False, kernel="auto", bytes_each=4)

    heads, layers = MODEL["num_heads"], 2
    tables = 4 * layers * 3 * heads * 4  # bytes for each pair of characters, of four texts
    assert memory(2000) - memory(20) > tables * (2000**2 - 20**2)
    assert memory(2000) < 3 * tables * 2000**2


def test_a_row_is_scored_alone_as_in_a_batch(
    labelled: TokenStore, tiny_codec: EncodecCodec
) -> None:
    """Of unlike lengths and texts, with ends: nothing of the neighbours, nothing of the padding."""
    vocabulary = everything(labelled)
    for pattern in ("delay", "parallel", "flatten", "coarse_first"):
        module = make_module(
            tiny_codec,
            pattern=pattern,
            model={**MODEL, "end_token": True},
            conditioning=vocabulary.settings(),
        ).eval()
        for batch in serve(data_of(labelled, vocabulary, pattern=pattern), 0, 4):
            nats, counts = module.predict(batch).nats()
            assert counts.tolist() == [
                int(batch["lengths"].sum()) + int(batch["reaches_end"].sum()) * (k == 0)
                for k in range(3)
            ]
            alone = []
            for b, length in enumerate(batch["lengths"].tolist()):
                row = {n: values[b : b + 1] for n, values in batch["conditions"].items()}
                row["text"] = row["text"][:, : int((row["text"] > 0).sum())]
                one = {
                    "codes": batch["codes"][b : b + 1, :, :length],
                    "lengths": batch["lengths"][b : b + 1],
                    "reaches_end": batch["reaches_end"][b : b + 1],
                    "conditions": row,
                }
                alone.append(module.predict(one).nats())  # type: ignore[arg-type]
            torch.testing.assert_close(sum(x[0] for x in alone), nats, rtol=1e-5, atol=1e-4)


def test_conditions_can_be_learnt(labelled: TokenStore, tiny_codec: EncodecCodec) -> None:
    """Codes that follow from the label alone: the loss falls far below that of no label."""
    vocabulary = vocabulary_of(labelled, labels=["label"])
    module = make_module(
        tiny_codec, model={**MODEL, "dropout": 0.0}, conditioning=vocabulary.settings()
    )
    labels = torch.arange(3).repeat(8)
    codes = (labels * 7 % 32)[:, None, None].expand(24, 3, 1)
    batch: Any = {
        "codes": codes,
        "lengths": torch.ones(24, dtype=torch.long),
        "reaches_end": torch.zeros(24, dtype=torch.bool),
        "conditions": {"labels": 1 + labels[:, None]},
    }
    optimizer = torch.optim.Adam(module.model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nats, counts = module.predict(batch).nats()
        (nats.sum() / counts.sum()).backward()
        optimizer.step()
    # Blind, the three codes of each row cost ln 3 for the first and nothing for the others.
    assert float(nats.detach().sum() / counts.sum()) < 0.25 * np.log(3) / 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"labels": ["mood"]}, "no clip has the condition mood in .*; there are: embedding"),
        (
            {"text": ["text"]},
            "must be a list of names, text=.'text'., vector=None and sequence=None one name",
        ),
        ({"labels": "label"}, "labels=label must be a list of names"),
        ({"labels": ["text"], "text": "text"}, "a column twice: text, text"),
        ({"vector": "speaker"}, r"clip .*wav of .*: speaker='\d' is not a list"),
        ({"labels": ["label"], "drop": -0.1}, "conditioning.drop=-0.1 must be"),
        ({"text": "text", "text_layers": -1}, "text_layers=-1 must be 0 or more"),
    ],
    ids=str,
)
def test_what_columns_cannot_be(
    labelled: TokenStore, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        vocabulary_of(labelled, **columns)


def test_no_clip_is_short_enough(labelled: TokenStore) -> None:
    with pytest.raises(ValueError, match="no clip is as short as context="):
        vocabulary_of(labelled, text="text", context_frames=3)
    data = data_of(labelled, vocabulary_of(labelled, text="text"), context_frames=3)
    assert [labelled.record(int(clip))["id"] for clip in data.splits[0].train["clip"]] == ["07.wav"]


def test_a_clip_without_a_text_is_used_whatever_its_length(labelled: TokenStore) -> None:
    (clip,) = (c for c in range(len(labelled)) if "text" not in conditions_of(labelled, c))
    spans = np.array([(clip, 0, int(labelled.frames[clip]))], SPAN)
    kept = whole_clips(labelled, Split(spans, spans[:0], spans[:0]), 1, "text")
    assert len(kept.train) == 1


def test_a_vector_that_is_gone_is_reported(labelled: TokenStore, tmp_path: Path) -> None:
    vocabulary = everything(labelled)
    clip = next(c for c in range(len(labelled)) if "03.wav" in labelled.record(c)["id"])
    file = Path(labelled.record(clip)["path"]).parent / "03.npy"
    kept = file.read_bytes()
    file.unlink()
    try:
        with pytest.raises(ValueError, match=r"clip 03.wav of .*03.npy"):
            ClipConditions([labelled], vocabulary).values(0, clip)
    finally:
        file.write_bytes(kept)
