"""Work in several processes: how workers are started, and which part of the work a process has."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

START_METHOD = "fork" if sys.platform == "linux" else "spawn"


def worker_settings(num_workers: int) -> dict[str, Any]:
    """Arguments of a `DataLoader` that is about to start so many processes.

    The method is said, and not left to the default: in the processes of Hydra's joblib launcher
    that is one of joblib's own, which starts none from there.

    What this process has thrown away is collected before it forks, and the rest never in the
    workers: among it may be FFmpeg's filters, whose end waits for threads that no fork has.
    """
    if not num_workers:
        return {"num_workers": 0}
    gc.collect()
    return {
        "num_workers": num_workers,
        "multiprocessing_context": START_METHOD,
        "worker_init_fn": begin_worker,
    }


def begin_worker(worker: int) -> None:
    """`worker_init_fn` of a `DataLoader`: the process ends with its parent, and frees none of it.

    Its collector never frees what was there at the fork. And torch's own end of a worker whose
    parent was killed waits for ever to hand on what it has read, which nobody takes.
    """
    gc.freeze()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.pid,), daemon=True).start()


def ignore_interrupts(worker: int) -> None:
    """`begin_worker` for a training: Ctrl-C reaches its workers too, and the step needs them."""
    begin_worker(worker)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_with(parent: int | None) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def as_a_workers_death(error: RuntimeError, kept: str) -> ChildProcessError:
    """What to raise for `error`, in one line; raises it again where no worker of a loader died.

    kept: what is not lost.
    """
    if not str(error).startswith("DataLoader worker (pid"):
        raise error
    reason = " ".join(str(error).split())
    return ChildProcessError(
        f"a process that was decoding died{kept}: {reason}; run again with fewer "
        "processes if memory ran out, and with none to see which file it is"
    )


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` of `count`, counted from 0 as `part` and `num_parts` on the command line.

    The only part of one is the whole.
    """

    number: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"part {self.number} of {self.count}"


def check_part(part: Part) -> None:
    """Raise ValueError for a part that is not one of its count."""
    if part.count < 1 or not 0 <= part.number < part.count:
        raise ValueError(
            f"part={part.number} num_parts={part.count}: "
            + (
                f"parts count from 0, give 0 to {part.count - 1}"
                if part.count > 0
                else "give at least 1 for num_parts"
            )
        )
