"""Waveform (B, C, N) to codes (B, K, T) and back: EnCodec of any size, pretrained or one's own."""

from audiolm.codec.base import Codec, Margins
from audiolm.codec.encodec import EncodecCodec
from audiolm.codec.load import (
    load_bundled,
    load_codec,
    load_local,
    load_pretrained,
    load_transformers,
)
from audiolm.codec.local import save_local
from audiolm.codec.settings import build_model, check_settings

__all__ = [
    "Codec",
    "EncodecCodec",
    "Margins",
    "build_model",
    "check_settings",
    "load_bundled",
    "load_codec",
    "load_local",
    "load_pretrained",
    "load_transformers",
    "save_local",
]
