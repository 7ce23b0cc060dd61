"""What a user says that a model is conditioned on, as the tensors that the model reads.

Letters: B samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.synthesis.request import Conditions


def encode_conditions(
    rows: Sequence[Conditions], vocabulary: ConditionVocabulary | None
) -> tuple[dict[str, Tensor] | None, list[str]]:
    """The conditions of B samples as the model reads them, and notes for the user.

    None for an unconditional model.

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
    return vocabulary.encode([_with_vector(row, vocabulary.vector) for row in rows]), notes


def _with_vector(row: Conditions, column: str | None) -> dict[str, Any]:
    """The row with the numbers of a .npy file in place of its name."""
    vector = row.get(column or "")
    if column is None or not isinstance(vector, str) or not vector.endswith(".npy"):
        return dict(row)
    try:
        numbers = np.load(vector, allow_pickle=False).ravel().tolist()
    except EOFError as error:
        raise ValueError(f"{vector} is empty; give a .npy file of numbers") from error
    return {**row, column: numbers}
