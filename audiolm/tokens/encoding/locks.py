"""Who may write to a store: one whole run, or any number of parts, one process each.

    .lock             held by a whole run all the time, by a part while it begins and finishes
    .part-0-of-2.lock held by that part all the time

Nobody holds a lock whose process has ended, however it did; see `audiolm.locks`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType

from audiolm.locks import FileLock
from audiolm.parallel import Part

_RETRY_SECONDS = 0.25
_LOOK_SECONDS = 0.01


class StoreLock:
    """Waits until `part` may write to the store, and holds it while in the `with`.

    At first nobody else may begin. After `share`, other parts may, until `unshare` returns.
    """

    def __init__(self, store: Path, part: Part) -> None:
        self._store = store
        self._part = part
        self._main = FileLock(store / ".lock")
        self._own = store / f".part-{part.number}-of-{part.count}.lock"
        self._held: FileLock | None = None
        self._announced = False

    def __enter__(self) -> StoreLock:
        while True:
            self._take_main()
            busy = self._busy()
            if self._part.count == 1 and not busy:
                return self
            if self._part.count > 1 and self._own not in busy:
                held = FileLock(self._own)
                if held.acquire(timeout=0):
                    self._held = held
                    return self
            # Not while holding the lock that those who are waited for need in order to finish.
            self._main.release()
            self._tell(FileLock(busy[0]) if busy else self._main)
            time.sleep(_RETRY_SECONDS)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._main.release()
        if self._held is not None:
            self._held.release()

    def share(self) -> None:
        """Let other parts begin, if this is a part."""
        if self._held is not None:
            self._main.release()

    def unshare(self) -> None:
        """Wait until nobody else begins or finishes, and keep it so."""
        if self._held is not None:
            self._take_main()

    def alone(self) -> bool:
        """Whether no other process writes to the store. For before `share` and after `unshare`."""
        return not self._busy()

    def _busy(self) -> list[Path]:
        """The locks of parts that others hold."""
        busy = []
        for path in self._store.glob(".part-*.lock"):
            if self._held is not None and path == self._own:
                continue
            lock = FileLock(path)
            if lock.acquire(timeout=0):
                lock.release()
            else:
                busy.append(path)
        return busy

    def _take_main(self) -> None:
        # Those who wait hold it for a moment, to look: that is not another one at work.
        if not self._main.acquire(timeout=_RETRY_SECONDS, poll=_LOOK_SECONDS):
            self._tell(self._main)
            self._main.acquire(poll=_RETRY_SECONDS)

    def _tell(self, lock: FileLock) -> None:
        if not self._announced:
            print(
                f"waiting: another process is preparing {self._store}: {lock.holder()} "
                f"(Ctrl-C to stop waiting)",
                file=sys.stderr,
            )
            self._announced = True
