"""What a user says that a model is conditioned on, as the tensors that the model reads.

Letters: B samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.run_folder import text_encoder_folders
from audiolm.synthesis.request import Conditions
from audiolm.text_encoder import TextEncoder


def encode_conditions(
    rows: Sequence[Conditions],
    vocabulary: ConditionVocabulary | None,
    text_encoder: TextEncoder | None = None,
) -> tuple[dict[str, Tensor] | None, list[str]]:
    """The conditions of B samples as the model reads them, and notes for the user.

    None for an unconditional model.

    Args:
        rows: by column, of each sample.
        vocabulary: the model's.
        text_encoder: of a model whose sequence of vectors is a text's.

    Raises:
        ValueError: for what the model does not know, and a .npy file that is none.
        OSError: a .npy file that cannot be read.
    """
    if vocabulary is None:
        given = next((column for row in rows for column in row), None)
        if given is not None:
            raise ValueError(
                f"{given}: this model was trained without conditions; omit it, or "
                f"train with conditioning=label or conditioning=text"
            )
        return None, []
    column = vocabulary.text or ""
    texts = [str(row[column]) for row in rows if column in row]
    unknown = vocabulary.unknown_characters("".join(texts))
    notes = [f"skipped in the text, as no text in training had them: {unknown}"] if unknown else []
    read = []
    for row in rows:
        row = _with_numbers(row, vocabulary.vector, flat=True)
        row = _with_numbers(row, vocabulary.sequence, flat=False)
        read.append(_with_states(row, vocabulary, text_encoder))
    return vocabulary.encode(read), notes


def load_text_encoder(
    vocabulary: ConditionVocabulary | None, checkpoint: Path
) -> TextEncoder | None:
    """What makes the sequence of vectors that the model reads of a text; None where none does.

    It lies where a local codec does.
    """
    if vocabulary is None or vocabulary.text_encoder is None:
        return None
    folders = text_encoder_folders(checkpoint)
    return TextEncoder(next((f for f in folders if f.is_dir()), folders[0]))


def _with_numbers(row: Conditions, column: str | None, flat: bool) -> dict[str, Any]:
    """The row with the numbers of a .npy file in place of its name."""
    name = row.get(column or "")
    if column is None or not isinstance(name, str) or not name.endswith(".npy"):
        return dict(row)
    try:
        numbers = np.load(name, allow_pickle=False)
    except EOFError as error:
        raise ValueError(f"{name} is empty; give a .npy file of numbers") from error
    return {**row, column: numbers.ravel().tolist() if flat else numbers}


def _with_states(
    row: dict[str, Any], vocabulary: ConditionVocabulary, text_encoder: TextEncoder | None
) -> dict[str, Any]:
    """The row with the encoder's states in place of the text that they are of."""
    column = vocabulary.sequence
    text = row.get(column or "")
    if column is None or not isinstance(text, str | int | float):
        return row
    if text_encoder is None:
        raise ValueError(
            f"conditioning.{column} of this model is a sequence of vectors; give a .npy file of "
            f"shape (vectors, {vocabulary.sequence_size})"
        )
    return {**row, column: text_encoder(str(text))}
