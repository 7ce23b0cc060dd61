"""How near a codec's sound is to the original, of kinds of sound.

C = 1 audio channel, N audio samples, K codebooks, T codec frames, V codes in a codebook.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from audiolm.codec.distances import mel_distance, si_snr
from audiolm.evaluation.codec.evaluated import Evaluated, kbps_of
from audiolm.evaluation.codec.spectral_shape import TELEPHONE, shape_r2
from audiolm.evaluation.digits.classifier import DigitClassifier, recognise
from audiolm.evaluation.speech.word_metric import WordMetric

DIGITS = "digits"
"""The kind whose clips are validation digits."""

STOI_SECONDS = 10.0
"""Clips are joined to pieces of this length: STOI needs 0.4 s of sound, more than most digits."""


_TOO_LITTLE = 1e-5  # what pystoi returns, with a warning, where there is too little sound

Clips = list[Tensor]
"""Clips (1, n_i) at one sample rate."""


@dataclass
class Measures:
    """How near a codec's sound is to the original, of one kind of sound. Means over clips."""

    si_snr: float
    """dB."""
    mel_distance: float
    """dB, see `audiolm.codec.distances`."""
    stoi: float | None
    """0 to 1; None without pystoi. Defined for speech, of little meaning for music."""
    recognised: float | None
    """Of the digits recognised in the originals, the share recognised still; None for others."""
    shape_r2: float | None = None
    """Of the shape of the spectrum above 1 kHz, see spectral_shape.py; None for silence."""
    telephone_r2: float | None = None
    """The same up to 3.6 kHz only."""
    word_error_rate: float | None = None
    """Errors a word that is said; None for kinds of unknown texts."""


@dataclass
class Row:
    """One codec at one rate on every kind."""

    name: str
    kbps: float
    """kbit/s; 0 where nothing is coded."""
    kinds: dict[str, Measures]


class Metrics:
    """Measure clips against their originals, both at ``sample_rate`` Hz.

    Args:
        labels: of the clips of kind `DIGITS`, in their order.
        classifier: recognises digits; needed where there are labels.
        words: the metrics of the kinds whose texts are known.
    """

    def __init__(
        self,
        sample_rate: int,
        labels: Sequence[int] = (),
        classifier: DigitClassifier | None = None,
        words: Mapping[str, WordMetric] | None = None,
    ) -> None:
        self.sample_rate = sample_rate
        self.words = words or {}
        self.labels = torch.tensor(labels)
        self.classifier = classifier

    def scored(self, clips: Clips) -> Tensor:
        """Which of the digits are recognised: (B,) bool."""
        assert self.classifier is not None
        return recognise(self.classifier, clips, self.sample_rate) == self.labels

    def measure(self, kind: str, originals: Clips, decoded: Clips) -> Measures:
        """Compare ``decoded`` (1, n_i) with ``originals`` (1, n_i), clip by clip."""
        pairs = list(zip(decoded, originals, strict=True))
        recognised = None
        if kind == DIGITS and self.classifier is not None:
            known = self.scored(originals)
            recognised = float(self.scored(decoded)[known].float().mean())
        return Measures(
            si_snr=_mean([float(si_snr(d[None], o[None]).mean()) for d, o in pairs]),
            mel_distance=_mean(
                [float(mel_distance(d[None], o[None], self.sample_rate)) for d, o in pairs]
            ),
            stoi=intelligibility(originals, decoded, self.sample_rate),
            recognised=recognised,
            shape_r2=shape_r2(originals, decoded, self.sample_rate),
            telephone_r2=shape_r2(originals, decoded, self.sample_rate, TELEPHONE),
            word_error_rate=(
                self.words[kind].rate(decoded, self.sample_rate) if kind in self.words else None
            ),
        )


def intelligibility(originals: Clips, decoded: Clips, sample_rate: int) -> float | None:
    """Mean STOI (Taal et al., 2011) of the clips, joined and cut to pieces of `STOI_SECONDS`.

    None where pystoi is not installed or there is too little sound to tell.
    """
    if find_spec("pystoi") is None:
        return None
    from pystoi import stoi

    length = round(STOI_SECONDS * sample_rate)
    joined = torch.cat(originals, dim=1)[0], torch.cat(decoded, dim=1)[0]
    scores = []
    for original, scored in zip(*(torch.split(x.double(), length) for x in joined), strict=True):
        # A rest of less than a second holds too few of the frames that STOI correlates.
        if len(original) < sample_rate or not original.any():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            score = float(stoi(original.numpy(), scored.numpy(), sample_rate))
        if score != _TOO_LITTLE:
            scores.append(score)
    return _mean(scores) if scores else None


def perplexities(codes: Sequence[Tensor], codebook_size: int) -> list[float]:
    """How many codes of each codebook are in use: exp(entropy), 1 to V, of codes (K, t_i)."""
    joined = torch.cat(list(codes), dim=1)
    result = []
    for book in joined:
        share = torch.bincount(book, minlength=codebook_size).double() / len(book)
        result.append(float(torch.special.entr(share).sum().exp()))
    return result


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def evaluate(
    codec: Evaluated, kinds: Mapping[str, Clips], metrics: Metrics
) -> tuple[Row, list[float]]:
    """Encode and decode every clip; return the codec's row and each codebook's perplexity."""
    measures, every = {}, []
    for kind, clips in kinds.items():
        codes = codec.encode_batch(clips)
        decoded = [codec.decode(c[None], w.shape[1])[0] for c, w in zip(codes, clips, strict=True)]
        measures[kind] = metrics.measure(kind, clips, decoded)
        every += codes
    if not codec.num_codebooks:
        return Row("this codec, no quantization", 0.0, measures), []
    row = Row(f"this codec, K = {codec.num_codebooks}", kbps_of(codec), measures)
    return row, perplexities(every, codec.codebook_size)
