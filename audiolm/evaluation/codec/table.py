"""A codec's evaluation as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audiolm.evaluation.codec.metrics import Row
from audiolm.evaluation.codec.upsampling_lines import Line, worst_line

SAME = 100.0  # dB of SI-SNR: what is above is rounding


def markdown(rows: Sequence[Row], books: Sequence[float], codebook_size: int) -> str:
    """The rows as a table for a model card, kind by kind; below, each codebook's perplexity."""
    lines = [
        "| sound | codec | kbit/s | SI-SNR | mel | STOI "
        "| R2 above 1 kHz | R2 1 to 3.6 kHz | word errors | digits |",
        "| --- | --- |" + " --- |" * 8,
    ]
    for kind in rows[0].kinds:
        for row in rows:
            measures = row.kinds[kind]
            cells = [
                kind,
                row.name,
                f"{row.kbps:.1f}" if row.kbps else "-",
                f"{measures.si_snr:.1f}" if measures.si_snr < SAME else "-",
                f"{measures.mel_distance:.1f}",
                _cell(measures.stoi, ".2f"),
                _cell(measures.shape_r2, ".2f"),
                _cell(measures.telephone_r2, ".2f"),
                _cell(measures.word_error_rate, ".1%"),
                _cell(measures.recognised, ".1%"),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "SI-SNR and mel distance in dB. Digits: recognised, of those in the originals."]
    if books:
        used = ", ".join(f"{book:.0f}" for book in books)
        lines.append(f"Perplexity of the codebooks, of {codebook_size}: {used}.")
    return "\n".join(lines)


def lines_markdown(
    name: str,
    lines: Mapping[str, Mapping[float, Line | None]],
    originals: Mapping[str, Mapping[float, Line | None]],
) -> str:
    """The lines that the codec of this name draws, beside what is measured in its input."""
    spacings = list(next(iter(lines.values())))
    heads = " | ".join(f"every {spacing:g} Hz" for spacing in spacings)
    table = [
        f"| {name}, worst line in dB | worst | {heads} | in the original |",
        "| --- | --- |" + " --- |" * len(spacings) + " --- |",
    ]
    for signal, found in lines.items():
        worst = worst_line(found)
        cells = [f"{worst.prominence:.1f} at {worst.frequency:g} Hz, {worst.level:.0f} dBFS"]
        cells += [
            _cell(None if line is None else line.prominence, ".1f") for line in found.values()
        ]
        cells += [f"{worst_line(originals[signal]).prominence:.1f}"]
        table.append(f"| {signal} | " + " | ".join(cells) + " |")
    return "\n".join(table)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
