"""Write a file so that it appears complete or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it takes ``path``'s place when all went well.

    Makes the folder. On any error the temporary file is removed and ``path`` is as it was; one of
    writing is an OSError that names ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is not None:
            raise
        # From a write, which does not know its file: most often, the disk is full.
        raise OSError(f"{path} could not be written ({error}); free some space there") from error
    finally:
        temporary.unlink(missing_ok=True)
