"""A run's files, read for its page; each may be missing, damaged, or of an older version.

Every number on a page is looked up here by file and place (a JSON pointer, RFC 6901), and carries
both, so that a page can be checked against the files.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml
from markupsafe import Markup

from audiolm.files import one_line
from audiolm.run_folder import RunFolder

PLAN, SESSIONS, METRICS = "plan.json", "sessions.json", "metrics.csv"
SCORES, EVALUATION, LISTEN = "scores.json", "evaluation.json", "listen/listen.json"
CONFIG, OVERRIDES = ".hydra/config.yaml", ".hydra/overrides.yaml"

WHY_MISSING = {
    PLAN: "the run was started before plan.json was written, or stopped before its first step",
    SESSIONS: "the run was started before sessions.json was written: no machine, no versions",
    METRICS: "no step was logged yet (trainer.log_every_n_steps)",
    EVALUATION: "scripts/evaluate.py has not been run on it",
    SCORES: "only runs on the demo set are scored, when they finish",
    LISTEN: "the token store has no listening check (prepare.num_checks=0, or an older store)",
    CONFIG: "the run's .hydra folder was not copied with it",
    OVERRIDES: "the run's .hydra folder was not copied with it",
}

NEEDED = {
    SCORES: ("samples", "ceiling"),
    EVALUATION: ("nats_per_code", "calibration"),
    LISTEN: ("clips", "verdict"),
}
"""What a file holds whatever version wrote it."""

_SAMPLE = re.compile(r"step_(\d+)_(?:sample_)?(\d+)\.wav")


@dataclass(frozen=True, order=True)
class SampleFile:
    """A clip that was written in training: after so many steps, the n-th of its set."""

    step: int
    number: int
    name: str
    """Relative to the run's folder."""


