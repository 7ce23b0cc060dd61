"""What a training writes down for its report when it starts and ends.

plan.json: what was planned (model, data, baselines), as it was said before the first step.
sessions.json: a list, one entry a start of the training: command, machine, versions, first and
last step. A session that was killed, or still runs, has no end.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from audiolm.files import replacing
from audiolm.machine import describe_commit, describe_machine
from audiolm.run_folder import RunFolder

MOST_FINDINGS = 3
"""Clips named for each rule that the check of the recordings found broken."""
PAIRS = 2
"""Recordings, each beside its codes decoded, that are copied from a store."""


def write_record(path: Path, record: Any) -> None:
    """Write plain data as JSON, in ASCII: names of files need not be valid Unicode."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="ascii")


@contextmanager
def recorded_session(
    run: RunFolder,
    command: Sequence[str],
    repository: Path,
    resumed_from: Path | None,
    progress: Callable[[], Mapping[str, Any]],
) -> Iterator[None]:
    """Write down that a training starts, and how it ends.

    Args:
        run: its folder.
        command: as it was typed, such as ["python", "scripts/train.py", "model=small"].
        repository: of the code.
        resumed_from: a checkpoint; None for a new run.
        progress: gives "step", the optimiser steps of the training so far, and "interrupted".
    """
    earlier = read_sessions(run)
    session: dict[str, Any] = {
        "started": _now(),
        "resumed_from": None if resumed_from is None else str(resumed_from),
        "command": list(command),
        "machine": describe_machine(),
        "code": describe_commit(repository),
        "ended": None,
    }
    write_record(run.sessions, [*earlier, session])
    began = time.perf_counter()
    error: str | None = None
    try:
        yield
    except BaseException as failure:
        error = " ".join(f"{type(failure).__name__}: {failure}".split())
        raise
    finally:
        seconds = time.perf_counter() - began
        session["ended"] = {"time": _now(), "seconds": seconds, "error": error, **progress()}
        write_record(run.sessions, [*earlier, session])


def read_sessions(run: RunFolder) -> list[dict[str, Any]]:
    """The sessions so far; none where the file is not there, or not as it was written."""
    try:
        sessions = json.loads(run.sessions.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return sessions if isinstance(sessions, list) else []


def summarise_check(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a check of recordings, with `MOST_FINDINGS` clips a rule."""
    shown: dict[str, list[Any]] = {}
    for finding in report["findings"]:
        of_rule = shown.setdefault(finding["rule"], [])
        if len(of_rule) < MOST_FINDINGS:
            of_rule.append({"path": finding["path"], "reason": finding["reason"]})
    return {name: report[name] for name in ("totals", "kept", "skipped", "rules")} | {
        "findings": shown
    }


def copy_listen(store: Path, run: RunFolder) -> None:
    """Copy a store's listening check, of `PAIRS` recordings, so that the run's folder has it."""
    source = store / "listen"
    try:
        checked = json.loads((source / "listen.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    names = [clip["name"] for clip in checked["clips"][:PAIRS]]
    for name in [f"{name}_{kind}.wav" for name in names for kind in ("original", "decoded")]:
        if (source / name).is_file():
            with replacing(run.listen / name) as temporary:
                shutil.copyfile(source / name, temporary)
    write_record(run.listen / "listen.json", checked)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
