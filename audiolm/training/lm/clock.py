"""How fast the training is."""

from __future__ import annotations

import time


class StepClock:
    """Codes a second of training: steps that a validation or a sample fell into do not count."""

    def __init__(self) -> None:
        self._started: float | None = None  # of the step that runs
        self._step_codes = 0
        self._codes = self._seconds = 0.0

    def start_step(self) -> None:
        """A step starts, and the one before is over."""
        now = time.perf_counter()
        if self._started is not None:
            self._codes += self._step_codes
            self._seconds += now - self._started
        self._started, self._step_codes = now, 0

    def count(self, codes: int) -> None:
        """The step trains on so many codes."""
        self._step_codes += codes

    def disturbed(self) -> None:
        """Something else than training falls into this step."""
        self._started = None

    def codes_per_second(self) -> float | None:
        """Since it was asked last; None where no step was undisturbed."""
        rate = self._codes / self._seconds if self._seconds else None
        self._codes = self._seconds = 0.0
        return rate
