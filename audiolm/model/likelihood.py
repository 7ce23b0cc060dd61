"""How probable a model finds what was generated: by which the best of several samples is chosen.

Letters: K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from audiolm.model.language_model import AudioLM
from audiolm.model.loss import codebook_nats, lay_out, mean_nats
from audiolm.model.patterns import Pattern


@torch.inference_mode()
def nats_per_code(
    model: AudioLM,
    pattern: Pattern,
    codes: Tensor,
    context_frames: int,
    conditions: Mapping[str, Tensor] | None = None,
    ended: bool = False,
) -> float:
    """Mean cross-entropy of the codes of a sample under the model itself, in nats per code.

    The model as it is: without temperature, guidance and all that changes what is generated. A
    mean, since a sum would prefer the shortest sample. What is longer than a window is cut into
    windows.

    Args:
        model: in eval mode.
        pattern: the one it was trained with.
        codes: (K, T), T > 0, a prompt included.
        context_frames: frames of a window.
        conditions: of the sample, one row; None for an unconditional model.
        ended: whether the sample ended by itself, which then counts as a code.
    """
    nats = torch.zeros(len(codes))
    counts = torch.zeros(len(codes), dtype=torch.long)
    windows = torch.split(codes.to(model.heads.weight.device)[None], context_frames, dim=2)
    for i, window in enumerate(windows):
        frames = window.shape[2]
        lengths = torch.tensor([frames], device=window.device)
        reaches_end = None
        if model.end_token:
            reaches_end = torch.tensor([ended and i + 1 == len(windows)], device=window.device)
        steps, mask = lay_out(window, lengths, reaches_end, pattern, context_frames, model.special)
        of_window, count = codebook_nats(model(steps, conditions), steps, mask)
        nats, counts = nats + of_window.cpu(), counts + count.cpu()
    return float(mean_nats(nats, counts))
