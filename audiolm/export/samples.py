"""The samples of an exported model, and what they are conditioned on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from audiolm.export.settings import Export
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.synthesis.synthesizer import Synthesizer


class ExportedSample(NamedTuple):
    """A sample in the folder: its file without ending, its seed, what it is to say, its length."""

    name: str
    seed: int
    conditions: dict[str, str]
    seconds: float


def sample_conditions(
    vocabulary: ConditionVocabulary | None, first: Mapping[str, Any], count: int
) -> list[dict[str, str]]:
    """The conditions of each of so many samples: the names of a label in turn, all else the same.

    Args:
        vocabulary: of the model.
        first: conditions of the first sample; columns that the model does not have do not count.
        count: of the samples.
    """
    if vocabulary is None:
        return [{} for _ in range(count)]
    rows = []
    for i in range(count):
        row = {c: str(v) for c, v in first.items() if c in vocabulary.columns and v is not None}
        for column, names in vocabulary.labels.items():
            begin = names.index(row[column]) if row.get(column) in names else 0
            row[column] = names[(begin + i) % len(names)]
        rows.append(row)
    return rows


def save_samples(synthesizer: Synthesizer, export: Export, folder: Path) -> list[ExportedSample]:
    """Generate the samples and write each as a WAV with its spectrogram.

    Raises:
        As `Synthesizer.generate`.
    """
    rows = sample_conditions(synthesizer.trained.vocabulary, export.conditions, export.num_samples)
    samples = synthesizer.generate_batch(
        export.num_samples,
        duration=export.duration,
        seed=export.seed,
        sampling=export.sampling,
        conditions=rows if synthesizer.conditions else None,
    )
    saved = []
    for i, (sample, row) in enumerate(zip(samples, rows, strict=True)):
        name = f"sample_{i:03d}"
        sample.save_sound(folder / name)
        saved.append(ExportedSample(name, sample.seed, row, sample.duration))
    return saved
