"""Word error rates of a codec's sound: what a recogniser understands, by texts that are known.

The recogniser expects pairs of words as they occur in a collection of texts, of which those that
are said are a small part (see bigrams.py). Its language is English.

N audio samples.
"""

from __future__ import annotations

import csv
import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from audiolm.audio import find_audio_files
from audiolm.evaluation.speech.bigrams import write_bigrams
from audiolm.evaluation.speech.recogniser import SpeechRecogniser, spoken_words, word_error_rate

METADATA = "metadata.csv"
"""In a kind's folder, with the columns file_name and text: what is said in its clips."""


class WordMetric:
    """The word error rate of clips of known texts.

    Args:
        said: the words of each clip; none for a clip that is not to count.
        collection: texts, as words, whose pairs of words the recogniser expects.

    Raises:
        ValueError: no clip has a text, or pocketsphinx is not installed.
    """

    def __init__(self, said: Sequence[Sequence[str]], collection: Iterable[Sequence[str]]) -> None:
        self.said = [list(words) for words in said]
        self.num_words = sum(map(len, self.said))
        if not self.num_words:
            raise ValueError("no clip has a text: a word error rate needs at least one")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "collection.arpa"
            write_bigrams(collection, file)
            self._recogniser = SpeechRecogniser(file)
            # Whatever the rate depends on but for the clips.
            key = hashlib.sha256(file.read_bytes() + repr(self.said).encode())
        self.key = key.hexdigest()

    def rate(self, clips: Sequence[Tensor], sample_rate: int) -> float:
        """Word errors a word that is said, of clips (1, n_i), one a text, in their order."""
        return word_error_rate(
            [
                (words, self._recogniser.words(clip, sample_rate))
                for words, clip in zip(self.said, clips, strict=True)
                if words
            ]
        )


def load_word_metrics(
    audio: Path, kinds: Iterable[str], texts: Mapping[str, Path]
) -> dict[str, WordMetric]:
    """The metrics of those kinds of `audio`, each a subfolder of clips, whose texts are known.

    What is said stands in a kind's `METADATA`, and in `texts[kind]` where that is such a table.

    Args:
        texts: by kind, a file of what might be said: a table (.csv) with a column text, or a text
            a line. By default that of the kind's `METADATA`.

    Raises:
        ValueError, OSError: a file cannot be read, or names no clip; pocketsphinx is missing.
    """
    metrics = {}
    for kind in kinds:
        said = _read_table(audio / kind / METADATA) if (audio / kind / METADATA).is_file() else {}
        collection = list(said.values())
        if kind in texts:
            if texts[kind].suffix == ".csv":
                table = _read_table(texts[kind])
                said, collection = table | said, list(table.values())
                if not table:
                    raise ValueError(f"{texts[kind]}: has no columns file_name and text")
            else:
                collection = texts[kind].read_text(encoding="utf-8").splitlines()
        if not said:
            continue
        names = [_name(p.relative_to(audio / kind)) for p in find_audio_files(audio / kind)]
        words = [spoken_words(said.get(name, "")) for name in names]
        if not any(words):
            raise ValueError(f"{audio / kind}: its texts are of none of its {len(names)} clips")
        metrics[kind] = WordMetric(words, [spoken_words(text) for text in collection])
    return metrics


def _read_table(path: Path) -> dict[str, str]:
    """Texts by the names of clips without suffix; none where the table has no such columns."""
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        if not {"file_name", "text"} <= set(table.fieldnames or ()):
            return {}
        return {_name(Path(row["file_name"])): row["text"] or "" for row in table}


def _name(path: Path) -> str:
    return path.with_suffix("").as_posix()
