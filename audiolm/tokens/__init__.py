"""The token stage: recordings become codes on disk, codes on disk become batches."""

from audiolm.tokens.prepare import (
    LeftOut,
    PrepareSummary,
    default_store_dir,
    prepare_store,
)
from audiolm.tokens.shards import hash64
from audiolm.tokens.sources import Clip, folder_clips
from audiolm.tokens.splits import SPAN, cut_spans, split_by_hash, split_clips
from audiolm.tokens.statistics import (
    CodeCounts,
    count_codes,
    unigram_cross_entropy,
    unigram_entropy,
)
from audiolm.tokens.store import TokenStore, check_codec
from audiolm.tokens.windows import (
    StepSampler,
    TrainingWindows,
    ValidationWindows,
    Window,
    WindowBatch,
    collate,
)

__all__ = [
    "SPAN",
    "Clip",
    "CodeCounts",
    "LeftOut",
    "PrepareSummary",
    "StepSampler",
    "TokenStore",
    "TrainingWindows",
    "ValidationWindows",
    "Window",
    "WindowBatch",
    "check_codec",
    "collate",
    "count_codes",
    "cut_spans",
    "default_store_dir",
    "folder_clips",
    "hash64",
    "prepare_store",
    "split_by_hash",
    "split_clips",
    "unigram_cross_entropy",
    "unigram_entropy",
]
