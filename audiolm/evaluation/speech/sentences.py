"""The sentences of the stores that a model was trained on.

N audio samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from audiolm.audio import read_audio
from audiolm.batches.conditions import conditions_of
from audiolm.batches.splits import split_clips
from audiolm.evaluation.speech.recogniser import spoken_words
from audiolm.files import hash64
from audiolm.model.checkpoint import TrainedModel, read_checkpoint
from audiolm.tokens import TokenStore

FEWEST_WORDS = 3
"""Of a sentence: a language model of English is no help with single words out of the blue."""

TRAINING, VALIDATION = "training", "validation"
"""The parts of a store that sentences are taken from."""


class Sentence(NamedTuple):
    """A clip of a store, and what is said in it."""

    store: TokenStore
    clip: int
    id: str
    conditions: dict[str, str]
    words: list[str]


def find_stores(checkpoint: Path, given: Sequence[Path] | None) -> tuple[list[TokenStore], float]:
    """The stores that the run of a checkpoint was trained on, and the share of validation clips.

    Args:
        given: where they are now; None where they were then.

    Raises:
        ValueError, OSError: the checkpoint names none, or they are not there.
    """
    data = read_checkpoint(checkpoint)["hyper_parameters"].get("data") or {}
    paths = given or [Path(path) for path in data.get("stores", {})]
    if not paths or "valid_fraction" not in data:
        raise ValueError(f"{checkpoint} does not name the codes that it was trained on")
    if not all((path / "store.json").is_file() for path in paths):
        where = ", ".join(map(str, paths))
        raise ValueError(f"no token stores in {where}; say where they are now: --store DIR")
    return [TokenStore(path) for path in paths], data["valid_fraction"]


def texts_of(stores: Iterable[TokenStore], column: str) -> list[list[str]]:
    """The words of every clip that has some."""
    texts = (
        spoken_words(conditions_of(store, clip).get(column, ""))
        for store in stores
        for clip in range(len(store))
    )
    return [words for words in texts if words]


def find_sentences(
    stores: Iterable[TokenStore], trained: TrainedModel, valid_fraction: float
) -> dict[str, list[Sentence]]:
    """The sentences that fit into the model's window, of both parts, in a fixed order.

    A text counts once, and as one of the validation part only where no training clip says the same.
    """
    assert trained.vocabulary is not None and trained.vocabulary.text is not None
    longest = trained.vocabulary.max_text_len
    found: dict[str, list[Sentence]] = {TRAINING: [], VALIDATION: []}
    trained_on: set[tuple[str, ...]] = set()
    for store in stores:
        split = split_clips(store, valid_fraction)
        for part, spans in ((TRAINING, split.train), (VALIDATION, split.valid)):
            for clip in np.unique(spans["clip"]).tolist():
                conditions = conditions_of(store, clip)
                text = conditions.get(trained.vocabulary.text, "")
                words = spoken_words(text)
                if part == TRAINING:
                    trained_on.add(tuple(words))
                if (
                    len(words) >= FEWEST_WORDS
                    and int(store.frames[clip]) < trained.context_frames
                    and len(trained.vocabulary.readable(text)) <= longest
                ):
                    known = {
                        c: conditions[c] for c in trained.vocabulary.columns if c in conditions
                    }
                    name = store.record(clip)["id"]
                    found[part].append(Sentence(store, clip, name, known, words))
    return {
        TRAINING: _once(found[TRAINING], set()),
        VALIDATION: _once(found[VALIDATION], trained_on),
    }


def _once(sentences: Sequence[Sentence], said: set[tuple[str, ...]]) -> list[Sentence]:
    """Those that say what is not yet `said`, in the order of a hash that splits do not use.

    The words of the hash fix which sentences are taken; results compare only with the same ones."""
    said = set(said)
    new = []
    for sentence in sorted(sentences, key=lambda one: hash64(f"judge {one.id}")):
        if tuple(sentence.words) not in said:
            said.add(tuple(sentence.words))
            new.append(sentence)
    return new


def recording_of(sentence: Sentence, sample_rate: int) -> Tensor:
    """The clip as it was recorded: (1, N).

    Raises:
        OSError, AudioError: the file is not there any more, or cannot be read.
    """
    record = sentence.store.record(sentence.clip)
    length = None if record["end"] is None else record["end"] - record["start"]
    return read_audio(
        record["path"], sample_rate, channels=1, start=record["start"], duration=length
    )[0]
