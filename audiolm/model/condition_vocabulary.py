"""What a conditional model is conditioned on, by name, and these names as the tensors it reads.

Letters: B batch, L length of a text or a sequence, F numbers of a vector.
"""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from audiolm.files import nearest, short
from audiolm.model.conditioning import FIRST_CHARACTER, START, Conditioner

_SHOWN = 100  # names in a message


@dataclass(frozen=True)
class ConditionVocabulary:
    """The conditions of a model: which columns, what may stand in them, and how they are read.

    Args:
        labels: the names in each categorical column.
        text: the column of the text, or None.
        alphabet: the characters of the texts.
        max_text_len: of the longest text, in characters.
        vector: the column of the precomputed embedding, or None.
        vector_size: F.
        drop: probability with which conditions were dropped in training; 0: never.
        text_layers: blocks of the text's encoder.
        sequence: the column of the sequence of vectors, or None.
        sequence_size: F of these.
        max_sequence: vectors of the longest sequence.
        text_encoder: what makes the sequence of a text, such as "t5"; None where the column holds
            the vectors themselves.
    """

    labels: dict[str, list[str]]
    text: str | None = None
    alphabet: str = ""
    max_text_len: int = 0
    vector: str | None = None
    vector_size: int = 0
    drop: float = 0.1
    text_layers: int = 2
    sequence: str | None = None
    sequence_size: int = 0
    max_sequence: int = 0
    text_encoder: str | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> ConditionVocabulary:
        """That of a checkpoint.

        Raises:
            TypeError: for settings it does not know.
        """
        return cls(**settings)

    def settings(self) -> dict[str, Any]:
        """As plain data, for a checkpoint."""
        return dataclasses.asdict(self)

    def __post_init__(self) -> None:
        strings = [
            self.alphabet,
            *self.labels,
            *(n for names in self.labels.values() for n in names),
        ]
        named = (self.text, self.vector, self.sequence, self.text_encoder)
        optional = [name for name in named if name is not None]
        sizes = [self.max_text_len, self.vector_size, self.text_layers]
        sizes += [self.sequence_size, self.max_sequence]
        if not (
            all(isinstance(string, str) for string in strings + optional)
            and all(isinstance(size, int) and size >= 0 for size in sizes)
            and isinstance(self.drop, float | int)
        ):
            raise TypeError("conditions of unknown kinds")

    @cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        return {c: {name: i for i, name in enumerate(names)} for c, names in self.labels.items()}

    @cached_property
    def _characters(self) -> dict[str, int]:
        return {character: i for i, character in enumerate(self.alphabet)}

    @property
    def columns(self) -> list[str]:
        """All conditions, by name."""
        more = (self.text, self.vector, self.sequence)
        return [*self.labels, *(column for column in more if column)]

    def make_conditioner(self, embed_dim: int, num_heads: int, dropout: float) -> Conditioner:
        """The untrained part of the model that reads the tensors."""
        return Conditioner(
            embed_dim,
            [len(names) for names in self.labels.values()],
            self.vector_size,
            len(self.alphabet),
            self.max_text_len,
            self.text_layers,
            num_heads,
            dropout,
            self.sequence_size,
            self.max_sequence,
        )

    def encode(self, conditions: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """The conditions of B recordings, by column, as `conditioning` describes it.

        A vector is a list of numbers, also written as JSON; a sequence is one of vectors, a tensor
        or an array (L, F).

        Raises:
            ValueError: for columns, names and vectors that this model does not have, for a text
                that is empty or too long, and for what is missing where the model was trained
                without dropping.
        """
        for values in conditions:
            for column in values:
                if column not in self.columns:
                    near = nearest(column, self.columns)
                    raise ValueError(
                        f"conditioning.{column} is not a condition of this model{near}; it has "
                        f"{', '.join(self.columns)}"
                    )
            for column in self.columns:
                if values.get(column) is None and self.drop == 0:
                    raise ValueError(
                        f"conditioning.{column} is not given, and this model was trained without "
                        f"dropping conditions (conditioning.drop=0); pass conditioning.{column}=..."
                    )
        return stack_rows([self._row(values) for values in conditions])

    def encode_known(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """The row of a recording of a collection: what the model does not know is dropped.

        Not known are names that were not in training, texts of none of its characters or longer
        than any, and longer sequences. `stack_rows` makes a batch of rows.

        Raises:
            ValueError: for a vector of another size.
        """
        known = {
            column: values[column]
            for column in self.labels
            if values.get(column) in self._numbers[column]
        }
        if self.text:
            text = self.readable(str(values.get(self.text) or ""))
            if 0 < len(text) <= self.max_text_len:
                known[self.text] = text
        if self.vector and values.get(self.vector) is not None:
            known[self.vector] = values[self.vector]
        sequence = values.get(self.sequence) if self.sequence else None
        if self.sequence and sequence is not None and len(sequence) <= self.max_sequence:
            known[self.sequence] = sequence
        return self._row(known)

    def readable(self, text: str) -> str:
        """The text as the model reads it: without case, and without characters not in training."""
        known = "".join(c for c in plain_text(text) if c in self._characters)
        return " ".join(known.split())

    def unknown_characters(self, text: str) -> str:
        """Those of a text that were not in training, each once, in order."""
        plain = dict.fromkeys(plain_text(text))
        return "".join(c for c in plain if c not in self._characters)

    def _row(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        row = {}
        if self.labels:
            numbers = [
                0 if values.get(column) is None else 1 + self._number(column, values[column])
                for column in self.labels
            ]
            row["labels"] = torch.tensor(numbers)
        if self.text:
            value = values.get(self.text)
            row["text"] = torch.tensor([START, *([] if value is None else self._letters(value))])
        if self.vector:
            value = values.get(self.vector)
            row["vector"] = (
                torch.full((self.vector_size,), float("nan"))
                if value is None
                else vector_of(value, self.vector, self.vector_size)
            )
        if self.sequence:
            value = values.get(self.sequence)
            row["sequence"] = (
                torch.full((1, self.sequence_size), float("nan"))
                if value is None
                else sequence_of(value, self.sequence, self.sequence_size, self.max_sequence)
            )
        return row

    def _number(self, column: str, name: Any) -> int:
        number = self._numbers[column].get(str(name))
        if number is None:
            names = self.labels[column]
            near = nearest(str(name), names)
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            raise ValueError(
                f"conditioning.{column}={name} is not a {column} of this model{near}; choose "
                f"{', '.join(names[:_SHOWN])}{more}"
            )
        return number

    def _letters(self, text: Any) -> list[int]:
        letters = self.readable(str(text))
        if not letters:
            raise ValueError(
                f"conditioning.{self.text}={text!r} holds no character of the training texts; "
                f"give a text, or omit it"
            )
        if len(letters) > self.max_text_len:
            raise ValueError(
                f"conditioning.{self.text} has {len(letters)} characters, the longest text in "
                f"training had {self.max_text_len}; divide it"
            )
        return [FIRST_CHARACTER + self._characters[letter] for letter in letters]


def plain_text(text: str) -> str:
    """Without case, spaces at the ends, and with one space for several."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def vector_of(value: Any, column: str, size: int | None = None) -> Tensor:
    """The numbers (F,) float32 of a list, or of one written as JSON.

    Raises:
        ValueError: for what is not a list of finite numbers, or has not `size` of them.
    """
    try:
        numbers = json.loads(value) if isinstance(value, str) else value
        vector = torch.as_tensor(numbers, dtype=torch.float32)
    except (ValueError, TypeError, RuntimeError):
        vector = torch.empty(0)
    if vector.ndim != 1 or not len(vector) or not bool(torch.isfinite(vector).all()):
        raise ValueError(
            f"{column}={str(value)[:40]!r} is not a list of finite numbers; give [1, 2]"
        )
    if size is not None and len(vector) != size:
        raise ValueError(f"{column} has {len(vector)} numbers, this model wants {size}")
    return vector


def sequence_of(
    value: Any, column: str, size: int | None = None, most: int | None = None
) -> Tensor:
    """The vectors (L, F) float32 of an array, a tensor or lists.

    Raises:
        ValueError: for what is not finite vectors of `size` numbers, and for more than `most`.
    """
    try:
        sequence = torch.as_tensor(value, dtype=torch.float32)
    except (ValueError, TypeError, RuntimeError):
        sequence = torch.empty(0)
    if sequence.ndim != 2 or not sequence.numel() or not bool(torch.isfinite(sequence).all()):
        raise ValueError(
            f"{column}={short(str(value), 40)!r} is not a sequence of finite vectors; give numbers "
            f"of shape (vectors, {size or 'numbers'})"
        )
    if size is not None and sequence.shape[1] != size:
        raise ValueError(
            f"{column} has vectors of {sequence.shape[1]} numbers, this model wants {size}"
        )
    if most is not None and len(sequence) > most:
        raise ValueError(
            f"{column} has {len(sequence)} vectors, this model looks at {most} at most; shorten it"
        )
    return sequence


def stack_rows(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows as one batch; texts and sequences are padded to the longest."""
    return {
        name: torch.nn.utils.rnn.pad_sequence(
            [row[name] for row in rows],
            batch_first=True,
            padding_value=float("nan") if first.is_floating_point() else 0,
        )
        for name, first in rows[0].items()
    }
