"""What every decoder offers: samples front to back, and what its file says of itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class DecodingError(Exception):
    """The samples after those read so far cannot be decoded. `str`: why, in a few words."""


class Source(Protocol):
    """An open file. Samples are (n, C), float32, at the file's own rate and channels."""

    @property
    def path(self) -> Path: ...
    @property
    def sample_rate(self) -> int:
        """Hz."""

    @property
    def channels(self) -> int: ...
    @property
    def format(self) -> str:
        """The container."""

    @property
    def subtype(self) -> str:
        """The encoding."""

    @property
    def num_samples(self) -> int | None:
        """Of one channel; None where only decoding tells."""

    @property
    def promised(self) -> float:
        """Samples that the header promises; inf: more than there are; 0: it promises nothing."""

    @property
    def tolerance(self) -> float:
        """Samples that may be missing from the promise without a fault."""

    @property
    def trailing(self) -> int:
        """Bytes behind the samples that a header counts, which are neither read nor padding."""

    @property
    def missing(self) -> float:
        """Seconds that lack, by the file's own times, between the samples read so far."""

    @property
    def can_seek(self) -> bool:
        """Whether `seek` lands at the very sample."""

    def seek(self, sample: int) -> None: ...

    def read(self, count: int) -> NDArray[np.float32]:
        """The next samples, up to ``count``; none at the end. Raises DecodingError."""


def seconds(samples: float, sample_rate: int) -> str:
    """A length or a promised length for a message."""
    if samples == math.inf or samples == 0:
        return "an unknown length"
    return f"{samples / sample_rate:.3f} s"
