"""From a name, a file or a checkpoint's record to a codec that is ready for use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audiolm.codec.encodec import EncodecCodec
from audiolm.codec.local import find_pairs, read_pair
from audiolm.codec.pretrained import PRETRAINED, read_pretrained
from audiolm.codec.transformers import read_transformers
from audiolm.files import user_path
from audiolm.hub import hub_folder, is_hub_name

BUNDLED = Path(__file__).parent / "bundled"
"""Folder of the codec that comes with the package; see the model card there."""

BUNDLED_BEFORE = ("422747b0020321cf", "7a3ba2f296749636")
"""Fingerprints of the codecs that came with the package before this one."""


def load_pretrained(
    name: str, bandwidth: float, repository: str | Path | None = None
) -> EncodecCodec:
    """Load one of Meta's models.

    Args:
        name: `encodec_24khz` (mono, 75 frames/s) or `encodec_48khz` (stereo, 150 frames/s).
        bandwidth: kbit/s, chooses the number of codebooks: 24 kHz 1.5, 3, 6, 12, 24 for K = 2, 4,
            8, 16, 32; 48 kHz 3, 6, 12, 24 for K = 2, 4, 8, 16 and one more for the level.
        repository: folder that holds the package's own file; None for torch hub's cache, where
            it is downloaded to at first use.

    Raises:
        ValueError: unknown name or bandwidth, or a damaged file.
        FileNotFoundError: no file and no network; the message says which file to put where.
    """
    if name not in PRETRAINED:
        raise ValueError(f"codec name={name!r}: the pretrained ones are {', '.join(PRETRAINED)}")
    model = PRETRAINED[name]
    if isinstance(bandwidth, bool) or bandwidth not in model.bandwidths:
        right = ", ".join(f"{b:g}" for b in model.bandwidths)
        raise ValueError(f"bandwidth={bandwidth!r} kbit/s: {name} has {right}")
    weights = read_pretrained(model, repository)
    level = 1 if model.settings.get("segment") is not None else 0
    try:
        return EncodecCodec(
            model.settings,
            weights,
            num_codebooks=model.bandwidths[bandwidth] + level,
            source={"kind": "pretrained", "name": name, "bandwidth": float(bandwidth)},
        )
    except ValueError as error:
        raise ValueError(f"{model.file}: {error}") from error


def load_local(path: str | Path, num_codebooks: int | None = None) -> EncodecCodec:
    """Load a codec of one's own from `NAME.safetensors` and `NAME.json`.

    Args:
        path: one of the two files, both without ending, or a folder that holds one pair.
        num_codebooks: K, of the first ones; by default all (with segments, the level included).

    Raises:
        FileNotFoundError: there is no pair.
        ValueError: the two cannot be read or do not belong together; one line.
    """
    pair = read_pair(path)
    try:
        codec = EncodecCodec(
            pair.settings,
            pair.weights,
            num_codebooks=num_codebooks,
            source={"kind": "local", "name": pair.stem.name},
        )
    except ValueError as error:
        raise ValueError(f"{pair.stem}: {error}") from error
    if pair.fingerprint not in (None, codec.fingerprint):
        raise ValueError(
            f"{pair.stem}: fingerprint is {codec.fingerprint}, was {pair.fingerprint} when saved: "
            "weights and settings are not from one save; copy both again"
        )
    return codec


def load_transformers(name: str, num_codebooks: int | None = None) -> EncodecCodec:
    """Load an EnCodec from the files of transformers, of any rate; a run keeps its own copy.

    Args:
        name: a folder, or hf://OWNER/NAME, such as hf://facebook/encodec_32khz.
        num_codebooks: K, of the first ones; by default all (with segments, the level included).

    Raises:
        FileNotFoundError: there is no such folder, or it cannot be downloaded.
        ValueError: it cannot be read, or is of another kind than EnCodec; one line.
    """
    folder = hub_folder(name) if is_hub_name(name) else user_path(name)
    return read_transformers(folder, num_codebooks)


def load_bundled(num_codebooks: int | None = None) -> EncodecCodec:
    """Load the small codec that comes with the package: 16 kHz mono, 50 frames/s.

    For the demo, for tests and for trials; its model card has its metrics and its limits.

    Args:
        num_codebooks: K, of the first ones; by default all.

    Raises:
        ValueError: it has not so many codebooks.
    """
    return load_local(BUNDLED, num_codebooks)


def load_codec(
    identity: Mapping[str, Any],
    folders: Sequence[str | Path],
    repository: str | Path | None = None,
) -> EncodecCodec:
    """Load the codec that a checkpoint or a store names, with the same number of codebooks.

    Args:
        identity: what `EncodecCodec.identity` gave.
        folders: where a local codec's pair may lie, besides the package; the first of the same
            fingerprint is taken.
        repository: see `load_pretrained`.

    Raises:
        ValueError: the codec found is another (the message has both fingerprints), or `identity` is
        none.
        FileNotFoundError: none was found.
    """
    try:
        kind, name, wanted = identity["kind"], identity["name"], identity["fingerprint"]
        num_codebooks = identity["num_codebooks"]
        bandwidth = identity["bandwidth"] if kind == "pretrained" else None
    except KeyError as error:
        raise ValueError(f"codec identity without {error}: not written by this package") from error
    if bandwidth is not None:
        codec = load_pretrained(name, bandwidth, repository)
        if codec.fingerprint != wanted:
            raise ValueError(
                f"codec {name}: fingerprint is {codec.fingerprint}, needed is {wanted}: "
                f"other weights; use the file {PRETRAINED[name].file} that was used then"
            )
        return codec
    seen: list[str] = []
    for pair in (pair for folder in (*folders, BUNDLED) for pair in find_pairs(user_path(folder))):
        try:
            codec = load_local(pair)
        except ValueError as error:
            seen.append(str(error))
            continue
        if codec.fingerprint == wanted:
            return (
                codec if codec.num_codebooks == num_codebooks else load_local(pair, num_codebooks)
            )
        if pair.parent != BUNDLED:  # which nobody put there for this
            seen.append(f"{pair} is {codec.fingerprint}")
    where = ", ".join(str(f) for f in folders) or "no folder"
    message = f"codec {name!r} with fingerprint {wanted} is not in {where}"
    remedy = f"put its pair ({name}.safetensors, {name}.json) there"
    if wanted in BUNDLED_BEFORE:
        raise ValueError(
            f"{message}: it came with audiolm before, and another one does now; encode the "
            f"recordings again with prepare.py and train on that, or {remedy}, as the folder codec "
            f"of a run from then has it"
        )
    if seen:
        raise ValueError(f"{message}: {'; '.join(seen)}; {remedy}")
    raise FileNotFoundError(f"{message}: {remedy}")
