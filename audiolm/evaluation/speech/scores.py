"""What recognisers understand of clips of which the sentences are known.

N audio samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from audiolm.audio import write_wav
from audiolm.evaluation.speech.bigrams import write_bigrams
from audiolm.evaluation.speech.recogniser import SpeechRecogniser, word_error_rate
from audiolm.evaluation.speech.sentences import TRAINING, VALIDATION, Sentence

GENERAL, COLLECTION = "general", "collection"
"""Language models of the recogniser."""


@dataclass
class Rates:
    """Word error rates by one language model."""

    training: float
    validation: float | None
    """None where the validation part has no sentence."""
    understood: dict[str, str]
    """By the clip's id."""


@dataclass
class Row:
    """One kind of clips."""

    rates: dict[str, Rates]
    """By the name of the language model."""
    seconds: float
    """Of all clips together."""
    ended: int | None = None
    """Samples that ended by themselves; None for recordings."""


class SentenceScorer:
    """Score clips of the chosen sentences, and keep them below `out` as WAVs.

    texts: of the whole collection, as words. language_models: `GENERAL`, `COLLECTION` or both.
    """

    def __init__(
        self,
        sentences: Mapping[str, Sequence[Sentence]],
        texts: Iterable[Sequence[str]],
        out: Path,
        language_models: Sequence[str],
    ) -> None:
        self.sentences = [one for part in (TRAINING, VALIDATION) for one in sentences[part]]
        self._num_training = len(sentences[TRAINING])
        self._out = out
        write_bigrams(texts, out / "collection.arpa")
        files = {GENERAL: None, COLLECTION: out / "collection.arpa"}
        self._recognisers = {name: SpeechRecogniser(files[name]) for name in language_models}

    def score(
        self, name: str, clips: Sequence[Tensor], sample_rate: int, ended: int | None = None
    ) -> Row:
        """Clips (1, n_i) at `sample_rate` Hz, one a sentence, in their order."""
        for sentence, clip in zip(self.sentences, clips, strict=True):
            file = sentence.id.replace("/", "_") + ".wav"
            write_wav(self._out / name.replace(" ", "_") / file, clip, sample_rate)
        rates = {}
        for model, recogniser in self._recognisers.items():
            understood = [recogniser.words(clip, sample_rate) for clip in clips]
            pairs = [
                (one.words, words) for one, words in zip(self.sentences, understood, strict=True)
            ]
            validation = pairs[self._num_training :]
            rates[model] = Rates(
                word_error_rate(pairs[: self._num_training]),
                word_error_rate(validation) if validation else None,
                {
                    one.id: " ".join(words)
                    for one, words in zip(self.sentences, understood, strict=True)
                },
            )
        return Row(rates, sum(clip.shape[1] for clip in clips) / sample_rate, ended)
