"""metrics.csv in the run's folder: every logged number, on the disk as soon as it is known."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from audiolm.run_folder import RunFolder

Row = dict[str, str]


class MetricsCSV(Logger):
    """A row for each logging event: `step` (optimiser steps before it), then a column a metric.

    Rows are written one by one, so that a kill loses none. A resumed run continues in the same
    file: Lightning's CSVLogger deletes the file there, and holds back up to 100 rows.

    Call `start(trainer.global_step)` in `on_train_start`; else the first row does it.

    Args:
        run_dir: folder that gets metrics.csv.
    """

    def __init__(self, run_dir: str | Path) -> None:
        super().__init__()
        self.path = RunFolder(Path(run_dir)).metrics
        self._columns: list[str] | None = None  # None until the old file has been looked at
        self._last_step = 0

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @rank_zero_only
    def start(self, step: int) -> None:
        """Keep the rows of an earlier run before `step`, drop those that are to come again.

        Lightning logs what belongs to the n-th optimiser step, counted from 0, with step n. So a
        run that resumes from a checkpoint of global_step s logs s next, and keeps those below.

        Raises:
            ValueError: there is a metrics.csv that this class did not write.
        """
        columns, rows = self._read()
        self._columns = columns or ["step"]
        if columns:
            self._rewrite(row for row in rows if int(row["step"]) < step)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Tensor | float], step: int | None = None) -> None:
        if step is None:
            step = self._last_step
        self._last_step = step
        if self._columns is None:
            self.start(step)
        assert self._columns is not None
        row = {"step": str(step)} | {name: _format(value) for name, value in metrics.items()}
        new = [name for name in row if name not in self._columns]
        if new or not self.path.exists():
            rows = self._read()[1]
            self._columns += new
            self._rewrite([*rows, row])
        else:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                file.write(self._lines([row]))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the composed config is in the run's folder already."""

    def _read(self) -> tuple[list[str], list[Row]]:
        if not self.path.exists():
            return [], []
        text = self.path.read_text(encoding="utf-8")
        text = text[: text.rfind("\n") + 1]  # a last line without its end was cut by a kill
        reader = csv.DictReader(io.StringIO(text), restval="")
        columns, rows = list(reader.fieldnames or []), list(reader)
        if (columns and "step" not in columns) or not all(
            (row["step"] or "").isdigit() and None not in row for row in rows
        ):
            raise ValueError(
                f"{self.path} is not as train.py writes it (each row with its step): "
                f"move it away, or choose another folder for the run"
            )
        return columns, rows

    def _rewrite(self, rows: Iterable[Row]) -> None:
        assert self._columns is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.partial")
        header = {name: name for name in self._columns}
        partial.write_text(self._lines([header, *rows]), encoding="utf-8", newline="")
        os.replace(partial, self.path)

    def _lines(self, rows: Iterable[Row]) -> str:
        assert self._columns is not None
        text = io.StringIO()
        csv.DictWriter(text, self._columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()


def _format(value: Tensor | float) -> str:
    number = value.item() if isinstance(value, Tensor) else value
    return f"{number:.9g}" if isinstance(number, float) else str(number)  # float32 is exact in 9
