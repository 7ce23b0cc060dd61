"""How worker processes are started."""

from __future__ import annotations

import gc
import sys
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
        "worker_init_fn": _leave_alone_what_was_there,
    }


def _leave_alone_what_was_there(worker: int) -> None:
    gc.freeze()
