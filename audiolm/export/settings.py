"""What an exported folder is to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audiolm.generation import Sampling
from audiolm.synthesis.request import SAMPLING


@dataclass(frozen=True)
class Export:
    """The settings of an export.

    Attributes:
        dtype: of the weights: float32, bfloat16 or float16.
        sampling: of the samples, and of the commands in the card.
        num_samples: to generate; 0 for none.
        duration: of each, seconds at most.
        seed: of the first one.
        conditions: of the first one, by column; names of labels are taken in turn from there on.
        license: of the weights, as hubs name it; None for that of the base model.
        title: of the card.
        repository: OWNER/NAME that it is pushed to, for the commands in the card.
        codec_repository: folder with EnCodec's own weight files.
    """

    dtype: str = "float32"
    sampling: Sampling = SAMPLING
    num_samples: int = 4
    duration: float = 5.0
    seed: int = 0
    conditions: Mapping[str, Any] = field(default_factory=dict)
    license: str | None = None
    title: str | None = None
    repository: str | None = None
    codec_repository: str | None = None
