"""The language model in plain PyTorch: it knows no audio and no files."""

from audiolm.model.attention import (
    CausalSelfAttention,
    MultiHeadAttention,
    SingleHeadAttention,
    fused_attention,
    scaled_dot_product_attention,
)
from audiolm.model.cache import KeyValueCache
from audiolm.model.language_model import AudioLM, count_parameters
from audiolm.model.patterns import PATTERNS, Pattern, deinterleave, interleave, make_pattern

__all__ = [
    "PATTERNS",
    "AudioLM",
    "CausalSelfAttention",
    "KeyValueCache",
    "MultiHeadAttention",
    "Pattern",
    "SingleHeadAttention",
    "count_parameters",
    "deinterleave",
    "fused_attention",
    "interleave",
    "make_pattern",
    "scaled_dot_product_attention",
]
