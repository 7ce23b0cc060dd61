"""Files as tables name them: in another Unicode form, or with the separators of Windows."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path


class FileNames:
    """Finds files below a folder, looking through each folder once.

    A name that is there as it stands is that file. Else it is the one file whose name is the same
    up to its Unicode form (macOS decomposes, others compose), with `\\\\` for `/` too; where there
    are several, or none, it is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listings: dict[Path, dict[str, list[str]]] = {}

    def find(self, name: str) -> Path:
        """The path of a file relative to the folder, or absolute; as named where there is none."""
        named = Path(os.path.normpath(self._folder / name))
        if os.path.lexists(named.as_posix().replace("\0", "")):
            return named
        for form in dict.fromkeys((name, name.replace("\\", "/"))):
            found = self._walk(Path(os.path.normpath(self._folder / form)))
            if found is not None:
                return found
        return named

    def _walk(self, path: Path) -> Path | None:
        """The file of this path up to the form of each name in it."""
        if not path.is_relative_to(self._folder):
            return None
        current = self._folder
        for part in path.relative_to(self._folder).parts:
            there = self._listing(current).get(_form(part), [])
            if part in there:
                current = current / part
            elif len(there) == 1:
                current = current / there[0]
            else:
                return None
        return current

    def _listing(self, folder: Path) -> dict[str, list[str]]:
        """The names in a folder, by their form."""
        listing = self._listings.get(folder)
        if listing is None:
            listing = self._listings[folder] = {}
            try:
                for name in os.listdir(folder):
                    listing.setdefault(_form(name), []).append(name)
            except OSError:
                pass  # no folder, or none that may be read: nothing in it is found
        return listing


def _form(name: str) -> str:
    return unicodedata.normalize("NFC", name)
