"""T5, which makes the sequence of vectors that MusicGen and AudioGen read of a text; frozen.

A model's folder has it in text_encoder/: config.json and model.safetensors, as transformers has
them, and tokenizer.json. Nothing is downloaded. It needs the extra `musicgen`, which is imported
when a text is read.

Letters: L tokens of a text, F width of their vectors.

Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer".
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audiolm.files import atomic_file, replacing, short
from audiolm.tensor_files import read_tensors, write_tensors

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
MAX_KEPT = 4096
"""Texts whose states are kept."""
INSTALL = "run pip install -e '.[musicgen]'"
_SHARED = "shared.weight"
_EMBEDDING = "encoder.embed_tokens.weight"


class TextEncoder:
    """Texts to the states of a T5's encoder. It is read when the first text is.

    Args:
        folder: with config.json, model.safetensors and tokenizer.json.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._device = torch.device("cpu")
        self._loaded: tuple[Any, Any] | None = None
        self._states: dict[str, Tensor] = {}  # a collection says the same again and again

    def to(self, device: torch.device | str) -> TextEncoder:
        """The device where it is to work; return itself."""
        self._device = torch.device(device)
        return self

    @torch.inference_mode()
    def __call__(self, text: str) -> Tensor:
        """The states (L, F) of a text, float32, on the CPU; its last token ends it.

        Raises:
            FileNotFoundError: a file is not in the folder.
            ValueError: the text is empty, a file is damaged or of another model, or transformers
                is not installed.
        """
        if not text.strip():
            raise ValueError("the text is empty; give one, or omit it")
        if text not in self._states:
            if self._loaded is None:
                self._loaded = _load(self.folder)
            model, tokenizer = self._loaded
            ids = torch.tensor([tokenizer.encode(text).ids], device=self._device)
            states = model.to(self._device)(input_ids=ids).last_hidden_state[0]
            if len(self._states) >= MAX_KEPT:
                self._states.clear()
            self._states[text] = states.float().cpu()
        return self._states[text].clone()


def _load(folder: Path) -> tuple[Any, Any]:
    """The T5 and its tokenizer."""
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder / name}: no such file; this model reads texts by its own T5: copy the "
                f"whole folder again"
            )
    try:
        from tokenizers import Tokenizer
        from transformers import T5Config, T5EncoderModel
    except ImportError as error:
        raise ValueError(
            f"a text is read by T5, of the package transformers, which is not installed; {INSTALL}"
        ) from error
    weights, _ = read_tensors(folder / WEIGHTS)
    weights = {name: weight.float() for name, weight in weights.items()}
    try:
        model = T5EncoderModel(T5Config(**json.loads((folder / CONFIG).read_text("utf-8"))))
        model.load_state_dict({**weights, _EMBEDDING: weights[_SHARED]})
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of any kind, as the two packages raise for a wrong file
        reason = short(" ".join(str(error).split()), 200)
        raise ValueError(f"{folder}: not a T5 with its tokenizer ({reason})") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return model.eval().requires_grad_(False), tokenizer


def encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of a T5's weights those of its encoder, the table of the tokens once.

    Raises:
        ValueError: there is no such table.
    """
    kept = {
        name: weight
        for name, weight in weights.items()
        if name.startswith("encoder.") or name == _SHARED
    }
    table = kept.pop(_EMBEDDING, None)
    if table is None and _SHARED not in kept:
        raise ValueError(f"the weights of the T5 lack {_SHARED}; give a whole one")
    return kept if table is None else {_SHARED: table, **kept}


def copy_text_encoder(source: Path, folder: Path) -> None:
    """Copy the three files, one by one, each whole or not at all; those that are there stay.

    Raises:
        OSError: they are not in `source`, or cannot be written.
    """
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        if not (folder / name).is_file():
            with replacing(folder / name) as temporary:
                shutil.copyfile(source / name, temporary)


def write_text_encoder(
    folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], tokenizer: Path
) -> None:
    """Write the three files that `TextEncoder` reads.

    Raises:
        OSError: they cannot be written.
    """
    write_tensors(folder / WEIGHTS, weights, {"format": "pt"})
    with atomic_file(folder / CONFIG) as file:
        file.write(json.dumps(dict(config), indent=2, sort_keys=True).encode() + b"\n")
    with atomic_file(folder / TOKENIZER) as file:
        file.write(tokenizer.read_bytes())
