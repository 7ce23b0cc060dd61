"""A set of melodies and a codec for them, both made by code: the whole path without a download."""

from audiolm.demo.codec import demo_codec
from audiolm.demo.melodies import make_melodies

__all__ = ["demo_codec", "make_melodies"]
