"""Generate samples of a checkpoint on given conditions, each until it ends by itself.

B samples, K codebooks, N audio samples, T codec frames.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from audiolm.codec import EncodecCodec
from audiolm.files import replacing
from audiolm.generation.sampling import Sampling
from audiolm.model.checkpoint import TrainedModel
from audiolm.synthesis.sample import Sample
from audiolm.synthesis.synthesizer import Synthesizer

_BATCH = 50  # samples generated at once

_WINDOWS = 2
"""How many windows of the model a sample may take. One is too few where recordings are as long:
a sample that is to end there would count as one that never does."""


def load_conditioned(path: Path, columns: Sequence[str]) -> tuple[TrainedModel, EncodecCodec]:
    """The model of a checkpoint and its codec, which lies in the run's folder or in the package.

    Raises:
        ValueError, OSError: one of them cannot be loaded, the codec is not mono, or the model is
            not conditioned on one of `columns`.
    """
    synthesizer = Synthesizer.load(path, device="cpu")
    trained, codec = synthesizer.trained, synthesizer.codec
    known = [] if trained.vocabulary is None else trained.vocabulary.columns
    missing = [column for column in columns if column not in known]
    if missing:
        raise ValueError(
            f"{path} is conditioned on {', '.join(known) or 'nothing'}, but {', '.join(missing)} "
            "is needed to evaluate it; train with it as a condition"
        )
    if codec.channels != 1:
        raise ValueError(f"{path}: its codec has {codec.channels} channels; only mono is evaluated")
    return trained, codec


def generate_samples(
    trained: TrainedModel,
    codec: EncodecCodec,
    conditions: Sequence[Mapping[str, Any]],
    sampling: Sampling,
    seed: int = 0,
    best_of: int = 1,
) -> list[Sample]:
    """A sample of each of `conditions`, of at most `_WINDOWS`; the i-th from `seed` + i.

    Of several, as `generate.py best_of` generates them, the one that the model finds the most
    probable.

    Raises:
        ValueError: the model does not know a condition, or the settings do not go together.
    """
    assert trained.vocabulary is not None  # as `load_conditioned` makes sure
    wanted = [one for one in conditions for _ in range(best_of)]
    job = Synthesizer(trained, codec).job(
        range(seed, seed + len(wanted)),
        _WINDOWS * trained.context_frames,
        sampling=sampling,
        conditions=trained.vocabulary.encode(wanted),
        best_of=best_of,
        batch_size=_BATCH,
    )
    return job.samples(score=False)


def write_evaluation(
    out: Path,
    checkpoint: Path,
    trained: TrainedModel,
    codec: EncodecCodec,
    rows: Mapping[str, Any],
    table: str,
    *,
    samplings: Mapping[str, Sampling],
    seed: int,
    best_of: int,
    **more: Any,
) -> None:
    """Print the table; write evaluation.json in `out`: what was evaluated, how, and the rows."""
    print(f"{checkpoint}, step {trained.step}, K = {codec.num_codebooks}\n")
    print(table)
    result = {
        "checkpoint": str(checkpoint),
        "step": trained.step,
        "codec": codec.identity(),
        "seed": seed,
        **more,
        "best_of": best_of,
        "sampling": {name: asdict(one) for name, one in samplings.items()},
        "rows": {name: asdict(row) for name, row in rows.items()},
    }
    with replacing(out / "evaluation.json") as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {out}")
