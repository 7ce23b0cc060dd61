"""Hugging Face datasets as a source of clips: their recordings as files, fetched once.

    folder/source.json                what is kept here
    folder/train/000000-NAME.wav      the recordings as the dataset has them, byte for byte
    folder/train/metadata.jsonl       one line a recording, once all of the split are there

From then on it is a folder like any other (`folder_clips`), and needs neither network nor the
package `datasets`, which is an extra. No code that comes with a dataset is run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from audiolm.audio import AUDIO_SUFFIXES
from audiolm.datasets.clip import Clip, Found, SkippedClip, split_name
from audiolm.datasets.folder import folder_clips
from audiolm.files import one_line, replacing, user_path

# The first bytes of files whose names lack a suffix; contents decide the format in any case.
_MAGIC = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg", b"ID3": ".mp3", b"\xff": ".mp3"}


def huggingface_clips(
    name: str,
    folder: str | Path,
    *,
    config: str | None = None,
    revision: str | None = None,
    column: str | None = None,
    splits: Sequence[str] | None = None,
) -> Iterator[Found]:
    """The recordings of a dataset, fetched to `folder` at the first time.

    name: of a dataset on the Hugging Face hub, or the path of one (a folder or file of parquet or
        arrow, or what `save_to_disk` wrote).
    config, revision: of the dataset, where it has several.
    column: the one with the recordings; None: the one that is of audio.
    splits: the dataset's splits to take. None: all that are called train, validation or test in
        some way (see `split_name`), or all where none is; others are listed as skipped. A split of
        another name, asked for here, gives clips that the hash of the id splits.
    Numbers, texts and class labels of a row go to the clip; other columns do not.

    The dataset is streamed: nothing of it is kept but the files in `folder`. A fetch that was
    stopped resumes at the recording it had come to.

    Raises, when the first clip is asked for, ValueError where the package `datasets` is missing and
    where the folder holds another dataset, and for a config, split or column that there is not;
    OSError where there is no such dataset or it cannot be reached.
    """
    return _clips(name, user_path(folder), config, revision, column, splits)


def _clips(
    name: str,
    folder: Path,
    config: str | None,
    revision: str | None,
    column: str | None,
    splits: Sequence[str] | None,
) -> Iterator[Found]:
    location = str(Path(name).resolve()) if Path(name).exists() else name
    source = {"name": location, "config": config, "revision": revision, "column": column}
    loaded: Mapping[str, Any] | None = None
    there = _read_splits(folder, source)
    if there is None:
        loaded = _load(location, config, revision)
        there = list(loaded)
        with replacing(folder / "source.json") as temporary:
            temporary.write_text(json.dumps({**source, "splits": there}, indent=1) + "\n")
    asked = [splits] if isinstance(splits, str) else splits
    for split in asked or ():
        if split not in there:
            raise ValueError(f"{name} has no split {split!r}; name some of {', '.join(there)}")
    wanted = asked or [split for split in there if split_name(split)] or there
    for split in wanted:
        if not (folder / _safe(split) / "metadata.jsonl").exists():
            loaded = loaded or _load(location, config, revision)
            _fetch(name, split, loaded[split], column, folder / _safe(split))
    # One by one: the folder may hold other splits, or parts of them, from an earlier call.
    for split in wanted:
        for clip in folder_clips(folder / _safe(split), parts=False):
            if isinstance(clip, Clip):
                clip = replace(clip, id=f"{_safe(split)}/{clip.id}")
            yield clip
    for split in there:
        if split not in wanted and not asked:
            reason = (
                f"split {split!r} is not one of train, valid and test; data.splits can ask for it"
            )
            yield SkippedClip(folder / _safe(split), reason)


def _read_splits(folder: Path, source: Mapping[str, str | None]) -> list[str] | None:
    """The splits of the dataset that the folder is for; None for one that holds nothing yet."""
    if not any(log.stat().st_size for log in folder.glob("*/*metadata.jsonl")):
        return None
    try:
        record = json.loads((folder / "source.json").read_text())
        splits: list[str] = record.pop("splits")
    except (FileNotFoundError, ValueError, KeyError):
        raise ValueError(
            f"{one_line(folder)} holds recordings from elsewhere; pass another data.path"
        ) from None
    for key, value in source.items():
        if record.get(key) != value:
            raise ValueError(
                f"{one_line(folder)} holds a dataset of {key} {record.get(key)!r} and not "
                f"{value!r}; pass another data.path"
            )
    return splits


def _load(name: str, config: str | None, revision: str | None) -> Mapping[str, Any]:
    """The dataset's splits, by name, not read yet."""
    try:
        import datasets
    except ImportError:
        raise ValueError(
            "Hugging Face datasets are read by the package datasets; "
            "pip install 'audiolm[huggingface]'"
        ) from None
    if int(datasets.__version__.partition(".")[0]) < 4:  # these would run a dataset's own code
        raise ValueError(
            f"datasets {datasets.__version__} is too old; pip install 'audiolm[huggingface]'"
        )
    local = Path(name)
    with _failing_in_one_line(name):
        if any((local / saved).exists() for saved in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(name)
        elif local.is_file():
            kind = {".parquet": "parquet", ".arrow": "arrow"}.get(local.suffix.lower())
            if kind is None:
                raise ValueError("it is a file, but neither .parquet nor .arrow")
            loaded = datasets.load_dataset(kind, data_files=name, streaming=True)
        else:
            loaded = datasets.load_dataset(name, config, revision=revision, streaming=True)
    return loaded if isinstance(loaded, dict) else {str(loaded.split or "all"): loaded}


def _fetch(name: str, split: str, rows: Any, column: str | None, folder: Path) -> None:
    """Write the recordings of a split to `folder`, from the first that is not there yet."""
    from datasets import Audio, ClassLabel, Value

    features = rows.features or {}
    column = _audio_column(name, features, column)
    with _failing_in_one_line(name):
        rows = rows.cast_column(column, Audio(decode=False))
    said = {key: kind for key, kind in features.items() if isinstance(kind, Value | ClassLabel)}
    folder.mkdir(parents=True, exist_ok=True)
    for unfinished in folder.glob(".*.tmp"):
        unfinished.unlink()
    log_path = folder / ".metadata.jsonl"
    done = _whole_lines(log_path)
    known = split_name(split)
    progress = tqdm(desc=f"fetching {split}", unit="file", initial=done, disable=None)
    with progress, open(log_path, "a", encoding="ascii") as log:
        for number, row in enumerate(_rows(name, rows.skip(done)), done):
            line = {key: _text(row[key], kind) for key, kind in said.items()}
            line.pop("split", None)
            if known:
                line["split"] = known
            line["file_name"] = _write(row[column] or {}, number, folder)
            log.write(json.dumps(line) + "\n")
            log.flush()
            done += 1
            progress.update()
    if not done:
        raise ValueError(f"split {split!r} of {name} has no rows; leave it out of data.splits")
    os.replace(log_path, folder / "metadata.jsonl")


def _audio_column(name: str, features: Mapping[str, Any], asked: str | None) -> str:
    from datasets import Audio, Value

    of_audio = [key for key, kind in features.items() if isinstance(kind, Audio)]
    if asked is None and len(of_audio) == 1:
        return of_audio[0]
    kind = features.get(asked or "")
    # Files' contents serve as well where nothing says that they are of audio.
    binary = isinstance(kind, Value) and "binary" in kind.dtype
    if asked and (
        isinstance(kind, Audio) or binary or (isinstance(kind, dict) and "bytes" in kind)
    ):
        return asked
    found = f"column {asked!r} is none" if asked else f"there are {len(of_audio)}"
    raise ValueError(
        f"{name} needs one column of audio and {found}; pass data.column=NAME, of "
        f"{', '.join(of_audio or features)}"
    )


def _rows(name: str, rows: Any) -> Iterator[dict[str, Any]]:
    iterator = iter(rows)
    while True:
        with _failing_in_one_line(name):
            row = next(iterator, None)
        if row is None:
            return
        yield row


def _write(audio: Mapping[str, Any], number: int, folder: Path) -> str | None:
    """Write one recording and return its file's name; None where the dataset has none."""
    data, path = audio.get("bytes"), audio.get("path") or ""
    if data is None and path:
        import fsspec  # comes with datasets; opens local files and the hub's

        try:
            with fsspec.open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
    if data is None:
        return None
    original = Path(path.rpartition("::")[0] or path)
    suffix = original.suffix.lower()
    if suffix not in AUDIO_SUFFIXES:
        suffix = next((s for magic, s in _MAGIC.items() if data.startswith(magic)), ".wav")
    stem = _safe(original.stem)[:60]
    name = f"{number:06d}{f'-{stem}' if stem else ''}{suffix}"
    with replacing(folder / name) as temporary:
        temporary.write_bytes(data)
    return name


def _whole_lines(log: Path) -> int:
    """The number of lines, after the last one is cut off if a kill left it short."""
    if not log.exists():
        return 0
    lines = size = 0
    with open(log, "r+b") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines, size = lines + 1, size + len(line)
        file.truncate(size)
    return lines


def _text(value: Any, kind: Any) -> str | None:
    """A value of a row as text: class labels by their names."""
    if value is None:
        return None
    named = hasattr(kind, "int2str") and isinstance(value, int)
    return str(kind.int2str(value) if named else value)


def _safe(name: str) -> str:
    """A name for a file or folder, made of one of the dataset's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")


@contextmanager
def _failing_in_one_line(name: str) -> Iterator[None]:
    try:
        yield
    # Whatever datasets, the network and the files give.
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ImportError) and "torchcodec" in str(cause):
                local = Path(name).exists()
                fetch = f"fetch it by 'hf download --repo-type dataset {name} --local-dir DIR' and "
                raise ValueError(
                    f"{name} holds loose audio files, which datasets reads with torchcodec only; "
                    f"{'' if local else fetch}pass data=folder data.path={name if local else 'DIR'}"
                ) from error
            cause = cause.__cause__
        line = " ".join(str(error).split())
        if isinstance(error, OSError):
            raise OSError(f"cannot load {name} ({line}); check its name and the network") from error
        raise ValueError(f"cannot load {name}: {line}") from error
