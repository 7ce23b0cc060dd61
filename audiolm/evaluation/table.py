"""The metrics of an evaluation as a table to print.

Metrics are plain data, by name, as scripts/evaluate.py writes them to evaluation.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

NATS = ("model", "without_conditions", "bigram", "unigram", "uniform", "calibration_error")
KINDS = ("generated", "validation", "training")


def evaluation_table(metrics: Mapping[str, Any]) -> str:
    """All that was measured, a line each."""
    parts = [_likelihood(metrics)]
    if "clips" in metrics:
        parts.append(_clips(metrics["clips"], metrics.get("memorisation", {})))
    if "published" in metrics:
        parts.append(_published(metrics["published"]))
    return "\n".join(line for part in parts for line in part)


def _likelihood(metrics: Mapping[str, Any]) -> Iterator[str]:
    rows = metrics["nats_per_code"]
    columns = [name for name in NATS if name in rows[0]]
    yield (
        f"{metrics['validation_codes']:,} validation codes, {metrics['validation_seconds']:.1f} s, "
        f"of {', '.join(metrics['stores'])}; nats per code, less is better"
    )
    labels = [_label(name) for name in columns]
    yield _row("codebook", labels, 10)
    for row in rows:
        cells = [f"{row[n]:>{len(label)}.4f}" for n, label in zip(columns, labels, strict=True)]
        yield _row(row["codebook"], cells, 10)
    model, codec = metrics["bits_per_second"], metrics["codec_bits_per_second"]
    others = ", ".join(
        f"{name} {rate:.0f}" for name, rate in metrics["baselines_bits_per_second"].items()
    )
    yield f"bits per second of audio: model {model:.0f}; baselines: {others}; codec {codec:.0f}"
    yield f"  the model would store this audio in {model / codec:.1%} of the codec's bits"
    if "conditions_bits_per_second" in metrics:
        yield f"  conditioning saves {metrics['conditions_bits_per_second']:.1f} bits per second"


def _clips(clips: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[str]:
    number = clips["num_clips"]
    most = clips["most_seconds"]
    yield (
        f"{number['generated']} samples of at most {most:.4g} s, beside clips of validation "
        f"({number['validation']}) and of training ({clips['training_sets']} x "
        f"{number['training']}) after the codec"
    )
    yield _row("", [_label(kind) for kind in KINDS])
    for name, what in (("latents", "codec latents"), ("log_mel", "log mel")):
        distances = clips["frechet"][name]
        cells = [_number(distances[kind], ".3f") for kind in ("generated", "training")]
        cells.insert(1, "")
        sets = distances["training_sets"]
        spread = f"  ({min(sets):.3f} to {max(sets):.3f})" if len(sets) > 1 else ""
        yield _row(f"Fréchet distance to validation, {what}", cells) + spread
    yield _row("seconds, median", [f"{clips['seconds'][kind]['median']:.2f}" for kind in KINDS])
    yield _row(
        "seconds, quartiles",
        [
            f"{s['lower_quartile']:.2f}-{s['upper_quartile']:.2f}"
            for s in (clips["seconds"][kind] for kind in KINDS)
        ],
    )
    if clips["ended"] is not None:
        yield _row("ended by itself", [f"{clips['ended']:.0%}"])
    for name, what in (("silence", "silent"), ("loop", "loops")):
        rates = clips[name]
        yield _row(
            f"{what} for over {rates['limit']:.2f} s", [f"{rates[kind]:.0%}" for kind in KINDS]
        )
    for name, style in (("codes_used", ".0%"), ("perplexity", ".0f")):
        what = {"codes_used": "codes used", "perplexity": "perplexity of the codes"}[name]
        for k in range(len(clips[name]["generated"])):
            yield _row(
                f"{what}, codebook {k}", [format(clips[name][kind][k], style) for kind in KINDS]
            )
    for name, runs in shared.items():
        what = name.replace("_", " ")
        for label, take in (("median", np.median), ("longest", max)):
            cells = [f"{take([r['seconds'] for r in runs[kind]]):.2f}" for kind in KINDS[:2]]
            yield _row(f"shared with training, {what}, {label} s", cells)
        worst = max(runs["generated"], key=lambda run: float(run["seconds"]))
        if "clip" in worst:
            yield (
                f"  sample {runs['generated'].index(worst)} from {worst['at_seconds']:.2f} s on: "
                f"{worst['clip']} from {worst['clip_at_seconds']:.2f} s on"
            )


def _published(published: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for name, kinds in published.items():
        yield _row(name, [_number(kinds.get(kind), ".3f") for kind in KINDS])


def flat_numbers(metrics: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The metrics that are single numbers, by their path, for a tracker of experiments.

    Those of codebooks carry their number; lists of clips and of bins are omitted.
    """
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        path = f"{prefix}/{name}"
        if isinstance(value, Mapping):
            flat |= flat_numbers(value, path)
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, int | float):
            flat[path] = value
        elif name == "nats_per_code":
            for row in value:
                rest = {key: nats for key, nats in row.items() if key != "codebook"}
                flat |= flat_numbers(rest, f"{path}/{_codebook(row['codebook'])}")
        elif isinstance(value, Sequence) and all(isinstance(x, int | float) for x in value):
            flat |= {f"{path}/{_codebook(k)}": float(x) for k, x in enumerate(value)}
    return flat


def _codebook(name: Any) -> str:
    return f"k{name}" if isinstance(name, int) else str(name)


def _row(name: Any, cells: Iterable[str], width: int = 48) -> str:
    return f"  {name!s:<{width}}" + " ".join(f"{cell:>{max(11, len(cell))}}" for cell in cells)


def _label(name: str) -> str:
    return {"without_conditions": "unconditional", "calibration_error": "calibration"}.get(
        name, name.replace("_", "-")
    )


def _number(value: float | None, style: str) -> str:
    return "none" if value is None else format(value, style)
