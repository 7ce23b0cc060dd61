"""The seconds that a script's imports take: something moves, and Ctrl-C ends them in a line.

Imports nothing that takes time: it is the first thing that a script imports.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from audiolm.cli.interrupt import stop_as_usual, stop_quietly
from audiolm.progress import Spinner


def start_loading() -> None:
    """Show on a terminal that the script loads, from now until `end_loading`.

    Not in the processes that Lightning starts to train beside the first: one line is enough.
    """
    stop_quietly(_spinner.stop)
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        _spinner.start()
    sys.excepthook = _report


def end_loading() -> None:
    """All is imported: from now on the script speaks for itself, and Ctrl-C is an exception."""
    _spinner.stop()
    stop_as_usual()
    if sys.excepthook is _report:
        sys.excepthook = sys.__excepthook__


def _newest_package() -> str:
    """The package that is being imported, or was last."""
    for name in reversed(list(sys.modules)):
        package = name.partition(".")[0]
        if package not in sys.stdlib_module_names and not package.startswith("_"):
            return f"loading {package}"
    return "loading"


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A traceback begins in a line of its own."""
    _spinner.stop()
    sys.__excepthook__(kind, error, trace)


_spinner = Spinner(_newest_package)
