"""Stores of known codes, as the tests of the token stage make them."""

from __future__ import annotations

from ..stores import make_store, random_clips

__all__ = ["make_store", "random_clips"]
