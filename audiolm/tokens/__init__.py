"""The token stage: recordings become codes on disk, codes on disk become batches."""

from audiolm.tokens.batches import StepSampler, TrainingBatches, validation_batches
from audiolm.tokens.check import CheckReport, check_clips
from audiolm.tokens.folders import folder_clips
from audiolm.tokens.mix import Mix, open_mix
from audiolm.tokens.prepare import (
    PrepareSummary,
    default_store_dir,
    named_after,
    prepare_store,
)
from audiolm.tokens.rules import Rules
from audiolm.tokens.sources import Clip, LeftOut
from audiolm.tokens.splits import SPAN, Split, cut_spans, split_by_hash, split_clips
from audiolm.tokens.statistics import (
    CodeCounts,
    count_codes,
    mix_counts,
    unigram_cross_entropy,
    unigram_entropy,
)
from audiolm.tokens.store import TokenStore, check_codec
from audiolm.tokens.windows import WINDOW, TrainingWindows, WindowBatch, WindowReader

__all__ = [
    "SPAN",
    "WINDOW",
    "CheckReport",
    "Clip",
    "CodeCounts",
    "LeftOut",
    "Mix",
    "PrepareSummary",
    "Rules",
    "Split",
    "StepSampler",
    "TokenStore",
    "TrainingBatches",
    "TrainingWindows",
    "WindowBatch",
    "WindowReader",
    "check_clips",
    "check_codec",
    "count_codes",
    "cut_spans",
    "default_store_dir",
    "folder_clips",
    "mix_counts",
    "named_after",
    "open_mix",
    "prepare_store",
    "split_by_hash",
    "split_clips",
    "unigram_cross_entropy",
    "unigram_entropy",
    "validation_batches",
]
