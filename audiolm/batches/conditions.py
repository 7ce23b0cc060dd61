"""The conditions of the clips of a store: what its columns say, and that as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from audiolm.batches.splits import Split, split_clips
from audiolm.model.condition_vocabulary import (
    ConditionVocabulary,
    plain_text,
    sequence_of,
    stack_rows,
    vector_of,
)
from audiolm.text_encoder import TextEncoder
from audiolm.tokens import Mix, TokenStore

MAX_TEXT = 2000
"""Characters of a text, by default: two minutes of speech."""


def check_conditioning(
    labels: Sequence[str] = (),
    text: str | None = None,
    vector: str | None = None,
    drop: float = 0.1,
    text_layers: int = 2,
    max_text: int = MAX_TEXT,
    sequence: str | None = None,
) -> list[str]:
    """The columns that a model is conditioned on; arguments as of `read_vocabulary`.

    Raises:
        ValueError: for names that are none, a column that is named twice, and numbers out of range.
    """
    columns = [*labels, *(column for column in (text, vector, sequence) if column)]
    if not columns:
        return []
    if text and sequence:
        raise ValueError(
            f"conditioning.text={text} and conditioning.sequence={sequence}: a model looks at one "
            f"of the two; leave out the other"
        )
    if isinstance(labels, str) or not all(isinstance(column, str) for column in columns):
        raise ValueError(
            f"conditioning names columns: labels={labels} must be a list of names, text={text}, "
            f"vector={vector} and sequence={sequence} one name each, or null"
        )
    if len(set(columns)) < len(columns):
        raise ValueError(f"conditioning names a column twice: {', '.join(columns)}")
    if not 0 <= drop < 1:
        raise ValueError(f"conditioning.drop={drop} must be from 0 to below 1")
    if text_layers < 0:
        raise ValueError(f"conditioning.text_layers={text_layers} must be 0 or more")
    if max_text < 1:
        raise ValueError(f"conditioning.max_text={max_text} must be at least 1 character")
    return columns


def read_vocabulary(
    mix: Mix,
    valid_fraction: float,
    context_frames: int,
    labels: Sequence[str] = (),
    text: str | None = None,
    vector: str | None = None,
    drop: float = 0.1,
    text_layers: int = 2,
    max_text: int = MAX_TEXT,
    sequence: str | None = None,
    text_encoder: str | None = None,
) -> ConditionVocabulary | None:
    """The names, characters and sizes of these columns in the clips trained on; None where no
    column is named.

    Args:
        mix: the stores.
        valid_fraction: share of the clips for validation, whose names do not count.
        context_frames: of a window; a clip with a text is used only where it fits into one.
        labels: categorical columns, such as "label" and "speaker".
        text: the column of the text.
        vector: the column of an embedding: a JSON list of numbers, or the path of a .npy file,
            relative to the folder of the recording.
        drop, text_layers: see `ConditionVocabulary`.
        max_text: characters of a text; clips with a longer one are not used. Memory grows with the
            square of the longest.
        sequence: the column of a sequence of embeddings: a .npy file (vectors, numbers), whose
            path is relative to the folder of the recording.
        text_encoder: what makes the sequence of a text, which then is in the column; its sizes are
            not known here.

    Raises:
        ValueError: as `check_conditioning`, and for a column that no clip has.
    """
    columns = check_conditioning(labels, text, vector, drop, text_layers, max_text, sequence)
    if not columns:
        return None
    measured = None if text_encoder else sequence
    found = _Found({column: set() for column in labels}, text, vector, measured)
    for store in mix.stores:
        split = split_clips(store, valid_fraction)
        if text:
            split = whole_clips(store, split, context_frames, text)
            split = without_long_texts(store, split, text, max_text)
        for clip in np.unique(split.train["clip"]).tolist():
            found.add(store, clip)
        for clip in np.unique(split.valid["clip"]).tolist() if text else ():
            found.longest = max(found.longest, _text_length(store, clip, text))
        for clip in np.unique(split.valid["clip"]).tolist() if measured else ():
            found.measure_sequence(store, clip, conditions_of(store, clip))
    if not found.columns and text:
        raise ValueError(
            f"no clip is as short as context={context_frames / mix.frame_rate:g} s with a text of "
            f"at most conditioning.max_text={max_text} characters, and a text is that of a whole "
            f"clip; raise context, or cut the recordings"
        )
    check_columns(columns, found.columns, mix)
    return ConditionVocabulary(
        {column: sorted(names) for column, names in found.names.items()},
        text,
        "".join(sorted(found.characters)),
        found.longest,
        vector,
        found.vector_size,
        drop,
        text_layers,
        sequence,
        found.sequence_size,
        found.longest_sequence,
        text_encoder if sequence else None,
    )


@dataclass
class _Found:
    """What the clips say in some columns."""

    names: dict[str, set[str]]
    text: str | None
    vector: str | None
    sequence: str | None
    characters: set[str] = field(default_factory=set)
    longest: int = 0  # characters; also of validation texts
    vector_size: int = 0
    sequence_size: int = 0
    longest_sequence: int = 0  # vectors; also of validation clips
    columns: set[str] = field(default_factory=set)

    def add(self, store: TokenStore, clip: int) -> None:
        values = conditions_of(store, clip)
        self.columns |= values.keys()
        for column, names in self.names.items():
            if column in values:
                names.add(values[column])
        if self.text and self.text in values:
            plain = plain_text(values[self.text])
            self.characters |= set(plain)
            self.longest = max(self.longest, len(plain))
        if self.vector and self.vector in values:
            # Every one is read now: one of another size would end the training later.
            value = values[self.vector]
            numbers = read_vector(store, clip, value, self.vector, self.vector_size or None)
            self.vector_size = len(numbers)
        self.measure_sequence(store, clip, values)

    def measure_sequence(self, store: TokenStore, clip: int, values: dict[str, str]) -> None:
        """Its numbers and its length; of another size it would end the training later."""
        if self.sequence and self.sequence in values:
            value, size = values[self.sequence], self.sequence_size or None
            vectors = read_sequence(store, clip, value, self.sequence, size)
            self.sequence_size = vectors.shape[1]
            self.longest_sequence = max(self.longest_sequence, len(vectors))


def _text_length(store: TokenStore, clip: int, text: str | None) -> int:
    return len(plain_text(conditions_of(store, clip).get(text or "", "")))


def check_columns(columns: Sequence[str], present: set[str], mix: Mix) -> None:
    """Raise ValueError for a column of which no clip says anything; `present` are those that do."""
    for column in columns:
        if column not in present:
            raise ValueError(
                f"no clip has the condition {column} in "
                f"{', '.join(str(store.path) for store in mix.stores)}; there are: "
                f"{', '.join(sorted(present)) or 'none'}"
            )


def whole_clips(store: TokenStore, split: Split, frames: int, text: str) -> Split:
    """A split without clips longer than so many frames that have a text, which no window has."""

    def fits(part: NDArray[Any]) -> NDArray[np.bool_]:
        fit = part["frames"] <= frames
        for index in np.flatnonzero(~fit).tolist():
            fit[index] = text not in conditions_of(store, int(part["clip"][index]))
        return fit

    return Split(*(part[fits(part)] for part in split))


def without_long_texts(store: TokenStore, split: Split, text: str, longest: int) -> Split:
    """A split without clips whose text has more than so many characters, as the model reads it."""

    def fits(part: NDArray[Any]) -> NDArray[np.bool_]:
        lengths = (_text_length(store, clip, text) for clip in part["clip"].tolist())
        return np.fromiter((length <= longest for length in lengths), np.bool_, len(part))

    return Split(*(part[fits(part)] for part in split))


_MAX_ROWS = 50_000


class ClipConditions:
    """The conditions of windows, for `WindowReader`. Picklable.

    stores: that the windows' `store` counts in. vocabulary: what the model is conditioned on.
    text_encoder: of a model whose sequence of vectors is a text's.
    """

    def __init__(
        self,
        stores: Sequence[TokenStore],
        vocabulary: ConditionVocabulary,
        text_encoder: TextEncoder | None = None,
    ) -> None:
        if vocabulary.text_encoder is not None and text_encoder is None:
            raise ValueError(
                f"the model reads {vocabulary.sequence} by a text encoder, "
                f"{vocabulary.text_encoder}, and there is none; put its folder text_encoder beside "
                f"the model"
            )
        self.stores = list(stores)
        self.vocabulary = vocabulary
        self.text_encoder = text_encoder
        # Small collections are gone through often, and parsing a record costs more than reading it.
        self._rows: dict[tuple[int, int], dict[str, Tensor]] = {}

    def __call__(self, windows: NDArray[Any]) -> dict[str, Tensor]:
        """Conditions of a `WINDOW` array, a row each.

        Raises:
            ValueError: for a vector that cannot be read, naming the clip.
        """
        return stack_rows(
            [self._row(int(store), int(clip)) for store, clip in windows[["store", "clip"]]]
        )

    def _row(self, store: int, clip: int) -> dict[str, Tensor]:
        row = self._rows.get((store, clip))
        if row is None:
            if len(self._rows) >= _MAX_ROWS:
                self._rows.clear()
            row = self._rows[store, clip] = self.encode(self.values(store, clip))
        return row

    def encode(self, values: dict[str, Any]) -> dict[str, Tensor]:
        """The row of what `values` gives: as `ConditionVocabulary.encode_known`, texts read too."""
        text = values.get(self.vocabulary.sequence or "")
        if self.text_encoder is not None and text is not None:
            values = {**values, str(self.vocabulary.sequence): self.text_encoder(text)}
        return self.vocabulary.encode_known(values)

    def values(self, store: int, clip: int) -> dict[str, Any]:
        """What a clip's record says in the columns of the vocabulary; of a file its numbers."""
        everything = conditions_of(self.stores[store], clip)
        values: dict[str, Any] = {
            c: everything[c] for c in self.vocabulary.columns if c in everything
        }
        column = self.vocabulary.vector
        if column and column in values:
            values[column] = read_vector(
                self.stores[store], clip, values[column], column, self.vocabulary.vector_size
            )
        column = self.vocabulary.sequence
        if column and column in values and self.text_encoder is None:
            values[column] = read_sequence(
                self.stores[store], clip, values[column], column, self.vocabulary.sequence_size
            )
        return values


