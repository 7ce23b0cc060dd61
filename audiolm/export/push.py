"""Put an exported folder on the Hugging Face hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from audiolm.files import one_line
from audiolm.hub import FILES, INSTALL, HubName


def check_pushable(repository: str) -> HubName:
    """The repository OWNER/NAME, once it is known that something may be pushed at all.

    Raises:
        ValueError: it is not such a name, the package is not installed, or nobody is logged in.
    """
    name = HubName.parse(repository)
    if name.revision is not None:
        raise ValueError(f"push={one_line(repository)} names a revision; give OWNER/NAME alone")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ValueError(f"push={repository} needs the package huggingface_hub; {INSTALL}")
    from huggingface_hub import get_token

    if get_token() is None:
        raise ValueError(
            f"push={repository}: nobody is logged in to the hub; run hf auth login, or set HF_TOKEN"
        )
    return name


def push_folder(folder: Path, repository: str, private: bool = False) -> str:
    """Upload an exported folder, data alone; the address of the page.

    Args:
        folder: which `export_model` wrote.
        repository: OWNER/NAME; it is made where it is not there yet.
        private: whether a new one is for its owner alone.

    Raises:
        ValueError: as `check_pushable`.
        OSError: it could not be uploaded; the folder stays.
    """
    name = check_pushable(repository)
    from huggingface_hub import HfApi

    hub = HfApi(library_name="audiolm")
    try:
        hub.create_repo(name.repository, private=private, exist_ok=True)
        hub.upload_folder(
            repo_id=name.repository,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message="Export of audiolm",
        )
    except Exception as error:  # of the network, of the hub, of what was not allowed
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise OSError(
            f"{one_line(folder)} was not pushed to {name.repository}: {reason}; it is written, and "
            f"pushed again by ckpt_path={one_line(folder)} push={name.repository}"
        ) from error
    return f"https://huggingface.co/{name.repository}"
