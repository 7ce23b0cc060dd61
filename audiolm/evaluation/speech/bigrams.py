"""A language model of word pairs, in the ARPA format that speech recognisers read.

w a word, h the word before it, c(h w) how often the pair occurs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from audiolm.files import replacing

BEGIN, END = "<s>", "</s>"

_DISCOUNT = 0.5  # of each pair's count, for the pairs that do not occur


def write_bigrams(sentences: Iterable[Sequence[str]], path: Path) -> None:
    """The pairs of words in the sentences, with absolute discounting and back-off to single words.

        p(w | h) = (c(h w) - 0.5) / c(h)      where the pair occurs, else b(h) p(w)

    b(h) makes the sum over all w one. p(w) counts each word once more than it occurs.
    Source: Ney, Essen and Kneser 1994, "On structuring probabilistic dependences", section 4.

    Raises:
        ValueError: there is no word.
        OSError: the file cannot be written.
    """
    pairs = Counter(pair for words in sentences for pair in pairwise([BEGIN, *words, END]) if words)
    if not pairs:
        raise ValueError("no words to make a language model of; give at least one sentence")
    before, after = Counter[str](), Counter[str]()
    following: dict[str, list[str]] = {}
    for (h, w), count in sorted(pairs.items()):
        before[h] += count
        after[w] += count
        following.setdefault(h, []).append(w)
    total = sum(after.values()) + len(after)
    single = {w: (after[w] + 1) / total for w in after}
    lines = ["", "\\data\\", f"ngram 1={len(after) + 1}", f"ngram 2={len(pairs)}", "", "\\1-grams:"]
    for w in sorted({BEGIN, *single}):
        freed = _DISCOUNT * len(following.get(w, [])) / max(1, before[w])
        left = 1 - sum(single[x] for x in following.get(w, []))
        # Where every word follows, none is left to back off to.
        back_off = freed / left if left > 1e-9 else 1.0
        chance = _log(single[w]) if w in single else "-99"  # nothing comes before the beginning
        lines.append(f"{chance} {w}" + (f" {_log(back_off)}" if w in following else ""))
    lines += ["", "\\2-grams:"]
    lines += [
        f"{_log((count - _DISCOUNT) / before[h])} {h} {w}"
        for (h, w), count in sorted(pairs.items())
    ]
    lines += ["", "\\end\\", ""]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")


def _log(probability: float) -> str:
    return f"{math.log10(probability):.6f}"
