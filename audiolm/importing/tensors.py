"""The tensors of another's file, every one of which is accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from audiolm.files import short


class Weights:
    """Named tensors to take from, one by one, so that what nobody took is known.

    Args:
        tensors: by name.
        where: the file, for messages.
    """

    def __init__(self, tensors: Mapping[str, Tensor], where: object) -> None:
        self._left = dict(tensors)
        self.where = where

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """The tensor of that name, in float32.

        Raises:
            ValueError: it is missing, of another shape, or not finite.
        """
        if name not in self._left:
            raise ValueError(f"{self.where} lacks {name}")
        tensor = self._left.pop(name)
        if tensor.shape != tuple(shape):
            raise ValueError(
                f"{self.where}: {name} is {tuple(tensor.shape)}, the config asks for {tuple(shape)}"
            )
        tensor = tensor.detach().float()
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{self.where}: {name} holds NaN or infinity; take another file")
        return tensor

    def has(self, name: str) -> bool:
        """Whether it is still there to be taken."""
        return name in self._left

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the tensor of that name, which stays.

        Raises:
            ValueError: it is missing.
        """
        if name not in self._left:
            raise ValueError(f"{self.where} lacks {name}")
        return tuple(self._left[name].shape)

    def drop(self, name: str) -> None:
        """Leave out what follows from something else, where it is there."""
        self._left.pop(name, None)

    def below(self, prefix: str) -> dict[str, Tensor]:
        """Take all whose names begin so; without the prefix."""
        names = [name for name in self._left if name.startswith(prefix)]
        return {name.removeprefix(prefix): self._left.pop(name) for name in names}

    def check_all_taken(self) -> None:
        """Raise ValueError naming the first that nobody took."""
        if self._left:
            raise ValueError(
                f"{self.where} has {short(min(self._left), 80)}, which this version does not know "
                f"({len(self._left):,} such); it is of another kind of model"
            )
