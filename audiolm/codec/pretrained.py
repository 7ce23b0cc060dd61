"""Meta's pretrained EnCodec models: what they are, and where their weights come from.

Weights are the `encodec` package's own files, under Meta's terms.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from encodec.model import ROOT_URL
from torch import Tensor

from audiolm.files import sha256_of, user_path


class Pretrained(NamedTuple):
    """One pretrained model."""

    file: str
    sha256: str  # the first digits
    settings: Mapping[str, Any]
    bandwidths: Mapping[float, int]  # kbit/s to the number of the network's codebooks


_SHAPE = {
    "n_filters": 32,
    "dimension": 128,
    "ratios": [8, 5, 4, 2],
    "n_residual_layers": 1,
    "true_skip": False,
    "compress": 2,
    "lstm": 2,
    "bins": 1024,
}
PRETRAINED: dict[str, Pretrained] = {
    "encodec_24khz": Pretrained(
        file="encodec_24khz-d7cc33bc.th",
        sha256="d7cc33bc",
        settings={
            **_SHAPE,
            "sample_rate": 24_000,
            "channels": 1,
            "causal": True,
            "norm": "weight_norm",
            "n_q": 32,
        },
        bandwidths={1.5: 2, 3.0: 4, 6.0: 8, 12.0: 16, 24.0: 32},
    ),
    "encodec_48khz": Pretrained(
        file="encodec_48khz-7e698e3e.th",
        sha256="7e698e3e",
        settings={
            **_SHAPE,
            "sample_rate": 48_000,
            "channels": 2,
            "causal": False,
            "norm": "time_group_norm",
            "n_q": 16,
            "segment": 1.0,
        },
        bandwidths={3.0: 2, 6.0: 4, 12.0: 8, 24.0: 16},
    ),
}


def read_pretrained(model: Pretrained, repository: str | Path | None) -> dict[str, Tensor]:
    """Read a pretrained model's weights, after a check of the file's SHA-256.

    Args:
        model: an entry of `PRETRAINED`.
        repository: a folder that holds the file under its own name; None looks in torch hub's cache
            and downloads it there at first, with a progress bar.

    Raises:
        FileNotFoundError: no file, and no network to get it from.
        ValueError: the file is not the one that it should be; one line.
    """
    if repository is not None:
        file = user_path(repository) / model.file
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file; put {ROOT_URL}{model.file} there")
    else:
        file = Path(torch.hub.get_dir()) / "checkpoints" / model.file
        if not file.is_file():
            _download(model, file)
    _check_sha256(file, model.sha256)
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{file}: not a file of weights ({reason}); get it again") from error
    if not isinstance(weights, dict):
        raise ValueError(f"{file}: holds {type(weights).__name__}, not a state dict; get it again")
    return weights


def _download(model: Pretrained, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Writes to a temporary name beside `file` and checks it before it gets its own.
        torch.hub.download_url_to_file(ROOT_URL + model.file, str(file), hash_prefix=model.sha256)
    except OSError as error:  # URLError is one
        raise FileNotFoundError(
            f"{model.file}: not in {file.parent}, and no download ({error}); put "
            f"{ROOT_URL}{model.file} into a folder DIR and say codec.repository=DIR"
        ) from error
    except RuntimeError as error:
        raise ValueError(f"{model.file}: the download is damaged ({error}); try again") from error


def _check_sha256(file: Path, prefix: str) -> None:
    actual = sha256_of(file)[: len(prefix)]
    if actual != prefix:
        raise ValueError(
            f"{file}: SHA-256 begins {actual}, should begin {prefix}: not the whole file; "
            "delete it and get it again"
        )