def conditions_record(values: Mapping[str, Any]) -> dict[str, str]:
    """A clip's conditions as a page shows them: of a vector how many numbers it has."""
    return {
        column: value if isinstance(value, str) else f"{len(value)} numbers"
        for column, value in values.items()
    }


def conditions_of(store: TokenStore, clip: int) -> dict[str, str]:
    """All columns of a clip's record, its label and text among them, but for empty ones."""
    return dict(_columns(store.record(clip)))


def _columns(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    own = {name: record.get(name) for name in ("label", "text")}
    for name, value in {**own, **record.get("columns", {})}.items():
        if value is not None and str(value).strip():
            yield name, str(value)


def read_vector(
    store: TokenStore, clip: int, value: str, column: str, size: int | None = None
) -> list[float]:
    """The numbers of an embedding: of a JSON list, or of a .npy file beside the recording.

    Raises:
        ValueError: for what is neither, or has not `size` numbers, naming the clip.
    """
    record = store.record(clip)
    try:
        if value.endswith(".npy"):
            file = Path(record["path"]).parent / value
            numbers = np.load(file, allow_pickle=False)
            return vector_of(numbers.ravel().tolist(), column, size).tolist()
        return vector_of(value, column, size).tolist()
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"clip {record['id']} of {store.path}: {error}") from error


def read_sequence(
    store: TokenStore, clip: int, value: str, column: str, size: int | None = None
) -> Tensor:
    """The vectors (L, F) of a .npy file beside the recording.

    Raises:
        ValueError: for what is none, or has not `size` numbers a vector, naming the clip.
    """
    record = store.record(clip)
    try:
        if not value.endswith(".npy"):
            raise ValueError(f"{column}={value[:40]!r} is not the path of a .npy file")
        vectors = np.load(Path(record["path"]).parent / value, allow_pickle=False)
        return sequence_of(vectors, column, size)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"clip {record['id']} of {store.path}: {error}") from error
