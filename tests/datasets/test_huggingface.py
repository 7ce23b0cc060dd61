"""Datasets of Hugging Face, from local files: fetched once, byte for byte, and resumed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from audiolm.datasets import huggingface
from audiolm.datasets.clip import Clip, SkippedClip
from audiolm.datasets.huggingface import huggingface_clips

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def recording(seed: int, format: str = "WAV") -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(seed).integers(-9000, 9000, 400).astype(np.int16)
    soundfile.write(file, noise, 8000, format=format)
    return file.getvalue()


DATA = [recording(0), recording(1, "FLAC"), recording(2), recording(3)]
PATHS = ["clips/a b.wav", None, "x" * 100 + ".wav", "ü/..wav"]


def make_dataset() -> Any:
    features = {
        "audio": datasets.Audio(decode=False),
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "year": datasets.Value("int64"),
        "split": datasets.Value("string"),
        "embedding": datasets.List(datasets.Value("float32")),
    }
    rows = {
        "audio": [{"bytes": data, "path": path} for data, path in zip(DATA, PATHS, strict=True)],
        "text": ["zero\nlines", "“one”", None, ""],
        "label": [0, 1, None, 1],
        "year": [1999, None, 3, 4],
        "split": ["mine"] * 4,
        "embedding": [[0.5]] * 4,
    }
    return datasets.Dataset.from_dict(rows).cast(datasets.Features(features))


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """A dataset with the splits train (4 recordings), validation (4) and extra (4)."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    splits = ("train", "validation", "extra")
    for split in splits:
        make_dataset().to_parquet(folder / f"{split}.parquet")
    config = [{"split": split, "path": f"{split}.parquet"} for split in splits]
    settings = {"configs": [{"config_name": "default", "data_files": config}]}
    (folder / "README.md").write_text(f"---\n{json.dumps(settings)}\n---\n")
    return folder


def serve(*arguments: Any, **options: Any) -> list[Clip]:
    found = list(huggingface_clips(*arguments, **options))
    assert all(isinstance(one, Clip) for one in found), found
    return [one for one in found if isinstance(one, Clip)]


def test_recordings_are_files_byte_for_byte(parquet: Path, tmp_path: Path) -> None:
    *clips, extra = huggingface_clips(str(parquet), tmp_path / "kept")
    assert isinstance(extra, SkippedClip) and "split 'extra' is not one of train" in extra.reason
    kept = [clip for clip in clips if isinstance(clip, Clip)]
    names = ["000000-a-b.wav", "000001.flac", "000002-" + "x" * 60 + ".wav", "000003.wav"]
    assert [clip.id for clip in kept] == [
        f"{split}/{name}" for split in ("train", "validation") for name in names
    ]
    assert [clip.path.read_bytes() for clip in kept] == DATA * 2
    assert [clip.split for clip in kept] == ["train"] * 4 + ["valid"] * 4
    assert [clip.text for clip in kept[:4]] == ["zero\nlines", "“one”", None, None]
    assert [clip.label for clip in kept[:4]] == ["cat", "dog", None, "dog"]
    assert [clip.columns for clip in kept[:4]] == [
        {"year": "1999"},
        {},
        {"year": "3"},
        {"year": "4"},
    ]


def test_what_is_kept_needs_neither_network_nor_package(
    parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = serve(str(parquet), tmp_path / "kept", splits=["train"])
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert serve(str(parquet), tmp_path / "kept", splits=["train"]) == clips
    assert serve(str(parquet), tmp_path / "kept", splits="train") == clips
    with pytest.raises(ValueError, match=r"pip install 'audiolm\[huggingface\]'"):
        serve(str(parquet), tmp_path / "kept")


def test_a_split_of_another_name_is_left_to_the_hash(parquet: Path, tmp_path: Path) -> None:
    clips = serve(str(parquet), tmp_path / "kept", splits=["extra"])
    assert {clip.split for clip in clips} == {None}


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_fetch_that_was_stopped_goes_on(
    parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    write = huggingface._write
    written: list[int] = []

    def stop(audio: Any, number: int, folder: Path) -> str | None:
        name = write(audio, number, folder)
        if len(written) == stop_after:  # after the file is there, and before its line is
            raise KeyboardInterrupt
        written.append(number)
        return name

    whole = serve(str(parquet), tmp_path / "whole", splits=["train"])
    monkeypatch.setattr(huggingface, "_write", stop)
    with pytest.raises(KeyboardInterrupt):
        serve(str(parquet), tmp_path / "kept", splits=["train"])
    log = tmp_path / "kept/train/.metadata.jsonl"
    with open(log, "a") as file:  # a kill can leave half a line, and half a file
        file.write('{"text": "ha')
    (log.parent / ".0.tmp").touch()
    stop_after = 99
    clips = serve(str(parquet), tmp_path / "kept", splits=["train"])
    assert written == [0, 1, 2, 3]  # none twice
    assert [clip.id for clip in clips] == [clip.id for clip in whole]
    for name in ("metadata.jsonl", *(clip.path.name for clip in whole)):
        first, second = (tmp_path / kept / "train" / name for kept in ("whole", "kept"))
        assert first.read_bytes() == second.read_bytes()
    assert not [path for path in log.parent.iterdir() if path.name.startswith(".")]


def test_all_kinds_of_local_datasets(parquet: Path, tmp_path: Path) -> None:
    make_dataset().save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"dev": make_dataset()}).save_to_disk(tmp_path / "many")
    for i, (name, splits) in enumerate(
        {
            parquet / "extra.parquet": {"train"},
            tmp_path / "one": {None},
            tmp_path / "many": {"valid"},
        }.items()
    ):
        clips = serve(str(name), tmp_path / str(i))
        assert [clip.path.read_bytes() for clip in clips] == DATA
        assert {clip.split for clip in clips} == splits