@dataclass
class RunFiles:
    """What there is of a run.

    Attributes:
        run: its folder.
        prefix: in front of the names of files in the page, where there are several runs.
        missing: what is not there, and why, by the file's name.
    """

    run: RunFolder
    prefix: str = ""
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._contents: dict[str, Any] = {}
        self.plan: dict[str, Any] | None = self._mapping(PLAN)
        self.sessions: list[dict[str, Any]] = self._sessions()
        self.scores: dict[str, Any] | None = self._mapping(SCORES)
        self.evaluation: dict[str, Any] | None = self._mapping(EVALUATION)
        self.listen: dict[str, Any] | None = self._mapping(LISTEN)
        self.rows: list[dict[str, float]] = self._metrics()
        self.config: dict[str, Any] = self._yaml(CONFIG, dict) or {}
        self.overrides: list[str] = self._yaml(OVERRIDES, list) or []

    @property
    def name(self) -> str:
        """The folder, in one line."""
        return one_line(self.run.path)

    @cached_property
    def trains_a_codec(self) -> bool:
        return "codec_model" in self.config

    @property
    def loss(self) -> str:
        """The metric that the best checkpoint has the lowest value of, without its stage."""
        return "loss" if self.trains_a_codec else "nats_per_code"

    def best_row(self) -> int | None:
        """Index of the row with the lowest validation loss."""
        name = f"valid/{self.loss}"
        found = [(row[name], i) for i, row in enumerate(self.rows) if name in row]
        return min(found)[1] if found else None

    def samples(self) -> list[SampleFile]:
        """Clips written in training, by step."""
        folder = self.run.reconstructions if self.trains_a_codec else self.run.samples
        found = []
        for path in sorted(folder.glob("step_*.wav")):
            if match := _SAMPLE.fullmatch(path.name):
                name = path.relative_to(self.run.path).as_posix()
                found.append(SampleFile(int(match[1]), int(match[2]), name))
        return sorted(found)

    def curve(self, name: str) -> tuple[list[float], list[float]]:
        """Steps, and the metric's values at them."""
        points = [(row["step"], row[name]) for row in self.rows if "step" in row and name in row]
        return [step for step, _ in points], [value for _, value in points]

    def look_up(self, file: str, *place: str | int) -> Any:
        """The value at a place in a file; None where there is none."""
        value: Any = self._contents.get(file)
        for part in place:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def number(
        self, file: str, *place: str | int, style: str = ",.3f", scale: float = 1.0
    ) -> Markup:
        """A number of a file as it is shown, divided by `scale`; "none" where there is none."""
        value = self.look_up(file, *place)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return Markup('<span class="none">none</span>')
        if not math.isfinite(value):
            return Markup('<span class="none">{}</span>').format(value)
        # A whole number is shown whole: a step, a count.
        style = ",d" if isinstance(value, int) and scale == 1 else style
        shown = format(value / scale if scale != 1 else value, style)
        source = self._source(file, place)
        scaled = Markup(' data-scale="{}"').format(scale) if scale != 1 else ""
        return Markup('<data value="{}" data-source="{}"{}>{}</data>').format(
            repr(value), source, scaled, shown
        )

    def text(self, file: str, *place: str | int) -> Markup:
        """A value of a file as text, as it stands there."""
        value = self.look_up(file, *place)
        shown = as_text(value)
        source = self._source(file, place)
        return Markup('<span data-source="{}">{}</span>').format(source, shown)

    def holds(self, file: str, value: Any) -> None:
        """Remember what a file holds that is not read as a whole, such as a clip's length."""
        self._contents[file] = value

    def _source(self, file: str, place: Sequence[str | int]) -> str:
        parts = (str(part).replace("~", "~0").replace("/", "~1") for part in place)
        return one_line(self.prefix + file) + "#" + "".join(f"/{part}" for part in parts)

    def _json(self, name: str) -> Any:
        text = self._read(name)
        if text is None:
            return None
        try:
            self._contents[name] = json.loads(text)
        except ValueError as error:
            self.missing[name] = f"it is not valid JSON ({error})"
        return self._contents.get(name)

    def _sessions(self) -> list[dict[str, Any]]:
        found = self._json(SESSIONS)
        if isinstance(found, list) and all(isinstance(session, dict) for session in found):
            return found
        self._disown(SESSIONS)
        return []

    def _mapping(self, name: str) -> dict[str, Any] | None:
        found = self._json(name)
        if isinstance(found, dict) and all(key in found for key in NEEDED.get(name, ())):
            return found
        self._disown(name)
        return None

    def _disown(self, name: str) -> None:
        """Nothing is looked up in a file that is not as it was written."""
        self._contents.pop(name, None)
        self.missing.setdefault(name, "it is not as the scripts write it")

    def _yaml(self, name: str, kind: type) -> Any:
        text = self._read(name)
        try:
            found = yaml.safe_load(text) if text is not None else None
        except yaml.YAMLError as error:
            self.missing[name] = f"it is not valid YAML ({one_line(str(error))})"
            return None
        if isinstance(found, kind):
            self._contents[name] = found
            return found
        self._disown(name)
        return None

    def _read(self, name: str) -> str | None:
        try:
            return (self.run.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            self.missing[name] = WHY_MISSING[name]
        except (OSError, ValueError) as error:
            self.missing[name] = f"it cannot be read ({error})"
        return None

    def _metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv, without what is empty; a last one that was cut is omitted."""
        text = self._read(METRICS)
        if text is None:
            return []
        rows = []
        reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        if "step" not in (reader.fieldnames or ()):
            self._disown(METRICS)
            return []
        for cells in reader:
            row = {}
            for name, cell in cells.items():
                try:
                    row[name] = int(cell) if name == "step" else float(cell)
                except (TypeError, ValueError):
                    continue
            rows.append(row if "step" in row else {})
        self._contents[METRICS] = rows
        return rows


def as_text(value: Any) -> str:
    """Plain data as it is written in a setting."""
    if isinstance(value, str):
        return one_line(value)
    return one_line(json.dumps(value, ensure_ascii=False))


def flat_config(
    config: Mapping[str, Any], above: tuple[str, ...] = ()
) -> dict[tuple[str, ...], Any]:
    """Every setting of a config by its place: the keys from the outermost on."""
    flat: dict[tuple[str, ...], Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flat_config(value, (*above, str(key)))
        else:
            flat[(*above, str(key))] = value
    return flat
