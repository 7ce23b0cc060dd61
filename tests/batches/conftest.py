"""Stores of known codes, and recordings, as the tests of the token stage make them."""

from __future__ import annotations

from ..stores import (
    check_clips_here,
    codec,
    contents,
    make_codec,
    make_store,
    prepare,
    random_clips,
    recordings,
    write_recording,
)

__all__ = [
    "check_clips_here",
    "codec",
    "contents",
    "make_codec",
    "make_store",
    "prepare",
    "random_clips",
    "recordings",
    "write_recording",
]
