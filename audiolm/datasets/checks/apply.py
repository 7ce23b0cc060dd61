"""Rules applied to a whole collection: which clips stay, and exact duplicates among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audiolm.datasets.checks.measure import AUDIO, Fault
from audiolm.datasets.checks.report import CheckReport, Finding, RuleCount, Totals
from audiolm.datasets.checks.rules import FAULTS, ON_SOUND, Rules, mixed
from audiolm.datasets.clip import Clip, SkippedClip, is_recording
from audiolm.files import hash64
from audiolm.parallel import Part

_PROTECTED = {"test": 0, "valid": 1, "train": 2, None: 3}
"""Of exact duplicates, the one in the split that must not leak is kept."""


@dataclass
class Collection:
    """Clips, sorted by id, and what was measured of each.

    rows: `MEASURED`, one a clip. faults: of those that cannot be decoded, by index. formats: what
    `rows["format"]` counts in.
    """

    clips: list[Clip]
    rows: NDArray[Any]
    faults: dict[int, Fault]
    formats: list[str]


def seconds_of(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Durations of `MEASURED` rows, of clips that can be decoded."""
    return np.asarray(rows["num_samples"] / rows["sample_rate"], np.float64)


def apply_rules(
    collection: Collection,
    unusable: list[SkippedClip],
    rules: Rules,
    part: Part,
    known: NDArray[np.uint64] | None,
    channels: int = 1,
) -> CheckReport:
    """Apply the rules to what was measured. unusable: rows that the source could not use.

    part, known, channels: see `check_clips`.
    """
    clips, rows, faults = collection.clips, collection.rows, collection.faults
    nowhere = np.zeros(0, np.int64)
    judged = mixed(rows, channels)
    found = _Outcome(collection, unusable, rules)
    for name in FAULTS:
        of_rule = [i for i in sorted(faults) if faults[i].rule == name]
        if name != "source":
            found.add(name, np.array(of_rule, np.int64), [faults[i].reason for i in of_rule])
    for name in ON_SOUND:
        indices = nowhere
        if rules[name].action != "off":
            indices = np.flatnonzero(found.sound)
            indices = indices[rules.broken(name, judged[indices])]
        found.add(name, indices, (rules.reason(name, judged[i]) for i in indices))
    indices = nowhere
    if rules.text_missing.action != "off":
        sound = np.flatnonzero(found.sound).tolist()
        indices = np.array([i for i in sound if not (clips[i].text or "").strip()], np.int64)
    found.add("text_missing", indices, ["no text"] * len(indices))

    first = _first_of_duplicates(clips, rows, ~found.dropped, known)
    indices = np.flatnonzero(first != np.arange(len(clips)))
    if rules.duplicate.action == "off":
        indices = nowhere
    found.add(
        "duplicate",
        indices,
        (f"duplicate of {clips[first[i]].path} (same decoded audio)" for i in indices),
    )

    return _report(found, first, part)


def _report(found: _Outcome, first: NDArray[np.int64], part: Part) -> CheckReport:
    """first: of each clip, the first one with the same audio."""
    clips, rows = found.collection.clips, found.collection.rows
    kept = np.flatnonzero(~found.dropped)
    index = np.zeros(len(clips), np.int64)
    index[kept] = np.arange(len(kept))
    audio = np.zeros(len(kept), AUDIO)
    for name in AUDIO.names or ():
        audio[name] = rows[name][kept]
    return CheckReport(
        kept=[clips[i] for i in kept],
        audio=audio,
        split_as=index[first[kept]],
        skipped=[
            *found.unusable,
            *(SkippedClip(clips[i].path, found.reasons[i]) for i in sorted(found.reasons)),
        ],
        findings=found.findings,
        counts=found.counts,
        totals=_totals(found.collection, found.unusable, found),
        rules=found.rules,
        part=part,
    )


