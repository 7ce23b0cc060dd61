"""The weights of a model that exists, as the beginning of another run.

What has a row for each code, each name of a label, each character or each position is carried over
row by row, so that a model may begin to know more of them; everything else by its name.

Letters: K codebooks, V codes in a codebook, D model width.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audiolm.model.checkpoint import read_checkpoint, restore_model
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.conditioning import FIRST_CHARACTER
from audiolm.model.language_model import AudioLM

FREE = ("dropout", "attn_dropout", "kernel", "gradient_checkpointing", "end_token")
"""Settings of the model that a run may choose although it begins with another model's weights."""
SHOWN = 6  # names in a line


@dataclass(frozen=True)
class InitialModel:
    """A model to begin with.

    Attributes:
        path: of its checkpoint or its exported weights.
        named: as the user gave it, for messages.
        step: optimiser steps that it was trained for.
        settings: hyper-parameters of its checkpoint.
        weights: by the names of its state dict.
        vocabulary: what it is conditioned on.
    """

    path: Path
    named: str
    step: int
    settings: dict[str, Any]
    weights: dict[str, Tensor]
    vocabulary: ConditionVocabulary | None

    @property
    def fixed_settings(self) -> dict[str, Any]:
        """Settings of the model that its weights have."""
        return {k: v for k, v in self.settings["model"].items() if k not in FREE}

    def check_codec(self, codec: Mapping[str, Any]) -> None:
        """Refuse to go on from codes of another meaning.

        Raises:
            ValueError: naming both codecs.
        """
        own = self.settings["codec"]
        if own["fingerprint"] != codec["fingerprint"]:
            raise ValueError(
                f"init_from={self.named} models codes of {own['name']} ({own['fingerprint']}), "
                f"this run has {codec['name']} ({codec['fingerprint']}), whose codes mean other "
                f"sounds; omit codec"
            )
        if own["num_codebooks"] != codec["num_codebooks"]:
            raise ValueError(
                f"init_from={self.named} models {own['num_codebooks']} codebooks, this run has "
                f"{codec['num_codebooks']}; omit codec, or pass codec.num_codebooks="
                f"{own['num_codebooks']}"
            )

    def extended(self, vocabulary: ConditionVocabulary) -> ConditionVocabulary:
        """That of a new run's data, with the names and characters that this model knows besides.

        Raises:
            ValueError: for a vector, or a sequence of vectors, of another size.
        """
        own = self.vocabulary
        if own is None:
            return vocabulary
        if own.vector == vocabulary.vector and own.vector_size != vocabulary.vector_size:
            raise ValueError(
                f"init_from={self.named} reads {own.vector_size} numbers of {own.vector}, the data "
                f"have {vocabulary.vector_size}; make them with the same model"
            )
        has_text = own.text is not None and own.text == vocabulary.text
        size, longest = self._sequence_sizes(own, vocabulary)
        return dataclasses.replace(
            vocabulary,
            labels={c: _united(own.labels.get(c, []), n) for c, n in vocabulary.labels.items()},
            alphabet="".join(_united([*own.alphabet] if has_text else [], [*vocabulary.alphabet])),
            max_text_len=max(vocabulary.max_text_len, own.max_text_len if has_text else 0),
            text_layers=own.text_layers if has_text else vocabulary.text_layers,
            sequence_size=size,
            max_sequence=longest,
        )

    def _sequence_sizes(
        self, own: ConditionVocabulary, vocabulary: ConditionVocabulary
    ) -> tuple[int, int]:
        """Numbers of a vector and most vectors of a sequence, whatever its column's name."""
        if own.sequence is None or vocabulary.sequence is None:
            return vocabulary.sequence_size, vocabulary.max_sequence
        if own.text_encoder is not None and own.text_encoder == vocabulary.text_encoder:
            return own.sequence_size, own.max_sequence
        if own.sequence_size != vocabulary.sequence_size:
            raise ValueError(
                f"init_from={self.named} reads vectors of {own.sequence_size} numbers as "
                f"{own.sequence}, the data have {vocabulary.sequence_size}; make them with the "
                f"same model"
            )
        return own.sequence_size, max(own.max_sequence, vocabulary.max_sequence)

    @property
    def text_encoder(self) -> str | None:
        """What makes its sequence of vectors of a text; None where nothing does."""
        return None if self.vocabulary is None else self.vocabulary.text_encoder


def read_initial_model(path: Path, named: str) -> InitialModel:
    """The model of a checkpoint or of an exported folder.

    Args:
        path: as `run_folder.find_checkpoint` gives it.
        named: as the user gave it, for messages.

    Raises:
        FileNotFoundError, ValueError: as `load_checkpoint`.
    """
    contents = read_checkpoint(path)
    trained = restore_model(contents, path)
    return InitialModel(
        path,
        named,
        trained.step,
        contents["hyper_parameters"],
        trained.model.state_dict(),
        trained.vocabulary,
    )


