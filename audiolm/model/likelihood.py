"""The forward pass from codes to their loss: of training, of the validation set, of a sample.

Letters: B batch, K codebooks, T codec frames, S sequence steps, V' predicted ids of a codebook.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from audiolm.model.language_model import AudioLM
from audiolm.model.loss import codebook_nats, lay_out, mean_nats
from audiolm.model.patterns import Pattern


class Prediction(NamedTuple):
    """What a model expects of windows of codes, beside what they are.

    Attributes:
        logits: (B, K, S, V'), aligned with `steps`.
        steps: (B, K, S) ids.
        mask: (B, K, S) boolean, the cells that count.
    """

    logits: Tensor
    steps: Tensor
    mask: Tensor

    def nats(self) -> tuple[Tensor, Tensor]:
        """Summed nats (K,) and numbers of predictions (K,); the end token is one."""
        return codebook_nats(*self)


def predict(
    model: AudioLM,
    pattern: Pattern,
    context_frames: int,
    codes: Tensor,
    lengths: Tensor,
    reaches_end: Tensor,
    conditions: Mapping[str, Tensor] | None = None,
    history_noise: float = 0.0,
) -> Prediction:
    """One forward pass over windows of codes, such as a `batches.windows.WindowBatch`.

    Args:
        model: in training or eval mode.
        pattern: the model's.
        context_frames: frames of a full window.
        codes: (B, K, T), T <= `context_frames`.
        lengths: (B,) frames of each window; the rest of T is padding.
        reaches_end: (B,) boolean, whether a window reaches the end of its clip; of no account to a
            model without an end token.
        conditions: of the windows, B rows each; not looked at by an unconditional model.
        history_noise: see `with_noise`; 0 reads the codes as they are.
    """
    steps, mask = lay_out(
        codes,
        lengths,
        reaches_end if model.end_token else None,
        pattern,
        context_frames,
        model.special,
    )
    read = steps
    if history_noise:
        is_code = mask & (steps < model.codebook_size)
        read = with_noise(steps, is_code, model.codebook_size, history_noise)
    return Prediction(model(read, conditions if model.conditioner else None), steps, mask)


def with_noise(steps: Tensor, is_code: Tensor, codebook_size: int, share: float) -> Tensor:
    """Steps (B, K, S) with some of their codes replaced by random ones.

    In each row another share of them, 0 to twice `share`. A model that has only ever read true
    codes memorises a small set from them: its first wrong code in generation takes it where
    nothing was learnt, and its conditions are of no use to it.

    Source: the idea of scheduled sampling (Bengio et al. 2015), with noise in place of samples.
    """
    shares = 2 * share * torch.rand(len(steps), 1, 1)
    replaced = (torch.rand(steps.shape) < shares).to(steps.device) & is_code
    noise = torch.randint(codebook_size, steps.shape).to(steps.device)
    return torch.where(replaced, noise, steps)


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

    By which the best of several samples is chosen. The model as it is: without temperature,
    guidance and all that changes what is generated. A mean, since a sum would prefer the shortest
    sample. What is longer than a window is cut into windows.

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
        lengths = torch.tensor([window.shape[2]], device=window.device)
        reaches_end = torch.tensor([ended and i + 1 == len(windows)], device=window.device)
        of_window, count = predict(
            model, pattern, context_frames, window, lengths, reaches_end, conditions
        ).nats()
        nats, counts = nats + of_window.cpu(), counts + count.cpu()
    return float(mean_nats(nats, counts))
