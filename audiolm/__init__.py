"""Train autoregressive language models over audio tokens, and generate sound with them.

    import audiolm

    synthesizer = audiolm.load("runs/digits/2026-12-01_10-00-00")
    sample = synthesizer.generate(label="7", speaker="theo", seed=0)
    sample.save("seven.wav")

Importing the package loads nothing else: its parts, and torch, are loaded when they are used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audiolm.codec import load_codec
    from audiolm.synthesis.synthesizer import Synthesizer
    from audiolm.tokens import TokenStore

__version__ = "0.1.0"

__all__ = ["Synthesizer", "TokenStore", "__version__", "load", "load_codec"]

_HOMES = {
    "Synthesizer": "audiolm.synthesis.synthesizer",
    "TokenStore": "audiolm.tokens",
    "load_codec": "audiolm.codec",
}


def load(
    path: str | Path | None = None,
    device: str = "auto",
    codec_repository: str | Path | None = None,
) -> Synthesizer:
    """A trained model and its codec, ready to generate: `Synthesizer.load`.

    Args:
        path: a run's folder, which stands for its best checkpoint; a checkpoint file; an exported
            folder, or hf://OWNER/NAME for one on the hub; or None for the newest run below runs/.
        device: "auto", "cpu" or "cuda"; "auto" takes the GPU where there is one.
        codec_repository: folder with EnCodec's own weight files, where they cannot be downloaded.

    Raises:
        FileNotFoundError, ValueError: in one line, what is missing or does not fit.
    """
    from audiolm.synthesis.synthesizer import Synthesizer

    return Synthesizer.load(path, device, codec_repository)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
