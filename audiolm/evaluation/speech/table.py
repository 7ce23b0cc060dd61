"""The evaluation of spoken sentences as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audiolm.evaluation.speech.scores import Row
from audiolm.evaluation.speech.sentences import TRAINING, VALIDATION, Sentence


def table(rows: Mapping[str, Row], sentences: Mapping[str, Sequence[Sentence]]) -> str:
    """The rows as Markdown; the rates also as multiples of those of the reconstructions."""
    counts = {
        part: f"{len(chosen)} sentences, {sum(len(one.words) for one in chosen)} words"
        for part, chosen in sentences.items()
    }
    lines = [
        f"| language model | word error rate | training: {counts[TRAINING]} | of reconstructed "
        f"| validation: {counts[VALIDATION]} | of reconstructed | seconds | ended |",
        "| --- | --- |" + " --- |" * 6,
    ]
    every = sum(map(len, sentences.values()))
    for model, best in rows["reconstructed"].rates.items():
        for name, row in rows.items():
            rates = row.rates[model]
            lines.append(
                f"| {model} | {name} "
                f"| {_rate(rates.training)} | {_multiple(rates.training, best.training)} "
                f"| {_rate(rates.validation)} | {_multiple(rates.validation, best.validation)} "
                f"| {row.seconds:.0f} | {'' if row.ended is None else f'{row.ended} of {every}'} |"
            )
    return "\n".join(lines)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"


def _multiple(rate: float | None, of: float | None) -> str:
    return "-" if rate is None or not of else f"{rate / of:.2f}"
