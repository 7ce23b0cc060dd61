"""Several stores that are trained on together, each with its share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audiolm.tokens.store import TokenStore


class Mix:
    """Stores of one codec, and the share of each in what is trained on.

    stores: one or more. weights: of each, above 0; null gives all the same. They are shares of
    the frames, so of the time: a store of 1 hour with weight 1 beside one of 9 hours with weight
    1 is gone through nine times as often.

    Attributes: stores; shares, which add up to 1; and what the stores have in common: codec (its
    identity), num_codebooks K, codebook_size V, frame_rate in frames a second.
    Raises ValueError for stores that are not of one codec, weights that are not above 0, and no
    store at all.
    """

    def __init__(
        self, stores: Sequence[TokenStore], weights: Sequence[float] | None = None
    ) -> None:
        if not stores:
            raise ValueError("a mix of no stores; name at least one")
        weights = [1.0] * len(stores) if weights is None else weights
        seen: dict[Path, TokenStore] = {}
        for store, weight in zip(stores, weights, strict=True):
            _check_weight(store.path, weight)
            _check_same_codec(stores[0], store)
            twin = seen.get(store.path.resolve())
            if twin is not None:
                raise ValueError(
                    f"{twin.path} and {store.path} are the same store; name it once, with the sum "
                    "of the weights"
                )
            seen[store.path.resolve()] = store
        self.stores = tuple(stores)
        self.shares = tuple(float(weight) / sum(weights) for weight in weights)
        self.codec: dict[str, Any] = stores[0].codec
        self.num_codebooks = stores[0].num_codebooks
        self.codebook_size = stores[0].codebook_size
        self.frame_rate = stores[0].frame_rate


def open_mix(weights: Mapping[str, float]) -> Mix:
    """The mix of the stores in these folders.

    Raises what `Mix` and `TokenStore` do.
    """
    if not weights:
        raise ValueError("data.mix names no store; pass data.mix={STORE: WEIGHT, ...}")
    for folder, weight in weights.items():
        _check_weight(Path(folder), weight)
    return Mix([TokenStore(folder) for folder in weights], list(weights.values()))


def _check_weight(path: Path, weight: Any) -> None:
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not 0 < weight < math.inf:
        raise ValueError(
            f"the weight of {path} in the mix is {weight!r}; it must be a number above 0"
        )


def _check_same_codec(one: TokenStore, two: TokenStore) -> None:
    first, second = (
        f"{store.num_codebooks} codebooks of {store.codebook_size} codes at "
        f"{store.frame_rate:g} frames/s of codec {store.codec['fingerprint']}"
        for store in (one, two)
    )
    if first != second:
        raise ValueError(
            f"{one.path} holds {first}, {two.path} {second}; a mix needs stores of one codec: "
            "run prepare on both with the same"
        )