def begin_with(
    model: AudioLM, vocabulary: ConditionVocabulary | None, initial: InitialModel
) -> list[str]:
    """Put the weights of another model into a new one; what was taken and what not, in lines.

    Args:
        model: that is to be trained, with the settings of `initial` but for those in `FREE`.
        vocabulary: of `model`.
        initial: the model to begin with.

    Raises:
        ValueError: naming a weight of another shape.
    """
    rows = _rows(model, vocabulary, initial)
    state = model.state_dict()  # what it holds is the model's own memory
    taken, new = 0, []
    for name, weight in state.items():
        old = initial.weights.get(name)
        if old is None:
            new.append(name)
            continue
        pairs = rows.get(name)
        if pairs is None:
            if old.shape != weight.shape:
                raise ValueError(
                    f"init_from={initial.named}: {name} is {tuple(old.shape)} there and "
                    f"{tuple(weight.shape)} in this run; omit what differs in model, pattern or "
                    f"context"
                )
            weight.copy_(old)
            taken += old.numel()
        else:
            to, of = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
            weight[to] = old[of]
            taken += len(to) * weight.shape[1]
    total = sum(weight.numel() for weight in state.values())
    left = [name for name in initial.weights if name not in state]
    return [
        f"  initial     {initial.named}, step {initial.step:,}: {taken:,} of {total:,} numbers "
        "taken",
        *_names("new", _parts(new)),
        *_names("left out", _parts(left)),
        *_described_rows(vocabulary, initial.vocabulary),
        *_described_end(model, initial),
    ]


def origin_of(initial: InitialModel) -> dict[str, Any]:
    """License and base model of what is trained from it."""
    origin = initial.settings.get("origin") or {}
    base = origin.get("base_model")
    if initial.named.startswith("hf://"):
        base = initial.named.removeprefix("hf://").partition("@")[0]
    return {"license": origin.get("license"), "base_model": base}


def _rows(
    model: AudioLM, vocabulary: ConditionVocabulary | None, initial: InitialModel
) -> dict[str, list[tuple[int, int]]]:
    """By the name of a weight with rows of its own: pairs of a row there and one of `initial`."""
    codebooks, size = model.num_codebooks, model.codebook_size
    end, old_end = model.end_token, bool(initial.settings["model"].get("end_token", False))
    both = range(size + (end and old_end))
    found = {
        "embedding.weight": [
            (k * (size + end + 1) + new, k * (size + old_end + 1) + old)
            for k in range(codebooks)
            for new, old in [*((i, i) for i in both), (size + end, size + old_end)]
        ],
        "heads.weight": [
            (k * (size + end) + i, k * (size + old_end) + i) for k in range(codebooks) for i in both
        ],
    }
    if "transformer.positions.table.weight" in initial.weights:
        old = len(initial.weights["transformer.positions.table.weight"])
        found["transformer.positions.table.weight"] = [
            (i, i) for i in range(min(old, model.max_seq_len))
        ]
    if vocabulary is None or initial.vocabulary is None:
        return found
    found["conditioner.labels.weight"] = _label_rows(vocabulary.labels, initial.vocabulary.labels)
    known = {c: i for i, c in enumerate(initial.vocabulary.alphabet)}
    found["conditioner.text.embedding.weight"] = [
        *((i, i) for i in range(FIRST_CHARACTER)),
        *(
            (FIRST_CHARACTER + i, FIRST_CHARACTER + known[character])
            for i, character in enumerate(vocabulary.alphabet)
            if character in known
        ),
    ]
    return found


def _label_rows(
    labels: Mapping[str, list[str]], old: Mapping[str, list[str]]
) -> list[tuple[int, int]]:
    """Of the table of labels: each column has a row for none, then one for each name."""
    firsts, begin = {}, 0
    for column, names in old.items():
        firsts[column] = begin
        begin += 1 + len(names)
    pairs, begin = [], 0
    for column, names in labels.items():
        if column in old:
            numbers = {name: i for i, name in enumerate(old[column])}
            pairs.append((begin, firsts[column]))
            pairs += [
                (begin + 1 + i, firsts[column] + 1 + numbers[name])
                for i, name in enumerate(names)
                if name in numbers
            ]
        begin += 1 + len(names)
    return pairs


def _united(known: list[str], names: list[str]) -> list[str]:
    there = set(known)
    return [*known, *(name for name in names if name not in there)]


def _described_rows(
    vocabulary: ConditionVocabulary | None, old: ConditionVocabulary | None
) -> list[str]:
    """What is new among the names and characters of columns that both models have."""
    if vocabulary is None or old is None:
        return []
    lines = []
    for column, names in vocabulary.labels.items():
        if column in old.labels:
            known = set(old.labels[column])
            lines += _names(f"new {column}", [name for name in names if name not in known])
    if vocabulary.text is not None and vocabulary.text == old.text:
        new = [character for character in vocabulary.alphabet if character not in old.alphabet]
        lines += _names("new characters", new)
    return lines


def _described_end(model: AudioLM, initial: InitialModel) -> list[str]:
    had = bool(initial.settings["model"].get("end_token", False))
    if had == model.end_token:
        return []
    return [f"              end token: {'new' if model.end_token else 'left out'}"]


def _parts(names: list[str]) -> list[str]:
    """The parts of the model that these weights are of, those of several blocks once."""
    return [*dict.fromkeys(re.sub(r"\d+", "*", name.rpartition(".")[0]) for name in names)]


def _names(what: str, names: list[str]) -> list[str]:
    """A line with the first names; none where there are none."""
    if not names:
        return []
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return [f"              {what}: {', '.join(map(repr, names[:SHOWN]))}{more}"]
