"""From a model to codes: sampling, and the loop that draws token by token."""

from audiolm.generation.streaming import generate, prepare, stream

__all__ = ["generate", "prepare", "stream"]
