"""What file names say: "7_jackson_32.wav" read by the pattern "{label}_{speaker}_{take}".

    {label}_{speaker}_{take}    7_jackson_32       label 7, speaker jackson, take 32
    {speaker}_{_}               p225_001_mic1      speaker p225; {_...} takes anything, unkept
    {label}/{_}                 rock/hips/01       label hips: the end of the path

A field is one or more characters but `/` and ends at the first position where the text after it in
the pattern follows; the last field holds none of the text before it. So there is one way to read a
name: "new_york_bob_3" does not match the first pattern, instead of giving the speaker "york".
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath

from audiolm.audio import AUDIO_SUFFIXES


class NamePattern:
    """A pattern on the name of a file without its suffix.

    A pattern with `/` is one on the end of the file's path below its collection's folder. Fields
    are names such as `speaker`; those that start with `_` match anything and are dropped.

    fields: the names of those that are kept.
    Raises ValueError for a pattern without fields, with unpaired braces, with a field that is no
    name or comes twice, with two fields side by side and with a suffix.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        # Text at even indices, fields at odd ones.
        parts = re.split(r"\{([^{}]*)\}", pattern)
        texts, names = parts[::2], parts[1::2]
        self.fields = tuple(name for name in names if not name.startswith("_"))
        if not names:
            raise ValueError(
                f"pattern {pattern!r} has no field; write such as '{{label}}_{{speaker}}'"
            )
        if any("{" in text or "}" in text for text in texts):
            raise ValueError(f"pattern {pattern!r} has a brace without its other one; pair them")
        for name in names:
            if not (name.isidentifier() and name.isascii()):
                raise ValueError(
                    f"pattern {pattern!r}: {name!r} is not a name of a field; use letters, digits "
                    "and _, such as {speaker}"
                )
            if self.fields.count(name) > 1:
                raise ValueError(
                    f"pattern {pattern!r} has the field {name} twice; rename one, or drop it by "
                    "the name {_}"
                )
        if not all(texts[1:-1]):
            raise ValueError(
                f"pattern {pattern!r} has two fields side by side; put the text that parts them "
                "between"
            )
        if Path(pattern).suffix.lower() in AUDIO_SUFFIXES:
            raise ValueError(
                f"pattern {pattern!r} ends in a suffix, which is not a part of the name; omit it"
            )
        whole = re.escape(texts[0])
        for i, name in enumerate(names):
            ends_at = texts[i + 1] or texts[i]
            whole += _field(name, ends_at) + re.escape(texts[i + 1])
        self._regex = re.compile(("(?:.*/)?" if "/" in pattern else "") + whole, re.DOTALL)

    def match(self, path: PurePath) -> dict[str, str] | None:
        """The fields of a path relative to its folder, by name; None where it does not match."""
        name = path.with_suffix("").as_posix() if "/" in self.pattern else path.stem
        found = self._regex.fullmatch(name)
        return None if found is None else found.groupdict()


def _field(name: str, ends_at: str) -> str:
    if name.startswith("_"):
        return "[^/]+?"
    stop = f"(?!{re.escape(ends_at)})" if ends_at else ""
    return f"(?P<{name}>(?:{stop}[^/])+)"
