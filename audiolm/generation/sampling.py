"""From logits to codes: a ladder of small pure functions.

Letters: B batch, K codebooks, V codes in a codebook.
"""

from __future__ import annotations

import torch
from torch import Tensor


def keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    """Exclude all but the `top_k` largest logits (..., V) of each row.

    Exactly `top_k` stay, also among equal logits.

    Source: Fan et al. 2018, "Hierarchical Neural Story Generation", section 5.1.
    """
    top_k = min(top_k, logits.shape[-1])
    values, indices = logits.topk(top_k, dim=-1)
    return torch.full_like(logits, float("-inf")).scatter_(-1, indices, values)


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Exclude the tail of each row (..., V): keep the fewest codes whose probability is `top_p`.

    The most probable code always stays.

    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration" (nucleus).
    """
    ordered, indices = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # what the better codes add up to
    ordered = ordered.masked_fill(before >= top_p, float("-inf"))
    return torch.empty_like(logits).scatter_(-1, indices, ordered)


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError, naming value and limit, for settings that no distribution has."""
    if not temperature > 0:
        raise ValueError(
            f"temperature={temperature} must be above 0; for the most probable codes "
            f"pass greedy=true"
        )
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k} must be at least 1, or null for all codes")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} must be above 0 and at most 1, or null for all codes")


def draw_noise(generators: list[torch.Generator], num_codebooks: int, codebook_size: int) -> Tensor:
    """(B, K, V) exponential noise, row b from the generator of sample b.

    A sample's noise depends on its own seed and on how often it has drawn, not on its batch.
    It is drawn on the CPU, so that a seed means the same on every device.
    """
    noise = torch.empty(len(generators), num_codebooks, codebook_size)
    for row, generator in zip(noise, generators, strict=True):
        row.uniform_(generator=generator)
    # Of uniform numbers below 1 the negative logarithm is exponential, and never 0; this takes a
    # third of the time of torch's `exponential_`.
    return noise.log_().neg_()


def sample_codes(
    logits: Tensor,
    noise: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
) -> Tensor:
    """Draw one code a row.

    Args:
        logits: (B, K, V).
        noise: (B, K, V), from `draw_noise`.
        temperature: above 0; below 1 sharpens, above 1 flattens the distribution.
        top_k: keep the k most probable codes.
        top_p: keep the most probable codes that hold this probability.
        greedy: take the most probable code; nothing else then matters.

    Returns:
        (B, K) int64.
    """
    if greedy:
        return logits.argmax(dim=-1)
    scores = logits.float() / temperature
    if top_p is not None and top_p < 1:
        if top_k is not None:
            scores = keep_top_k(scores, top_k)
        scores, top_k = keep_top_p(scores, top_p), None
    noise = noise.to(logits.device)
    # argmax p_i / e_i with exponential e_i is a draw from p (the Gumbel-max trick, Gumbel 1954);
    # unlike torch.multinomial it takes noise from outside, one stream a sample. In logarithms it
    # takes no softmax: log p_i is the score but for what all of a row have in common.
    if top_k is None or top_k >= scores.shape[-1]:
        return (scores - noise.log()).argmax(dim=-1)
    # Only those kept need a look.
    scores, kept = scores.topk(top_k, dim=-1, sorted=False)
    best = (scores - noise.gather(-1, kept).log()).argmax(dim=-1, keepdim=True)
    return kept.gather(-1, best)[..., 0]
