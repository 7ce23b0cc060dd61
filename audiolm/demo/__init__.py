"""A set of melodies made by code from a known grammar, and how well sound keeps to it."""

from audiolm.demo.melodies import make_melodies

__all__ = ["make_melodies"]
