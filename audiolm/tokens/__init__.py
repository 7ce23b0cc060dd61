"""The token stage: recordings become codes on disk, in a store that is read without copying."""

from audiolm.tokens.baselines import (
    CodeCounts,
    count_codes,
    mix_counts,
    unigram_cross_entropy,
    unigram_entropy,
)
from audiolm.tokens.encoding.places import default_store_dir, named_after
from audiolm.tokens.encoding.prepare import PrepareSummary, prepare_store
from audiolm.tokens.identity import ClipSet, audio_keys
from audiolm.tokens.mix import Mix, open_mix
from audiolm.tokens.store import TokenStore, check_codec

__all__ = [
    "ClipSet",
    "CodeCounts",
    "Mix",
    "PrepareSummary",
    "TokenStore",
    "audio_keys",
    "check_codec",
    "count_codes",
    "default_store_dir",
    "mix_counts",
    "named_after",
    "open_mix",
    "prepare_store",
    "unigram_cross_entropy",
    "unigram_entropy",
]
