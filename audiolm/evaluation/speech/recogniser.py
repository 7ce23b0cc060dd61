"""What was said? Words by pocketsphinx, and how far they are from those that should have been said.

    pip install pocketsphinx

Its wheel carries an English model: narrow (2014, no neural network), but the same for everybody
and without a download. A word error rate by it says little alone; beside that of the real
recordings and of their reconstructions it says what a model's samples lack.

N audio samples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from audiolm.audio import pcm_16, resample

RATE = 16000
"""Hz at which pocketsphinx listens."""

_PEAK = 0.9  # to which clips are scaled
_ASIDES = re.compile(r"\[[^]]*\]|\([^)]*\)|<[^>]*>")  # [ascending tones]: described, not spoken
_SPELT = re.compile(r"\b[A-Z](?:\.?[A-Z])+\b\.?")  # IVR, A.M.
_SIGNS = {"*": " star ", "#": " pound ", "&": " and ", "-": " ", "\u2019": "'"}
# fmt: off
_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
# fmt: on
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def spoken_words(text: str) -> list[str]:
    """The words that somebody who reads `text` says, in small letters, without punctuation.

    Bracketed asides are omitted, abbreviations in capitals are spelt, `*` and `#` are "star" and
    "pound", numbers below a hundred are words and longer ones are read digit by digit. Both the
    text and what was recognised go through it, so that they are compared in one form.
    """
    text = _ASIDES.sub(" ", text)
    text = _SPELT.sub(lambda match: " ".join(match[0].replace(".", "")), text)
    for sign, word in _SIGNS.items():
        text = text.replace(sign, word)
    text = re.sub(r"\d+", lambda match: f" {_number(match[0])} ", text).casefold()
    words = (word.strip("'") for word in re.findall(r"[^\W_]+(?:'[^\W_]+)*'?", text))
    return [word for word in words if word]


def _number(digits: str) -> str:
    if len(digits) > 2 or digits[0] == "0":
        return " ".join(_ONES[int(digit)] for digit in digits)
    number = int(digits)
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f" {_ONES[ones]}" if ones else "")


def word_errors(wanted: Sequence[str], recognised: Sequence[str]) -> int:
    """Fewest words to replace, put in or take out of `recognised` to get `wanted` (Levenshtein)."""
    row = list(range(len(recognised) + 1))
    for i, word in enumerate(wanted, start=1):
        above, row[0] = row[0], i
        for j, other in enumerate(recognised, start=1):
            best = min(above + (word != other), row[j] + 1, row[j - 1] + 1)
            above, row[j] = row[j], best
    return row[-1]


def word_error_rate(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """Word errors of all (wanted, recognised) together, a wanted word. Above 1 where much is added.

    Raises:
        ValueError: no word is wanted.
    """
    words = sum(len(wanted) for wanted, _ in pairs)
    if not words:
        raise ValueError("no words to compare with: a word error rate needs at least one")
    return sum(word_errors(wanted, recognised) for wanted, recognised in pairs) / words


class SpeechRecogniser:
    """pocketsphinx as it comes: its own model of English sounds, its beams and its weights.

    On 60 real recordings of telephone prompts its word error rate was 23.4%; with the language
    model weighted by 8 or 5 instead of 6.5 it was 22.0% and 23.6%, with 0.2 s of silence around
    each clip 23.8%. Nothing gained enough for a setting of our own. With a language model of all
    the prompts it was 4.0%.

    Args:
        language_model: an ARPA file; None for pocketsphinx' own, of English in general.

    Raises:
        ValueError: pocketsphinx is not installed.
    """

    def __init__(self, language_model: Path | None = None) -> None:
        try:
            import pocketsphinx
        except ImportError as error:
            raise ValueError(
                "there is no pocketsphinx to tell what was said; pip install pocketsphinx"
            ) from error
        settings = {} if language_model is None else {"lm": str(language_model)}
        self._decoder = pocketsphinx.Decoder(samprate=float(RATE), loglevel="FATAL", **settings)

    def words(self, waveform: Tensor, sample_rate: int) -> list[str]:
        """The words of a clip (1, N) at `sample_rate` Hz; none where there is no speech.

        Clips before it make no difference, nor does its gain.
        """
        clip = resample(waveform, sample_rate, RATE)
        clip = clip * (_PEAK / clip.abs().max().clamp(min=1e-6))
        self._decoder.start_utt()
        self._decoder.process_raw(pcm_16(clip).data, full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return spoken_words(re.sub(r"\(\d+\)", "", found.hypstr)) if found else []
