"""Clips, and folders as their source: what is served, what is skipped, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from audiolm.datasets.checks.check import CheckReport, check_clips
from audiolm.datasets.checks.rules import Rules
from audiolm.datasets.clip import (
    Clip,
    Found,
    PassedOver,
    RowMatch,
    SkippedClip,
    make_clip,
    split_name,
    without_repeats,
)
from audiolm.datasets.file_names import NamePattern
from audiolm.datasets.folder import folder_clips

Touch = Callable[..., Path]


@pytest.fixture
def touch(tmp_path: Path) -> Touch:
    """`touch("a.wav", "b/c.wav")`: files below a folder, which it returns. Sources decode none."""

    def make(*names: str, below: str = "recordings") -> Path:
        for name in names:
            (tmp_path / below / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / below / name).touch()
        return tmp_path / below

    return make


def sort(found: Iterable[Found]) -> tuple[dict[str, Clip], dict[str, str]]:
    """Clips by id; reasons by the name of the file."""
    clips, reasons = {}, {}
    for one in found:
        if isinstance(one, Clip):
            assert one.id not in clips
            clips[one.id] = one
        elif isinstance(one, SkippedClip):
            reasons[one.path.name] = one.reason
            assert "\n" not in str(one)
    return clips, reasons


# ---- Clip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": ""}, "id that is not empty"),
        ({"split": "dev"}, "not one of train, valid, test"),
        ({"start": -1.0}, "start -1.0 s"),
        ({"start": float("nan")}, "start nan s"),
        ({"start": 2.0, "end": 2.0}, "after the start"),
        ({"end": float("inf")}, "end inf s"),
    ],
)
def test_a_clip_refuses_what_is_no_clip(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Clip(**({"id": "a", "path": Path("a.wav")} | arguments))


def test_value_looks_in_the_clip_and_in_its_columns() -> None:
    clip = Clip("a", Path("a.wav"), split="test", label="cat", columns={"speaker": "ann"})
    names = ("split", "label", "text", "speaker", "album")
    assert [clip.value(name) for name in names] == ["test", "cat", None, "ann", None]
    assert clip in {clip}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *[(name, "train") for name in ("train", "Training", "train-clean-100", "train_2")],
        *[(name, "valid") for name in ("valid", "validation", "VAL", "dev", "dev-clean")],
        *[(name, "test") for name in ("test", "testing", "eval", "evaluation", "test-other")],
        *[(name, None) for name in ("other", "trainee", "", "-", "the train", "7")],
    ],
)
def test_split_names(name: str, split: str | None) -> None:
    assert split_name(name) == split


def test_a_row_becomes_a_clip_or_says_why_not(touch: Touch) -> None:
    folder = touch("a.wav")
    values = {"transcription": " hi ", "speaker": "ann", "album": " ", "split": "Dev"}
    assert make_clip("x", folder / "a.wav", values) == Clip(
        "x", folder / "a.wav", split="valid", text="hi", columns={"speaker": "ann"}
    )
    # `text` counts before the other names, which then are columns like any other.
    clip = make_clip("x", folder / "a.wav", {"sentence": "B", "text": "A"})
    assert isinstance(clip, Clip) and (clip.text, clip.columns) == ("A", {"sentence": "B"})

    for path, values, reason in (
        ("none.wav", {}, "row 1: no such file"),
        (".", {}, "row 1: is a folder"),
        ("a\0b", {}, "row 1: not a path"),
        ("a" * 300, {}, "row 1: File name too long"),
        ("a.wav", {"split": "extra"}, "row 1: split 'extra' is not one of train, valid and test"),
    ):
        assert make_clip("x", folder / path, values, where="row 1") == SkippedClip(
            folder / path, reason
        )


def test_repeated_ids_are_skipped() -> None:
    clips = [Clip("a", Path("1")), SkippedClip(Path("0"), "bad"), Clip("a", Path("2"))]
    first, bad, second = without_repeats(clips)
    assert (first, bad) == (clips[0], clips[1])
    assert isinstance(second, SkippedClip) and "given twice" in second.reason


# ---- Patterns on names


@pytest.mark.parametrize(
    ("pattern", "path", "fields"),
    [
        (
            "{label}_{speaker}_{take}",
            "x/7_jackson_32.wav",
            {"label": "7", "speaker": "jackson", "take": "32"},
        ),
        # More than one way to read it: none is taken.
        ("{label}_{speaker}_{take}", "new_york_bob_3.wav", None),
        ("{label}_{speaker}_{take}", "7_jackson.wav", None),
        ("{label}_{speaker}_{take}", "7__32.wav", None),
        ("{speaker}_{_}", "p225_001_mic1.flac", {"speaker": "p225"}),
        ("{_}_{label}", "p225_001_mic1.flac", {"label": "mic1"}),
        ("{_}-{label}-{_}", "1-2-3.wav", {"label": "2"}),
        (
            "{take}. {title} - {artist}",
            "01. Mr. X - J. Doe.mp3",
            {"take": "01", "title": "Mr. X", "artist": "J. Doe"},
        ),
        ("take{n}", "take12.wav", {"n": "12"}),
        ("take{n}", "Take12.wav", None),
        ("{a}.{b}", "blues.00012.wav", {"a": "blues", "b": "00012"}),
        ("{label}/{speaker}_{_}", "x/rock/bob_1.wav", {"label": "rock", "speaker": "bob"}),
        ("{label}/{speaker}_{_}", "rock/bob_1.wav", {"label": "rock", "speaker": "bob"}),
        ("{label}/{speaker}_{_}", "bob_1.wav", None),
        ("{label}", "x/a new\nline é.wav", {"label": "a new\nline é"}),
        ("(.*)[{a}]+", "(.*)[x]+.wav", {"a": "x"}),
    ],
)
def test_a_pattern_reads_names_in_one_way(
    pattern: str, path: str, fields: dict[str, str] | None
) -> None:
    assert NamePattern(pattern).match(Path(path)) == fields


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "no field"),
        ("take", "no field"),
        ("{label}_{take", "a brace without"),
        ("label}_{take}", "a brace without"),
        ("{{label}}", "a brace without"),
        ("{}_{take}", "'' is not a name"),
        ("{my label}", "'my label' is not a name"),
        ("{1st}", "'1st' is not a name"),
        ("{label}_{label}", "field label twice"),
        ("{label}{take}", "side by side"),
        ("{label}_{take}.wav", "suffix"),
    ],
)
def test_a_malformed_pattern_is_refused_at_once(tmp_path: Path, pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        folder_clips(tmp_path, pattern=pattern)


def test_dropped_fields_may_repeat() -> None:
    assert NamePattern("{_}_{_}_{a}").match(Path("1_2_3")) == {"a": "3"}


# ---- Folders


def test_every_file_is_a_clip_in_sorted_order(touch: Touch) -> None:
    folder = touch("b.wav", "a/é ü.flac", "a/new\nline.mp3", "notes.txt", ".hidden.wav")
    *clips, other = folder_clips(folder)
    assert isinstance(other, PassedOver) and (other.path.name, other.files) == ("notes.txt", 1)
    ids = ["a/new\nline.mp3", "a/é ü.flac", "b.wav"]
    assert clips == [Clip(id, folder.resolve() / id) for id in ids]


def test_no_folder_and_no_files_are_reported_when_clips_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        next(folder_clips(tmp_path / "none"))
    with pytest.raises(ValueError, match="no audio files"):
        next(folder_clips(tmp_path))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_metadata_is_read_as_audiofolder_has_it(touch: Touch, kind: str) -> None:
    folder = touch("a.wav", "wavs/b.wav", "unnamed.wav")
    table = {
        "csv": "file_name,text,speaker,split,year\na.wav,One,ann,,1999\nwavs/b.wav,,,test,\n"
        "gone.wav,x,,,\n../outside.wav,,,,\na.wav,again,,,\n,no name,,,\nwavs/../wavs/b.wav,,,,\n",
        "jsonl": '{"file_name": "a.wav", "text": "One", "speaker": "ann", "year": 1999}\n'
        '{"file_name": "wavs/b.wav", "split": "test", "text": null}\n{"file_name": "gone.wav"}\n'
        '{"file_name": "../outside.wav"}\n{"file_name": "a.wav"}\n{"text": "no name"}\n'
        '{"file_name": "./wavs/b.wav"}\n',
    }
    (folder / f"metadata.{kind}").write_text(table[kind])
    clips, reasons = sort(folder_clips(folder))
    assert clips == {
        "a.wav": Clip(
            "a.wav", folder / "a.wav", text="One", columns={"speaker": "ann", "year": "1999"}
        ),
        "wavs/b.wav": Clip("wavs/b.wav", folder / "wavs/b.wav", split="test"),
        "unnamed.wav": Clip("unnamed.wav", folder / "unnamed.wav"),
    }
    line = {"csv": 4, "jsonl": 3}[kind]
    assert reasons["gone.wav"] == f"line {line} of metadata.{kind}: no such file"
    assert "outside of the folder" in reasons["outside.wav"]
    assert "given twice" in reasons["a.wav"] and "given twice" in reasons["b.wav"]
    assert "has no file_name" in reasons[f"metadata.{kind}"]
    assert len(reasons) == 5


def test_the_nearest_metadata_counts(touch: Touch) -> None:
    folder = touch("a.wav", "sub/b.wav", "sub/deep/c.wav")
    (folder / "metadata.csv").write_text("file_name,text\na.wav,A\nsub/b.wav,far\n")
    (folder / "sub/metadata.jsonl").write_text(
        '{"file_name": "b.wav", "text": "near"}\n{"file_name": "deep/c.wav", "text": "C"}\n'
    )
    clips, reasons = sort(folder_clips(folder))
    assert {id: clip.text for id, clip in clips.items()} == {
        "a.wav": "A",
        "sub/b.wav": "near",
        "sub/deep/c.wav": "C",
    }
    assert set(reasons) == {"b.wav"}


def test_metadata_that_is_something_else_takes_no_clips_away(touch: Touch) -> None:
    folder = touch("a.wav")
    (folder / "metadata.csv").write_text("LJ001-0001|Printing, in|Printing, in\n")
    clips, reasons = sort(folder_clips(folder))
    assert set(clips) == {"a.wav"}
    assert "no column is named file_name" in reasons["metadata.csv"]
    (folder / "metadata.jsonl").write_text('{"file_name": "a.wav"}\n')
    with pytest.raises(ValueError, match=r"metadata\.csv and metadata\.jsonl; keep one"):
        list(folder_clips(folder))


def test_times_in_metadata_make_clips_of_parts(touch: Touch) -> None:
    folder = touch("talk.wav", "b.wav")
    (folder / "metadata.csv").write_text(
        "file_name,start,end,text\ntalk.wav,0,1.5,one\ntalk.wav,1.5,3,two\nb.wav,,,all\n"
        "talk.wav,3,2,three\ntalk.wav,soon,,four\n"
    )
    clips, reasons = sort(folder_clips(folder))
    assert clips == {
        "talk.wav#0-1.5": Clip("talk.wav#0-1.5", folder / "talk.wav", 0.0, 1.5, text="one"),
        "talk.wav#1.5-3": Clip("talk.wav#1.5-3", folder / "talk.wav", 1.5, 3.0, text="two"),
        "b.wav": Clip("b.wav", folder / "b.wav", text="all"),
    }
    assert reasons == {
        "talk.wav": "line 6 of metadata.csv: start 'soon' is not a number of seconds, 0 or more"
    }
    # Files that were cut already, and a duration that only says how long the file is.
    clips, _ = sort(folder_clips(folder, parts=False))
    assert set(clips) == {"talk.wav", "b.wav"}
    (folder / "metadata.csv").write_text("file_name,duration\nb.wav,2.5\n")
    clips, _ = sort(folder_clips(folder))
    assert clips["b.wav"] == Clip("b.wav", folder / "b.wav", columns={"duration": "2.5"})


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@pytest.mark.parametrize(
    ("there", "named", "found"),
    [
        (f"{DECOMPOSED}/a.wav", f"{COMPOSED}/a.wav", True),
        (f"{COMPOSED}.wav", f"{DECOMPOSED}.wav", True),
        ("x/y/a.wav", "x\\y\\a.wav", True),
        (f"x/{DECOMPOSED}.wav", f"x\\{COMPOSED}.wav", True),
        ("x\\y.wav", "x\\y.wav", True),  # a backslash of its own
        ("a.wav", "A.wav", False),  # case: two files on most systems
        ("x/a.wav", "a.wav", False),
    ],
)
def test_names_match_up_to_unicode_form_and_separators(
    touch: Touch, there: str, named: str, found: bool
) -> None:
    folder = touch(there, "z.wav")
    (folder / "metadata.jsonl").write_text(json.dumps({"file_name": named, "text": "hi"}) + "\n")
    everything = list(folder_clips(folder))
    texts = {clip.id: clip.text for clip in everything if isinstance(clip, Clip)}
    assert texts == {there: "hi" if found else None, "z.wav": None}
    matches = [one for one in everything if isinstance(one, RowMatch)]
    assert [(match.rows, match.unmatched) for match in matches] == ([] if found else [(1, 1)])


def test_a_name_of_two_forms_is_ambiguous(touch: Touch) -> None:
    forms = ("\u1e69.wav", "s\u0323\u0307.wav", "\u1e63\u0307.wav")  # one letter, three ways
    folder = touch(*forms[:2])
    if len(list(folder.iterdir())) < 2:
        pytest.skip("this file system keeps one form")
    (folder / "metadata.jsonl").write_text(json.dumps({"file_name": forms[2], "text": "?"}) + "\n")
    clips, reasons = sort(folder_clips(folder))
    assert all(clip.text is None for clip in clips.values()) and len(reasons) == 1


def test_most_rows_that_name_nothing_stop_the_check(touch: Touch, tmp_path: Path) -> None:
    """Rows are counted against rows: files that no row names are as many as they like."""
    folder = touch(*(f"{i}.wav" for i in range(20)))
    for i in range(20):
        soundfile.write(folder / f"{i}.wav", np.random.default_rng(i).normal(0, 0.1, 4000), 8000)
    rows = [f"Other/{i}.WAV,text" for i in range(6)] + [f"{i}.wav,text" for i in range(5)]
    (folder / "metadata.csv").write_text("\n".join(["file_name,text", *rows]) + "\n")

    def check(max_dropped: float = 0.5) -> CheckReport:
        rules = Rules(max_dropped=max_dropped)
        clips = folder_clips(folder)
        return check_clips(clips, tmp_path / "c", rules, num_workers=0, show_progress=False)

    with pytest.raises(
        ValueError, match=r"6 of 11 rows name no file.*Other/0\.WAV in line 2"
    ) as error:
        check().enforce()
    assert "rules.max_dropped=1" in str(error.value) and "\n" not in str(error.value)
    check(max_dropped=1).enforce()
    (folder / "metadata.csv").write_text("\n".join(["file_name,text", *rows[1:]]) + "\n")
    report = check()
    report.enforce()
    assert len(report.kept) == 20 and sum(clip.text == "text" for clip in report.kept) == 5


def test_what_is_passed_over_is_in_the_report(touch: Touch, tmp_path: Path) -> None:
    folder = touch(
        "a.wav", "a.txt", "b.txt", "runs/x/checkpoints/last.ckpt", "runs/x/.hydra/config.yaml"
    )
    soundfile.write(folder / "a.wav", np.random.default_rng(0).normal(0, 0.1, 8000), 8000)
    (folder / "gone.wav").symlink_to("nothing")
    report = check_clips(
        folder_clips(folder), tmp_path / "c", Rules(), num_workers=0, show_progress=False
    )
    assert [clip.id for clip in report.kept] == ["a.wav"]
    assert [bad.reason for bad in report.skipped] == ["a link to nothing"]
    assert [(over.path.name, over.files) for over in report.passed_over] == [("x", 0), ("a.txt", 2)]
    assert [over["files"] for over in report.as_dict()["passed_over"]] == [0, 2]
    lines = "\n".join(report.lines())
    assert ".txt" in lines and "a run, which this program wrote" in lines


def test_names_and_folders_give_labels(touch: Touch) -> None:
    folder = touch("rock/bob_1.wav", "rock/bob.wav", "jazz/x/amy_2.wav", "eve_3.wav")
    clips, reasons = sort(folder_clips(folder, pattern="{speaker}_{take}", label_from="folder"))
    assert {id: (clip.label, clip.columns) for id, clip in clips.items()} == {
        "rock/bob_1.wav": ("rock", {"speaker": "bob", "take": "1"}),
        "jazz/x/amy_2.wav": ("x", {"speaker": "amy", "take": "2"}),
        "eve_3.wav": ("recordings", {"speaker": "eve", "take": "3"}),
    }
    assert reasons == {"bob.wav": "its name does not match the pattern '{speaker}_{take}'"}


def test_what_is_asked_for_goes_before_metadata(touch: Touch) -> None:
    folder = touch("cat_1.wav")
    (folder / "metadata.csv").write_text("file_name,label,text\ncat_1.wav,dog,meow\n")
    (clip,) = folder_clips(folder, pattern="{label}_{_}")
    assert isinstance(clip, Clip) and (clip.label, clip.text) == ("cat", "meow")
    (clip,) = folder_clips(folder, label_from="folder")
    assert isinstance(clip, Clip) and clip.label == "recordings"


def test_split_folders_count_when_asked_for(touch: Touch) -> None:
    folder = touch("train/cat/a.wav", "validation/a.wav", "Test/dog/b.wav", "extra/c.wav", "d.wav")
    assert {clip.split for clip in sort(folder_clips(folder))[0].values()} == {None}
    clips, reasons = sort(folder_clips(folder, split_from="folder", label_from="folder"))
    assert {id: (clip.split, clip.label) for id, clip in clips.items()} == {
        "train/cat/a.wav": ("train", "cat"),
        "validation/a.wav": ("valid", None),
        "Test/dog/b.wav": ("test", "dog"),
    }
    assert set(reasons) == {"c.wav", "d.wav"}
    with pytest.raises(ValueError, match="no folder train, valid or test"):
        list(folder_clips(folder / "train", split_from="folder"))


def test_a_column_or_a_field_can_name_the_split(touch: Touch) -> None:
    folder = touch("a.wav", "b.wav", "c.wav", "d.wav")
    (folder / "metadata.csv").write_text(
        "file_name,fold,split\na.wav,train,test\nb.wav,dev,\nc.wav,,test\nd.wav,9,\n"
    )
    clips, reasons = sort(folder_clips(folder, split_from="fold"))
    splits = {id: clip.split for id, clip in clips.items()}
    assert splits == {"a.wav": "train", "b.wav": "valid", "c.wav": None}
    assert "split '9'" in reasons["d.wav"]
    with pytest.raises(ValueError, match="split_from=part: no clip has a column"):
        list(folder_clips(folder, split_from="part"))
    folder = touch("train_1.wav", "test_1.wav", below="named")
    clips, _ = sort(folder_clips(folder, pattern="{part}_{_}", split_from="part"))
    assert {clip.split for clip in clips.values()} == {"train", "test"}


def test_separate_folders_are_splits(touch: Touch) -> None:
    folder = touch("a.wav", "b.wav", "held/c.wav")
    (folder / "metadata.csv").write_text("file_name,split,text\nb.wav,test,B\nheld/c.wav,train,C\n")
    test = touch("a.wav", below="elsewhere")
    (test / "metadata.csv").write_text("file_name,text,split\na.wav,T,train\n")
    clips, reasons = sort(folder_clips(folder, valid=folder / "held", test=test))
    assert {id: (clip.split, clip.text) for id, clip in clips.items()} == {
        "a.wav": ("train", None),
        "b.wav": ("test", "B"),
        "held/c.wav": ("valid", "C"),
        "test:a.wav": ("test", "T"),
    }
    assert not reasons
    # Without a folder for `valid` the hash still has its say.
    clips, _ = sort(folder_clips(folder, test=test))
    assert clips["a.wav"].split is None


def test_contradictions_are_refused_at_once(touch: Touch) -> None:
    folder = touch("sub/a.wav", "other/a.wav")
    for arguments, message in (
        ({"label_from": "name"}, "label_from is 'name'"),
        ({"label_from": "folder", "pattern": "{label}_{_}"}, "both give the label"),
        ({"split_from": "folder", "pattern": "{split}_{_}"}, "both give the split"),
        ({"split_from": "folder", "valid": folder / "sub"}, "drop one"),
        ({"valid": folder}, "valid folder .* holds the folder itself"),
        ({"valid": folder.parent}, "valid folder .* holds the folder itself"),
        ({"valid": folder / "sub", "test": folder / "sub"}, "valid folder .* holds test"),
    ):
        with pytest.raises(ValueError, match=message):
            folder_clips(folder, **arguments)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        next(folder_clips(folder, test=folder / "none"))


def test_real_recordings() -> None:
    folder = Path(__file__).resolve().parents[3] / "shared/audio"
    if not folder.is_dir():
        pytest.skip("no recordings beside the checkout")
    digits, _ = sort(folder_clips(folder / "digits", pattern="{label}_{speaker}_{take}"))
    assert len(digits) == 1500
    assert {clip.label for clip in digits.values()} == set("0123456789")
    assert {clip.columns["speaker"] for clip in digits.values()} == {"jackson", "nicolas", "theo"}
    speech, reasons = sort(folder_clips(folder / "speech"))
    assert len(speech) == 568 and not reasons and all(clip.text for clip in speech.values())
