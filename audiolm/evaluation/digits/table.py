"""The evaluation of spoken digits as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audiolm.evaluation.digits.scores import DigitEvaluation


def table(rows: Mapping[str, DigitEvaluation], speakers: Sequence[str]) -> str:
    """The evaluation as Markdown: accuracies, durations, and by digit."""
    best = rows["reconstructed"].scores
    real = rows["real"]
    lines = [
        "| | digit | speaker | digit, of reconstructed | speaker, of reconstructed "
        "| seconds (quartiles) | median, of real | ended |",
        "| --- |" + " --- |" * 7,
    ]
    for name, row in rows.items():
        scores = row.scores
        count = sum(map(sum, scores.digits))
        lines.append(
            f"| {name} | {scores.digit_accuracy:.1%} | {scores.speaker_accuracy:.1%} "
            f"| {_ratio(scores.digit_accuracy, best.digit_accuracy)} "
            f"| {_ratio(scores.speaker_accuracy, best.speaker_accuracy)} "
            f"| {row.duration.median:.2f} ({row.duration.lower:.2f} to {row.duration.upper:.2f}) "
            f"| {_ratio(row.duration.median, real.duration.median)} "
            f"| {'' if row.ended is None else f'{row.ended} of {count}'} |"
        )
    lines += [
        "",
        "Right, and median seconds, by digit:",
        "",
        "| | " + " | ".join(map(str, range(10))) + " |",
        "| --- |" + " --- |" * 10,
    ]
    for name, row in rows.items():
        cells = (
            f"{counts[i] / max(1, sum(counts)):.0%}, {row.duration_by_digit[i].median:.2f}"
            for i, counts in enumerate(row.scores.digits)
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Taken for another (clips):", ""]
    for name, row in rows.items():
        names = [str(i) for i in range(10)]
        mistakes = _mistakes(row.scores.digits, names) + _mistakes(row.scores.speakers, speakers)
        lines.append(f"- {name}: {', '.join(mistakes) or 'none'}")
    return "\n".join(lines)


def _ratio(value: float, of: float) -> str:
    return f"{value / of:.1%}" if of else "-"


def _mistakes(counts: Sequence[Sequence[int]], names: Sequence[str]) -> list[str]:
    """The off-diagonal of a confusion as text, the most frequent first."""
    found = [
        (count, f"{names[i]} as {names[j]} ({count})")
        for i, row in enumerate(counts)
        for j, count in enumerate(row)
        if i != j and count
    ]
    return [text for _, text in sorted(found, key=lambda one: -one[0])]
