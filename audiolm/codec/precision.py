"""Codes must not depend on the precision that training runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Within: float32 without shortcuts, and no gradients, whatever is set outside.

    bf16 autocast changes about 40% of an EnCodec's codes and bf16 inside float32 matrix products
    about 20%, so autocast, reduced matrix products and TF32 convolutions are all put off.
    """
    matmul, tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = tf32
