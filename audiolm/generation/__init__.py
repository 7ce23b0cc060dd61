"""From a model to codes: sampling, and the loop that generates token by token."""

from audiolm.generation.sampling import Sampling
from audiolm.generation.stream import cut_at_end, generate, prepare, stream

__all__ = ["Sampling", "cut_at_end", "generate", "prepare", "stream"]
