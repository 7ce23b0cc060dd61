"""Training the residual vector quantizer of the `encodec` package.

Its module is used as it is for its codebooks and for inference; its own training step is not,
because there the commitment gradient reaches the first level only, codes that are dead stay dead,
and k-means takes minutes (each seen with encodec 0.1.1).

B batch, K codebooks, T codec frames, V codes in a codebook, D width of the latents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from encodec.quantization.vq import ResidualVectorQuantizer
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-5  # of Laplace smoothing, as in the package
KMEANS_ITERATIONS = 20


class Quantized(NamedTuple):
    """What `quantize` gives."""

    latents: Tensor
    """(B, D, T): the sum of the chosen codes, with the gradient of the input passed through."""
    codes: Tensor
    """(K, B, T) int64."""
    commitment: Tensor
    """Mean over the levels of the squared distance of a residual to its code."""
    residuals: list[Tensor]
    """What each level was given, (B * T, D), without gradient."""


def codebook_of(quantizer: ResidualVectorQuantizer, level: int) -> Any:
    """The codebook of a level: buffers `embed` (V, D), `embed_avg`, `cluster_size`, `inited`."""
    return quantizer.vq.layers[level]._codebook


def quantize(quantizer: ResidualVectorQuantizer, latents: Tensor, n_q: int) -> Quantized:
    """Quantize latents (B, D, T) with the first `n_q` levels, with gradients for an encoder.

    One straight-through estimate over all levels, and a commitment term for each, whose gradient
    reaches the encoder undiminished: a residual is the latents less the codes before, and those
    are constants. Source: van den Oord et al. 2017, "Neural discrete representation learning",
    section 3.2, and SoundStream (arXiv:2107.03312), algorithm 1.
    """
    batch, width, frames = latents.shape
    flat = latents.transpose(1, 2).reshape(-1, width)
    total = torch.zeros_like(flat)
    codes, losses, residuals = [], [], []
    for level in range(n_q):
        residual = flat - total
        with torch.no_grad():
            chosen = nearest(residual, codebook_of(quantizer, level).embed)
            code = F.embedding(chosen, codebook_of(quantizer, level).embed)
        codes.append(chosen.view(batch, frames))
        losses.append((residual - code).square().mean())
        residuals.append(residual.detach())
        total = total + code
    through = flat + (total - flat).detach()
    return Quantized(
        latents=through.view(batch, frames, width).transpose(1, 2),
        codes=torch.stack(codes),
        commitment=torch.stack(losses).mean(),
        residuals=residuals,
    )


def nearest(vectors: Tensor, codebook: Tensor) -> Tensor:
    """Index (M,) of the code nearest to each of vectors (M, D), by one matrix product."""
    # |x - c|^2 less |x|^2, which is the same for all codes.
    return torch.addmm(codebook.square().sum(1), vectors, codebook.T, alpha=-2).argmin(1)


@torch.no_grad()
def kmeans(vectors: Tensor, size: int, iterations: int, generator: torch.Generator) -> Tensor:
    """A codebook (size, D) for vectors (M, D): Lloyd's iterations from random vectors.

    A cluster that becomes empty starts anew at a random vector.
    """
    order = torch.randperm(len(vectors), generator=generator)
    codebook = vectors[order[torch.arange(size) % len(vectors)]].clone()
    for _ in range(iterations):
        chosen = nearest(vectors, codebook)
        counts = torch.bincount(chosen, minlength=size)
        sums = torch.zeros_like(codebook).index_add_(0, chosen, vectors)
        fresh = vectors[torch.randint(len(vectors), (size,), generator=generator)]
        codebook = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], fresh)
    return codebook


@torch.no_grad()
def initialise_codebooks(quantizer: ResidualVectorQuantizer, latents: Tensor, seed: int) -> None:
    """Fit every level by k-means to what the levels before it leave of latents (M, D).

    Raises:
        ValueError: fewer latents than codes.
    """
    if len(latents) < quantizer.bins:
        raise ValueError(
            f"{len(latents)} frames are too few to fit codebooks of {quantizer.bins} codes to; "
            f"give more, or lower bins"
        )
    generator = torch.Generator().manual_seed(seed)
    residual = latents.cpu().clone()
    for level in range(quantizer.n_q):
        embed = kmeans(residual, quantizer.bins, KMEANS_ITERATIONS, generator)
        chosen = nearest(residual, embed)
        residual -= embed[chosen]
        # As if the averages had seen one batch of these latents.
        size = torch.bincount(chosen, minlength=quantizer.bins).to(embed.dtype)
        codebook = codebook_of(quantizer, level)
        codebook.embed.copy_(embed)
        codebook.cluster_size.copy_(size)
        codebook.embed_avg.copy_(embed * size[:, None])
        codebook.inited.fill_(1)


@torch.no_grad()
def update_codebooks(
    quantizer: ResidualVectorQuantizer,
    quantized: Quantized,
    decay: float,
    dead_below: float,
    generator: torch.Generator,
) -> int:
    """Move the codebooks that were used towards the mean of their vectors; revive dead codes.

    Averages of counts and sums with `decay` (van den Oord et al. 2017, appendix A.1). A code whose
    average count is below `dead_below` times the mean count takes the place of a random vector of
    the batch, with the mean count, so that it stays alive for a while: all of its three buffers,
    since the next update computes the code from the other two.

    Args:
        quantizer: whose codebooks are updated.
        quantized: of this step.
        decay: share of the old averages that stays.
        dead_below: 0 revives none.
        generator: of the vectors to revive with; on the CPU.

    Returns:
        How many codes were revived.
    """
    revived = 0
    for level, vectors in enumerate(quantized.residuals):
        codebook = codebook_of(quantizer, level)
        chosen = quantized.codes[level].reshape(-1)
        counts = torch.bincount(chosen, minlength=quantizer.bins).to(vectors.dtype)
        sums = torch.zeros_like(codebook.embed).index_add_(0, chosen, vectors)
        codebook.cluster_size.lerp_(counts, 1 - decay)
        codebook.embed_avg.lerp_(sums, 1 - decay)
        mean = codebook.cluster_size.mean()
        dead = codebook.cluster_size < dead_below * mean
        if dead.any():
            picks = torch.randint(len(vectors), (quantizer.bins,), generator=generator)
            fresh = vectors[picks.to(vectors.device)]
            codebook.embed_avg.copy_(torch.where(dead[:, None], fresh * mean, codebook.embed_avg))
            codebook.cluster_size.copy_(torch.where(dead, mean, codebook.cluster_size))
            revived += int(dead.sum())
        smoothed = (codebook.cluster_size + EPSILON) / (
            codebook.cluster_size.sum() + quantizer.bins * EPSILON
        )
        size = smoothed * codebook.cluster_size.sum()
        codebook.embed.copy_(codebook.embed_avg / size[:, None])
    return revived


def perplexity(counts: Tensor) -> Tensor:
    """Codes in use (...): exp of the entropy of their frequencies, from counts (..., V)."""
    share = counts.double() / counts.sum(-1, keepdim=True).clamp(min=1)
    return (-(share * share.clamp(min=1e-300).log()).sum(-1)).exp()