def test_the_column_of_audio(tmp_path: Path) -> None:
    plain = datasets.Dataset.from_dict({"sound": DATA, "text": ["x"] * 4})
    plain.to_parquet(tmp_path / "plain.parquet")
    two = make_dataset().map(lambda row: {"other": row["audio"]})
    two = two.cast_column("other", datasets.Audio(decode=False))
    two.to_parquet(tmp_path / "two.parquet")
    with pytest.raises(ValueError, match=r"there are 0; pass data\.column=NAME, of sound, text"):
        serve(str(tmp_path / "plain.parquet"), tmp_path / "kept")
    with pytest.raises(ValueError, match="column 'text' is none"):
        serve(str(tmp_path / "plain.parquet"), tmp_path / "kept", column="text")
    clips = serve(str(tmp_path / "plain.parquet"), tmp_path / "kept", column="sound")
    assert [clip.path.read_bytes() for clip in clips] == DATA
    assert [clip.path.name for clip in clips][:2] == ["000000.wav", "000001.flac"]
    with pytest.raises(ValueError, match=r"there are 2; pass data\.column=NAME, of audio, other"):
        serve(str(tmp_path / "two.parquet"), tmp_path / "kept2")
    assert len(serve(str(tmp_path / "two.parquet"), tmp_path / "kept2", column="other")) == 4


def test_rows_without_a_recording_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "there.wav").write_bytes(DATA[2])
    audio = [
        {"bytes": DATA[0], "path": "a.wav"},
        None,
        {"bytes": None, "path": str(tmp_path / "none.wav")},
        {"bytes": None, "path": str(tmp_path / "there.wav")},
    ]
    # Not by `to_parquet`, which would look for the files.
    schema = datasets.Features({"audio": datasets.Audio(decode=False)}).arrow_schema
    pq.write_table(pa.table({"audio": audio}, schema=schema), tmp_path / "a.parquet")
    found = list(huggingface_clips(str(tmp_path / "a.parquet"), tmp_path / "kept"))
    clips = [one for one in found if isinstance(one, Clip)]
    assert [clip.path.read_bytes() for clip in clips] == [DATA[0], DATA[2]]
    reasons = [one.reason for one in found if isinstance(one, SkippedClip)]
    assert reasons == [f"line {i} of metadata.jsonl: has no file_name" for i in (2, 3)]


def test_errors_are_one_line(
    parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose/a.wav").write_bytes(DATA[0])
    (tmp_path / "empty").mkdir()
    cases: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
        "nobody/nothing": ({}, OSError, "cannot load nobody/nothing .*check its name and the net"),
        str(tmp_path / "none"): ({}, OSError, "cannot load .*none"),
        str(tmp_path / "empty"): ({}, OSError, "cannot load .*empty"),
        str(parquet): ({"config": "fr"}, ValueError, "BuilderConfig 'fr' not found"),
        str(tmp_path / "loose"): ({}, ValueError, "torchcodec only; pass data=folder data.path="),
        __file__: ({}, ValueError, "neither .parquet nor .arrow"),
    }
    for name, (arguments, kind, message) in cases.items():
        if "loose" in name and datasets.config.TORCHCODEC_AVAILABLE:
            continue
        with pytest.raises(kind, match=message) as error:
            next(huggingface_clips(name, tmp_path / "kept", **arguments))
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"no split 'tset'; name some of train, validation, extra"):
        next(huggingface_clips(str(parquet), tmp_path / "kept", splits=["tset"]))
    monkeypatch.setattr(datasets, "__version__", "3.6.0")
    with pytest.raises(ValueError, match=r"datasets 3\.6\.0 is too old"):
        next(huggingface_clips(str(parquet), tmp_path / "kept"))


def test_a_folder_holds_one_dataset(parquet: Path, tmp_path: Path) -> None:
    serve(str(parquet), tmp_path / "kept", splits=["train"])
    with pytest.raises(ValueError, match=r"holds a dataset of name .*; pass another data\.path"):
        serve(str(parquet / "extra.parquet"), tmp_path / "kept")
    (tmp_path / "kept/source.json").unlink()
    with pytest.raises(ValueError, match=r"holds recordings from elsewhere; pass another data"):
        serve(str(parquet), tmp_path / "kept", splits=["train"])


def test_no_code_of_a_dataset_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises((ValueError, OSError), match="cannot load"):
        next(huggingface_clips(str(folder), tmp_path / "kept"))
    assert not (tmp_path / "ran").exists()
