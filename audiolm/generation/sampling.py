"""From logits to codes: what is sampled, and a ladder of small pure functions that sample it.

Letters: B batch, K codebooks, V' outputs of a codebook: its V codes and, where the model has one,
the end. W frames looked back at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from audiolm.limits import COUNT, SHARE_ABOVE_0, Limits
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.language_model import AudioLM

TEMPERATURES = (0.001, 1000.0)
"""The lowest and the highest. Below, the noise no longer matters and float32 may overflow; above,
all codes are as good as equal."""

MAX_GUIDANCE = 100.0
"""Far above the 1 to 10 in use, and far below where float32 would overflow."""


@dataclass(frozen=True)
class Sampling:
    """How codes are sampled; the defaults sample from the model's own distribution.

    Temperature comes first; then each of `top_k`, `top_p` and `min_p`, in this order, takes from
    what the one before has kept. The end token counts as a code.

    Args:
        temperature: 0.001 ... 1000; the logits are divided by it: below 1 sharpens, above 1
            flattens the distribution. One number for all, or K of them, coarse to fine.
        top_k: 1 or more; keep the k most probable codes (Fan et al. 2018, "Hierarchical Neural
            Story Generation", section 5.1). None keeps all.
        top_p: above 0, at most 1; see `keep_top_p`. None keeps all.
        min_p: above 0, at most 1; see `keep_min_p`. None keeps all.
        greedy: take the most probable code; temperature and what to keep then do not matter.
        repetition_window: 1 or more; frames looked back at in codebook 0; see `sample_codes`.
            None turns the rule off. VALL-E 2 looks back at 10, of 75 a second.
        repetition_share: above 0, at most 1; share of the window from which on the code sampled
            counts as repeating. At 0.1 of 10 frames, once.
        guidance: 0 ... 100; see `guide`. 1 is off, 0 samples as if there were no conditions.
        end: whether the end token may be sampled. If not, a sample continues for as long as asked.

    Raises:
        ValueError: for a value out of range.
    """

    temperature: float | Sequence[float] = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    greedy: bool = False
    repetition_window: int | None = None
    repetition_share: float = 0.1
    guidance: float = 1.0
    end: bool = True

    def __post_init__(self) -> None:
        given = self.temperature
        several = isinstance(given, Iterable) and not isinstance(given, str) and np.ndim(given) > 0
        remedy = "for the most probable codes pass greedy=true"
        numbers = [
            Limits(*TEMPERATURES).check("temperature", each, remedy)
            for each in (given if several else (given,))  # type: ignore[union-attr]
        ]
        self._set("temperature", tuple(numbers) if several else numbers[0])
        for name, limits, off in (
            ("top_k", COUNT, "null for all codes"),
            ("top_p", SHARE_ABOVE_0, "null for all codes"),
            ("min_p", SHARE_ABOVE_0, "null for all codes"),
            ("repetition_window", COUNT, "null for no look back"),
        ):
            if getattr(self, name) is not None:
                self._set(name, limits.check(name, getattr(self, name), f"or {off}"))
        off = "to turn the rule off pass repetition_window=null"
        share = SHARE_ABOVE_0.check("repetition_share", self.repetition_share, off)
        self._set("repetition_share", share)
        guidance = Limits(0, MAX_GUIDANCE).check("guidance", self.guidance, "1 is off")
        self._set("guidance", guidance)
        for name, flag in (("greedy", self.greedy), ("end", self.end)):
            if not isinstance(flag, bool):
                raise ValueError(f"{name}={flag} must be true or false")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # it is frozen from here on

    def check(self, num_codebooks: int) -> None:
        """Check what depends on the model.

        Raises:
            ValueError: for temperatures that are not one for each of its codebooks.
        """
        if isinstance(self.temperature, Sequence) and len(self.temperature) != num_codebooks:
            raise ValueError(
                f"temperature={list(self.temperature)} holds {len(self.temperature)} numbers, the "
                f"model has {num_codebooks} codebooks; give one for each, or a single one for all"
            )


PLAIN = Sampling()
"""Draws from the model's own distribution."""


def guide(conditional: Tensor, unconditional: Tensor, guidance: float) -> Tensor:
    """Move logits (B, K, V') away from what the model says without its conditions.

    Unlike log-probabilities they need no norm first: what all of a row have in common changes
    nothing. 1 gives `conditional`, 0 `unconditional`. Codes excluded (-inf) from both stay so.

    Source: Ho & Salimans 2022, "Classifier-Free Diffusion Guidance"; of audio tokens, Kreuk et al.
    2022, "AudioGen", and Copet et al. 2023, "Simple and Controllable Music Generation".
    """
    guided = unconditional + guidance * (conditional - unconditional)
    # Of two that are -inf, the difference is not a number.
    return guided.masked_fill_(conditional == -math.inf, -math.inf)


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Exclude the tail of each row (..., V'): keep the fewest codes whose probability is `top_p`.

    The most probable code always stays.

    Source: Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration" (nucleus).
    """
    ordered, indices = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # what the better codes add up to
    ordered = ordered.masked_fill(before >= top_p, -math.inf)
    return torch.empty_like(logits).scatter_(-1, indices, ordered)


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """Exclude from each row (..., V') the codes less probable than `min_p` times the most probable.

    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM
    Outputs".
    """
    # In logarithms it takes no softmax.
    least = logits.amax(dim=-1, keepdim=True) + math.log(min_p)
    return logits.masked_fill(logits < least, -math.inf)


def sample_noise(
    generators: list[torch.Generator], num_codebooks: int, num_outputs: int, again: bool = False
) -> Tensor:
    """(B, K, V') exponential noise, row b from the generator of sample b.

    A sample's noise depends on its own seed and on how often it has sampled, not on its batch.
    It is sampled on the CPU, so that a seed means the same on every device.

    Args:
        generators: B, one a sample.
        num_codebooks: K.
        num_outputs: V'.
        again: (B, K + 1, V') instead: codebook 0 may be sampled a second time, from the last row.
    """
    noise = torch.empty(len(generators), num_codebooks + again, num_outputs)
    for row, generator in zip(noise, generators, strict=True):
        # 0, once in 17 million times, would be infinite noise: below even a code that is excluded.
        row.uniform_(1e-30, 1, generator=generator)
    # Of uniform numbers below 1 the negative logarithm is exponential, and never 0; this takes a
    # third of the time of torch's `exponential_`.
    return noise.log_().neg_()


def sample_codes(
    logits: Tensor, noise: Tensor, sampling: Sampling = PLAIN, recent: Tensor | None = None
) -> Tensor:
    """Sample one code a row.

    With `recent`, a code of codebook 0 that repeats is sampled again, whatever the settings, from
    the distribution as it is: of all codes, at temperature 1. The second one holds, even if it is
    the same. So a loop, which narrow settings deepen, has a way out.

    Source: Chen et al. 2024, "VALL-E 2: Neural Codec Language Models are Human Parity Zero-Shot
    Text to Speech Synthesizers", repetition aware sampling.

    Args:
        logits: (B, K, V'); excluded codes have -inf, but not all of a row.
        noise: (B, K, V'), or (B, K + 1, V') with `recent`; from `sample_noise`.
        sampling: of the settings, not `guidance` and `end`, which come before.
        recent: (B, W), the codes of codebook 0 sampled last, in any order; -1 where there are none
            yet. None for no such rule.

    Returns:
        (B, K) int64.
    """
    noise = noise.to(logits.device)
    if recent is None:
        return _sample(logits, noise, sampling)
    codes = _sample(logits, noise[:, :-1], sampling)
    window = recent.shape[-1]
    # By division, not by multiplication, with which 7 would be below 0.07 of 100.
    often = next(n for n in range(1, window + 1) if n / window >= sampling.repetition_share)
    repeats = (recent == codes[:, :1]).sum(dim=-1) >= often
    if repeats.any():
        codes[repeats, 0] = _best(logits[repeats, 0].float(), noise[repeats, -1])
    return codes


def _sample(logits: Tensor, noise: Tensor, sampling: Sampling) -> Tensor:
    """Sample codes (B, K) from logits (B, K, V') by noise (B, K, V')."""
    if sampling.greedy:
        return logits.argmax(dim=-1)
    scores = logits.float()
    if isinstance(sampling.temperature, Sequence):
        scores = scores / scores.new_tensor(sampling.temperature)[:, None]
    else:
        scores = scores / sampling.temperature
    kept = None
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        # Only those kept need a look. Exactly k, also among equal ones.
        scores, kept = scores.topk(sampling.top_k, dim=-1, sorted=False)
        noise = noise.gather(-1, kept)
    if sampling.top_p is not None and sampling.top_p < 1:
        scores = keep_top_p(scores, sampling.top_p)
    if sampling.min_p is not None:
        scores = keep_min_p(scores, sampling.min_p)
    best = _best(scores, noise)
    return best if kept is None else kept.gather(-1, best[..., None])[..., 0]


def _best(scores: Tensor, noise: Tensor) -> Tensor:
    """Sample from the softmax of scores (..., V'): indices (...)."""
    # argmax p_i / e_i with exponential e_i is a sample of p (the Gumbel-max trick, Gumbel 1954);
    # unlike torch.multinomial it takes noise from outside, one stream a sample. In logarithms it
    # takes no softmax: log p_i is the score but for what all of a row have in common.
    return (scores - noise.log()).argmax(dim=-1)


def check_sampling(
    sampling: Sampling, model: AudioLM, vocabulary: ConditionVocabulary | None
) -> None:
    """Refuse settings that do not fit a model, before anything is trained or generated.

    Raises:
        ValueError: for temperatures that are not one a codebook, and for guidance of a model that
            is unconditional, or never had conditions dropped.
    """
    sampling.check(model.num_codebooks)
    if sampling.guidance == 1:
        return
    if vocabulary is None:
        raise ValueError(
            f"guidance={sampling.guidance} is for a model that was trained with "
            f"conditions, and this one was not; omit it, or train with conditioning=label or "
            f"conditioning=text"
        )
    if vocabulary.drop == 0:
        raise ValueError(
            f"guidance={sampling.guidance} needs a model that was trained with "
            f"conditioning.drop above 0, this one had 0; omit it"
        )