def _first_of_duplicates(
    clips: Sequence[Clip],
    rows: NDArray[Any],
    usable: NDArray[np.bool_],
    known: NDArray[np.uint64] | None,
) -> NDArray[np.int64]:
    """For each clip, the index of the one that stands for all of the same audio; its own if alone.

    See `check_clips` for which one that is.
    """
    first = np.arange(len(clips))
    indices = np.flatnonzero(usable)
    indices = indices[np.lexsort((rows["num_samples"][indices], rows["key"][indices]))]
    same = (np.diff(rows["key"][indices]) == 0) & (np.diff(rows["num_samples"][indices]) == 0)
    # Runs of the same audio, as [begin, end) in `indices`.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    stored = np.sort(np.zeros(0, np.uint64) if known is None else known)

    def rank(i: int) -> tuple[bool, int, int]:
        clip = clips[i]
        return not _holds(stored, hash64(clip.id)), _PROTECTED[clip.split], i

    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        group = indices[begin : end + 1]
        first[group] = min(group.tolist(), key=rank)
    return first


def _holds(ordered: NDArray[np.uint64], value: int) -> bool:
    index = int(np.searchsorted(ordered, np.uint64(value)))
    return index < len(ordered) and int(ordered[index]) == value


def _totals(collection: Collection, unusable: list[SkippedClip], found: _Outcome) -> Totals:
    rows = collection.rows[found.sound]
    seconds = seconds_of(rows)
    names = collection.formats
    numbers, counts = np.unique(rows["format"], return_counts=True)
    durations = {}
    if len(seconds):
        values = np.quantile(seconds, [0, 0.5, 0.95, 1])
        durations = dict(zip(("min", "median", "p95", "max"), values.tolist(), strict=True))
    paths = {clip.path for clip in collection.clips}
    paths |= {bad.path for bad in unusable if is_recording(bad.path)}
    return Totals(
        clips=len(collection.clips) + len(unusable),
        files=len(paths),
        hours=float(seconds.sum()) / 3600,
        formats={names[i]: int(n) for i, n in zip(numbers, counts, strict=True)},
        sample_rates=_commonest(rows["sample_rate"]),
        channels=_commonest(rows["channels"]),
        durations=durations,
    )


def _commonest(values: NDArray[Any]) -> dict[int, int]:
    return dict(Counter(values.tolist()).most_common())


class _Outcome:
    """What was found so far. sound: the clips that can be decoded; dropped: those skipped."""

    def __init__(self, collection: Collection, unusable: list[SkippedClip], rules: Rules) -> None:
        n = len(collection.clips)
        self.collection, self.unusable = collection, unusable
        self.clips, self.rows, self.rules = collection.clips, collection.rows, rules
        self.sound = np.ones(n, np.bool_)
        self.sound[list(collection.faults)] = False
        self.dropped = ~self.sound
        self.reasons: dict[int, str] = {}  # the first for which each is skipped
        self.findings: list[Finding] = []
        self.counts: dict[str, RuleCount] = {}
        known = seconds_of(self.rows[self.sound])
        self.mean = float(known.mean()) if len(known) else 0.0
        self.seconds = np.full(n, self.mean)
        self.seconds[self.sound] = known
        self.total = float(self.seconds.sum()) + self.mean * len(unusable)
        self._others = len(unusable)
        self.findings += [Finding("source", bad.path, None, bad.reason, "drop") for bad in unusable]
        if unusable:
            self._count("source", len(unusable), self.mean * len(unusable))

    def add(self, name: str, indices: NDArray[np.int64], reasons: Iterable[str]) -> None:
        """Clips that break a rule, by index, and why."""
        action = self.rules[name].action
        self._count(name, len(indices), float(self.seconds[indices].sum()))
        for i, reason in zip(indices.tolist(), reasons, strict=True):
            clip = self.clips[i]
            self.findings.append(Finding(name, clip.path, clip.id, reason, action))
            if action == "drop":
                self.reasons.setdefault(i, reason)
        if action == "drop":
            self.dropped[indices] = True

    def _count(self, name: str, clips: int, seconds: float) -> None:
        # Where no length is known, all count the same.
        everything = max(1, len(self.clips) + self._others)
        share = seconds / self.total if self.total else clips / everything
        self.counts[name] = RuleCount(self.rules[name].action, clips, seconds / 3600, share)
