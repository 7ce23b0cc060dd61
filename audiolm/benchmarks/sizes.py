"""The model that all candidates are built as, and how much work it is.

Letters: B batch, K codebooks, T codec frames, S sequence steps, V codes in a codebook, D model
width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import torch
from torch import nn

from audiolm.limits import COUNT
from audiolm.model.language_model import AudioLM
from audiolm.model.patterns import make_pattern

PATTERN = "delay"
"""Of all candidates: MusicGen knows no other."""
OURS, PLAIN, MUSICGEN = "this package", "plain GPT", "MusicGen"
PEERS = ("plain_gpt", "musicgen")
SAME_WORK = 0.02
"""By which share matrix parameters, and so the work of a step, may differ."""


@dataclass(frozen=True)
class ModelSize:
    """D, layers, heads, K, V and T of a window; the feed-forward is 4 D, or a gated one of as many
    parameters. Raises ValueError, in the words of the config's `compared`, for a count below 1."""

    embed_dim: int = 512
    num_layers: int = 8
    num_heads: int = 8
    num_codebooks: int = 4
    codebook_size: int = 1024
    frames: int = 512

    def __post_init__(self) -> None:
        for field, value in zip(fields(self), astuple(self), strict=True):
            COUNT.check(f"compared.{field.name}", value)

    @property
    def num_steps(self) -> int:
        """S of a window."""
        return make_pattern(PATTERN, self.num_codebooks).num_steps(self.frames)

    @property
    def model(self) -> dict[str, Any]:
        """Arguments of `AudioLM` but for what follows from the codec."""
        return {
            "embed_dim": self.embed_dim,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
        }

    @property
    def codec(self) -> dict[str, Any]:
        """Identity of a codec with such codes, which there is not."""
        return {
            "kind": "random",
            "name": "random",
            "fingerprint": "random",
            "sample_rate": 24000,
            "channels": 1,
            "frame_rate": 50.0,
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
        }


def matrices(model: nn.Module) -> Counter[tuple[int, int]]:
    """How often a step of the model multiplies by a matrix of (outputs, inputs)."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return Counter(
        (weight.shape[0], weight.shape[1])
        for weight in model.parameters()
        if weight.ndim == 2 and id(weight) not in tables
    )


def matrix_parameters(model: nn.Module) -> int:
    """Parameters that every step is multiplied by: all but embeddings and gains."""
    return sum(rows * columns * count for (rows, columns), count in matrices(model).items())


def products_gflop(model: nn.Module, rows: int) -> float:
    """Floating point operations, in units of 1e9, of a forward pass over so many rows (B * S)
    through all matrices."""
    return 2e-9 * rows * matrix_parameters(model)


def attention_gflop(size: ModelSize, batch: int) -> float:
    """The same of the two products of attention with all heads and layers.

    Half of the S x S pairs: a step does not see later ones, whatever a kernel computes.
    """
    pairs = size.num_steps * (size.num_steps + 1) / 2
    return 4e-9 * batch * pairs * size.embed_dim * size.num_layers


def check_size(size: ModelSize, peers: Sequence[str]) -> None:
    """Raise ValueError for a size that this package's model cannot have, or that makes its matrices
    differ from its peers' by more than `SAME_WORK`."""
    steps = size.num_steps
    with torch.device("meta"):
        model = AudioLM(size.num_codebooks, size.codebook_size, steps, **size.model)
    width = size.embed_dim
    plain = 12 * size.num_layers * width**2 + size.num_codebooks * size.codebook_size * width
    if peers and abs(matrix_parameters(model) / plain - 1) > SAME_WORK:
        # Of these the gated feed-forward, whose width goes by 32, has exactly the peers' 8 D^2;
        # and the heads are of even width.
        step = math.lcm(12, 2 * size.num_heads)
        raise ValueError(
            f"compared.embed_dim={width} gives this package's model {matrix_parameters(model):,} "
            f"parameters in matrices and its peers' {plain:,}; choose one of the multiples of "
            f"{step}, such as {step * math.ceil(width / step)}, or no peers"
        )


def check_peers(section: str, peers: Iterable[str]) -> None:
    """Raise ValueError for a peer that is not one of `PEERS`."""
    for name in peers:
        if name not in PEERS:
            raise ValueError(f"{section}.peers: {name!r} is unknown; choose some of {list(PEERS)}")


def check_same_work(name: str, model: nn.Module, other: nn.Module) -> None:
    """Raise RuntimeError where the matrices of two models differ by more than `SAME_WORK`."""
    mine, theirs = matrix_parameters(model), matrix_parameters(other)
    if abs(mine / theirs - 1) > SAME_WORK:
        raise RuntimeError(
            f"{name} has {mine:,} parameters in matrices, the model it is compared with {theirs:,}"
        )
