"""What a collection holds and what is wrong with it: a table to read and a JSON to work with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.datasets.checks.rules import FAULTS, Rules
from audiolm.datasets.clip import Clip, PassedOver, RowMatch, SkippedClip
from audiolm.files import atomic_file, counted, one_line
from audiolm.parallel import Part


@dataclass(frozen=True, slots=True)
class Finding:
    """A clip that breaks a rule. id: None for a row that its source could not use."""

    rule: str
    path: Path
    id: str | None
    reason: str
    action: str


@dataclass(frozen=True, slots=True)
class RuleCount:
    """What breaks one rule: how many clips, of how many hours, and which share of all hours.

    A clip that cannot be decoded counts as long as the others are on average.
    """

    action: str
    clips: int
    hours: float
    share: float


@dataclass(frozen=True, slots=True)
class Totals:
    """What is there, before any clip is skipped.

    clips: with the rows and files that give none. files: recordings; fewer than clips where several
    lie in one file, or where rows name no file. hours, formats, sample_rates,
    channels, durations: of the clips that can be decoded; the middle three count clips, the last
    has min, median, p95 and max in seconds and is empty where there is none.
    """

    clips: int
    files: int
    hours: float
    formats: Mapping[str, int]
    sample_rates: Mapping[int, int]
    channels: Mapping[int, int]
    durations: Mapping[str, float]


@dataclass(frozen=True)
class CheckReport:
    """What `check_clips` found.

    kept: sorted by id. audio: an `AUDIO` row for each. split_as: for each, the index in `kept` of
    the clip whose split it shares: its own, or that of the first of its exact duplicates where
    these are kept. skipped: each with its reason. findings: by rule, then by id. asides: what the
    source passed over, and of tables, how many rows name no file.
    """

    kept: list[Clip]
    audio: NDArray[Any]
    split_as: NDArray[np.int64]
    skipped: list[SkippedClip]
    findings: list[Finding]
    counts: Mapping[str, RuleCount]
    totals: Totals
    rules: Rules
    part: Part
    asides: Sequence[PassedOver | RowMatch] = ()

    @property
    def passed_over(self) -> list[PassedOver]:
        """What is no recording: by folder, or by suffix."""
        return [aside for aside in self.asides if isinstance(aside, PassedOver)]

    @property
    def durations(self) -> NDArray[np.float64]:
        """Seconds of each clip that is kept."""
        return np.asarray(self.audio["num_samples"] / self.audio["sample_rate"], np.float64)

    @property
    def hours(self) -> float:
        """Of the clips that are kept."""
        return float(self.durations.sum()) / 3600

    def enforce(self) -> None:
        """Raise ValueError where nothing is left, or a rule drops more than `rules.max_dropped`.

        A part of a collection is let through: it may be small, and only the whole can tell.
        """
        if self.part.count > 1:
            return
        for table in (aside for aside in self.asides if isinstance(aside, RowMatch)):
            if table.unmatched > self.rules.max_dropped * table.rows:
                raise ValueError(
                    f"{one_line(table.table)}: {table.unmatched:,} of {table.rows:,} rows name no "
                    f"file of its folder, such as {table.example}, more than "
                    f"rules.max_dropped={self.rules.max_dropped:g}; correct the names, or continue "
                    "without these rows with rules.max_dropped=1"
                )
        if not self.kept:
            remedy = self._remedy(self.skipped[0])
            raise ValueError(
                f"none of the {counted(self.totals.clips, 'clip')} can be encoded; the first, "
                f"{self.skipped[0]}{remedy}"
            )
        for name, count in self.counts.items():
            if count.action == "drop" and count.share > self.rules.max_dropped:
                first = next(f for f in self.findings if f.rule == name)
                override = "max_dropped=1" if name in FAULTS else f"{name}.action=report"
                raise ValueError(
                    f"the rule {name} would drop {count.share:.0%} of the hours "
                    f"({count.clips:,} of {counted(self.totals.clips, 'clip')}; the first, "
                    f"{_line(first)}), "
                    f"more than rules.max_dropped={self.rules.max_dropped:g}; "
                    + ("continue without them" if name in FAULTS else "keep them")
                    + f" with rules.{override}"
                )

    def _remedy(self, bad: SkippedClip) -> str:
        dropped = [f for f in self.findings if f.path == bad.path and f.action == "drop"]
        if any(f.rule in FAULTS for f in dropped):
            return ""
        return "; keep such files with " + " ".join(
            f"rules.{f.rule}.action=report" for f in dropped
        )

    def lines(self, max_paths: int = 3) -> list[str]:
        """The table, with at most so many paths a rule."""
        t = self.totals
        clips = counted(t.files, "file")
        if t.clips != t.files:
            clips = f"{counted(t.clips, 'clip')} or rows of {clips}"
        part = "" if self.part.count == 1 else f" ({self.part})"
        lines = [f"checked    {clips}, {t.hours:.4g} hours{part}"]
        if t.durations:
            d = t.durations
            lines += [
                f"formats    {_counted(t.formats)}",
                f"rates      {_counted(t.sample_rates, ' Hz')}",
                f"channels   {_counted(t.channels)}",
                f"durations  {_span(d['min'])} to {_span(d['max'])}, median {_span(d['median'])}, "
                f"95% up to {_span(d['p95'])}",
            ]
        lines.append(
            f"kept       {len(self.kept):,}, {self.hours:.4g} hours; skipped {len(self.skipped):,}"
        )
        broken = {name: count for name, count in self.counts.items() if count.clips}
        if broken:
            lines.append("rule          action    clips       hours  of all")
        for name, count in broken.items():
            lines.append(
                f"{name:<13} {count.action:<6} {count.clips:>8,} {count.hours:>11.4g} "
                f"{count.share:>7.1%}"
            )
            of_rule = [finding for finding in self.findings if finding.rule == name]
            lines += [f"  {_line(finding)}" for finding in of_rule[:max_paths]]
            if len(of_rule) > max_paths:
                lines.append(f"  and {len(of_rule) - max_paths:,} more")
        unbroken = [n for n, c in self.counts.items() if not c.clips and c.action != "off"]
        over = self.passed_over
        if over:
            files, folders = sum(aside.files for aside in over), sum(not a.files for a in over)
            amounts = [counted(n, noun) for n, noun in ((files, "file"), (folders, "folder")) if n]
            lines.append(f"not audio  {' and '.join(amounts)}, passed over")
            lines += [
                f"  {aside}" + (f" ({aside.files:,} files)" if aside.files > 1 else "")
                for aside in over[:max_paths]
            ]
            if len(over) > max_paths:
                lines.append(f"  and {len(over) - max_paths:,} more")
        off = [name for name, count in self.counts.items() if count.action == "off"]
        if unbroken and t.durations:  # else nothing was decoded
            lines.append(f"no clip breaks the rules {', '.join(unbroken)}")
        if off:
            lines.append(f"rules that are off: {', '.join(off)}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: totals, rules, and every clip that breaks one."""
        rules = {
            name: asdict(count) | {"threshold": self.rules[name].threshold}
            for name, count in self.counts.items()
        }
        totals = asdict(self.totals)
        for name in ("sample_rates", "channels"):  # the names in a JSON object are strings
            totals[name] = {str(value): n for value, n in totals[name].items()}
        return {
            "part": asdict(self.part),
            "totals": totals,
            "kept": {"clips": len(self.kept), "hours": self.hours},
            "skipped": len(self.skipped),
            "passed_over": [
                asdict(aside) | {"path": str(aside.path)} for aside in self.passed_over
            ],
            "max_dropped": self.rules.max_dropped,
            "rules": rules,
            "findings": [asdict(f) | {"path": str(f.path)} for f in self.findings],
        }

    def write(self, path: Path) -> None:
        """Write `as_dict` as JSON, in ASCII: names of files need not be valid Unicode."""
        with atomic_file(Path(path)) as file:
            file.write(json.dumps(self.as_dict(), indent=1).encode("ascii") + b"\n")


def _line(finding: Finding) -> str:
    return str(SkippedClip(finding.path, finding.reason))


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _counted(counts: Mapping[Any, int], unit: str = "", most: int = 6) -> str:
    """The commonest values with their counts, in one line."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{f'{v:,}' if unit else v}{unit} ({n:,})" for v, n in ordered[:most]]
    rest = len(ordered) - most
    return ", ".join(shown) + (f", and {rest} more" if rest > 0 else "")
