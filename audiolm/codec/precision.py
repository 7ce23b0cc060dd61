"""Codes must not depend on the precision that training runs in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Two of the settings are the process's, not the thread's: the first thread that needs them other
# than they are keeps what they were, and the last one puts it back.
_lock = threading.Lock()
_inside = 0
_outside = ("highest", True)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Within: float32 without shortcuts, and no gradients, whatever is set outside.

    bf16 autocast changes about 40% of an EnCodec's codes and bf16 inside float32 matrix products
    about 20%, so autocast, reduced matrix products and TF32 convolutions are all put off. Several
    threads may be within at the same time.
    """
    _enter()
    try:
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _outside
    with _lock:
        if _inside == 0:
            _outside = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
            _set("highest", False)
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _set(*_outside)


def _set(matmul: str, tf32: bool) -> None:
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = tf32
