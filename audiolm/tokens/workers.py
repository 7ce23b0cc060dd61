"""How worker processes are started."""

from __future__ import annotations

import sys

START_METHOD = "fork" if sys.platform == "linux" else "spawn"
"""What `DataLoader(multiprocessing_context=...)` takes. Said, and not left to the default, which is
one of joblib's own in the processes that its launcher for Hydra starts, and starts none from there.
"""
