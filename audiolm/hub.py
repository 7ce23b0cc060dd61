"""Models that are published on the Hugging Face hub, as folders on this disk.

A name is hf://OWNER/NAME, or hf://OWNER/NAME@REVISION with a branch, tag or commit. What was
downloaded once lies in the hub's own cache, and is read there without a network, and also without
the package huggingface_hub:

    ~/.cache/huggingface/hub/models--OWNER--NAME/refs/REVISION       the commit of a branch
    ~/.cache/huggingface/hub/models--OWNER--NAME/snapshots/COMMIT/   its files
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from audiolm.files import one_line

SCHEME = "hf://"
FILES = ("*.json", "*.safetensors", "*.md", "samples/*")
"""What is downloaded: data alone, and nothing that code could be in."""
INSTALL = "run pip install -e '.[hub]'"

_NAME = re.compile(r"[\w.-]{1,96}")


class HubName(NamedTuple):
    """A published model: of whom, which, and which version of it; None for the newest."""

    owner: str
    name: str
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> HubName:
        """The one that hf://OWNER/NAME[@REVISION] says, with or without hf://.

        Raises:
            ValueError: it is not such a name.
        """
        repository, _, revision = text.removeprefix(SCHEME).partition("@")
        parts = repository.split("/")
        named = len(parts) == 2 and all(_NAME.fullmatch(p) and p.strip(".") for p in parts)
        # A revision is a path in refs/, and must not lead out of it.
        if not named or "@" in revision or ".." in revision or revision.startswith("/"):
            raise ValueError(
                f"{one_line(text)} is not a name on the hub; give one such as {SCHEME}OWNER/NAME, "
                f"or {SCHEME}OWNER/NAME@REVISION"
            )
        return cls(parts[0], parts[1], revision or None)

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}{'' if self.revision is None else f'@{self.revision}'}"


def is_hub_name(path: object) -> bool:
    """Whether it names a model on the hub, and not a path."""
    return isinstance(path, str) and path.startswith(SCHEME)


def hub_folder(name: str, files: Sequence[str] = FILES) -> Path:
    """The folder of a published model, which is downloaded where it is not there yet.

    Without a network, or with HF_HUB_OFFLINE=1, it is the one that was downloaded before.

    Args:
        name: hf://OWNER/NAME[@REVISION].
        files: patterns of those to download.

    Raises:
        ValueError: it is not such a name, or there is no such model.
        FileNotFoundError: it is not here and could not be downloaded, with the reason.
    """
    model = HubName.parse(name)
    reason = "HF_HUB_OFFLINE is set"
    if not _is_offline():
        if importlib.util.find_spec("huggingface_hub") is None:
            reason = f"the package huggingface_hub is not installed; {INSTALL}"
        else:
            try:
                return _download(model, files)
            except OSError as error:  # what the hub says no to are OSErrors too
                reason = " ".join(str(error).split())[:300] or type(error).__name__
    found = cached_folder(model)
    if found is None:
        raise FileNotFoundError(
            f"{one_line(name)} is not in {hub_cache()} and was not downloaded: {reason}; or "
            f"download its files elsewhere and pass their folder"
        )
    return found


def cached_folder(model: HubName) -> Path | None:
    """The folder of a model that was downloaded before; None where it was not."""
    home = hub_cache() / f"models--{model.owner}--{model.name}"
    revision = model.revision or "main"
    commits = [revision]
    with suppress(OSError, ValueError):  # no branch or tag, but perhaps a commit
        commits.insert(0, (home / "refs" / revision).read_text(encoding="utf-8").strip())
    folders = (home / "snapshots" / c for c in commits if re.fullmatch(r"[\w.-]+", c))
    return next((folder for folder in folders if folder.is_dir()), None)


def hub_cache() -> Path:
    """Where the hub's own programs keep what they download."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(os.path.expanduser(cache or os.path.join(home, "hub"))))


def model_of_snapshot(folder: Path) -> str | None:
    """OWNER--NAME of the model that this folder of the hub's cache is of; None for any other."""
    home = folder.absolute().parent.parent
    if folder.absolute().parent.name == "snapshots" and home.name.startswith("models--"):
        return home.name.removeprefix("models--")
    return None


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _download(model: HubName, files: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    folder = snapshot_download(
        model.repository, revision=model.revision, cache_dir=hub_cache(), allow_patterns=list(files)
    )
    return Path(folder)
