"""Manifests as people write them: good rows are served whatever stands beside them."""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audiolm.datasets.clip import Clip, SkippedClip
from audiolm.datasets.manifest import manifest_clips

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write("clips.csv", text)` beside recordings a.wav, b.wav and sub/ü c.wav."""
    folder = tmp_path / "set"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.wav", "b.wav", "sub/ü c.wav"):
        (folder / name).touch()

    def make(name: str, content: str | bytes) -> Path:
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
        return folder / name

    return make


def serve(manifest: Path) -> tuple[list[Clip], list[str]]:
    """The clips, and the lines that tell what was skipped."""
    clips, lines = [], []
    for one in manifest_clips(manifest):
        if isinstance(one, SkippedClip):
            lines.append(str(one).replace(str(manifest.parent), ""))
            assert "\n" not in lines[-1]
        else:
            clips.append(one)
    assert len({clip.id for clip in clips}) == len(clips)
    return clips, lines


ROWS: list[dict[str, Any]] = [
    {"path": "a.wav", "text": 'He said:\n"Hi, you"', "speaker": "ann"},
    {"path": "a.wav", "start": 1.5, "end": 3},
    {"path": "sub/ü c.wav", "start": 2, "take": 7, "split": "dev"},
    {"path": "b.wav", "end": 0.25, "id": "my own"},
]


def expected(folder: Path) -> list[Clip]:
    a, b, c = folder / "a.wav", folder / "b.wav", folder / "sub/ü c.wav"
    return [
        Clip("a.wav", a, text='He said:\n"Hi, you"', columns={"speaker": "ann"}),
        Clip("a.wav#1.5-3", a, 1.5, 3.0),
        Clip("sub/ü c.wav#2-", c, 2.0, split="valid", columns={"take": "7"}),
        Clip("my own", b, 0.0, 0.25),
    ]


def as_json_lines() -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def as_table(delimiter: str) -> str:
    names = sorted({name for row in ROWS for name in row})
    lines = [delimiter.join(names)]
    for row in ROWS:
        quoted = ['"' + str(row.get(name, "")).replace('"', '""') + '"' for name in names]
        lines.append(delimiter.join(quoted))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("tail", ["whole", "no newline", "empty lines"])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "semicolons.csv", "tabs.csv"])
def test_all_kinds_of_tables_give_the_same_clips(
    write: Write, kind: str, encoding: str, ends: str, tail: str
) -> None:
    delimiter = "\t" if kind in ("tsv", "tabs.csv") else ";" if "semi" in kind else ","
    text = as_json_lines() if kind.startswith("json") else as_table(delimiter)
    if tail == "no newline":
        text = text[:-1]
    elif tail == "empty lines":
        text = text.replace('\n"', '\n\n"').replace("\n{", "\n  \n{") + "\n\n"
    # A line end inside quotation marks is the text's own.
    text = text.replace("\n", ends).replace(f"said:{ends}", "said:\n")
    manifest = write(f"clips.{kind}", text.encode(encoding))
    clips, lines = serve(manifest)
    assert lines == []
    if kind.startswith("json") or tail != "empty lines":
        assert clips == expected(manifest.parent)
    else:  # "said:\n" became part of what the empty lines were put into
        assert [clip.id for clip in clips] == [clip.id for clip in expected(manifest.parent)]


def test_names_of_other_tools(write: Write) -> None:
    manifest = write(
        "nemo.json",
        '{"audio_filepath": "a.wav", "offset": 0.1, "duration": 0.2, "text": "x"}\n'
        '{"audio_filepath": "b.wav", "duration": 2.5, "offset": null}\n',
    )
    clips, lines = serve(manifest)
    a, b = manifest.parent / "a.wav", manifest.parent / "b.wav"
    assert clips[0] == Clip("a.wav#0.1-0.3", a, 0.1, 0.1 + 0.2, text="x")
    assert clips[1] == Clip("b.wav#0-2.5", b, 0.0, 2.5) and not lines
    for name in ("audio", "file_name"):
        clips, _ = serve(write("clips.csv", f"{name},sentence\na.wav,Hello\n"))
        assert clips == [Clip("a.wav", a, text="Hello")]


def test_ids_are_the_same_wherever_the_set_lies(write: Write, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.wav"
    elsewhere.touch()
    folder = tmp_path / "set"
    rows = ["./sub/../a.wav", str(folder / "b.wav"), "../elsewhere.wav", str(elsewhere)]
    clips, lines = serve(write("clips.csv", "path\n" + "\n".join(rows) + "\n"))
    assert [clip.id for clip in clips] == [
        "a.wav",
        "b.wav",
        "../elsewhere.wav",
        elsewhere.as_posix(),
    ]
    assert all(clip.path.is_absolute() and clip.path.is_file() for clip in clips) and not lines


BAD_TIMES = ["abc", "-1", "nan", "inf", "-inf", "1:30", "1,5", "true", "1e999", "9" * 400]


@pytest.mark.parametrize("name", ["start", "end", "offset", "duration"])
@pytest.mark.parametrize("time", BAD_TIMES)
def test_bad_times_leave_out_their_row_alone(write: Write, name: str, time: str) -> None:
    rows = ["a.wav\t", f"b.wav\t{time}", "sub/ü c.wav\t"]
    clips, lines = serve(write("clips.tsv", f"path\t{name}\n" + "\n".join(rows)))
    assert [clip.id for clip in clips] == ["a.wav", "sub/ü c.wav"]
    (line,) = lines
    assert line.startswith(f"/b.wav: line 3 of clips.tsv: {name} {time[:40]!r} is not a number")


def test_reversed_and_empty_parts_are_skipped(write: Write) -> None:
    text = "path,start,end,duration\na.wav,3,2,\na.wav,3,3,\na.wav,3,,0\na.wav,3,4,0\n"
    clips, lines = serve(write("clips.csv", text))
    assert [(clip.start, clip.end) for clip in clips] == [(3.0, 4.0)]
    assert [line.partition(": ")[2] for line in lines] == [
        "line 2 of clips.csv: end 2 s is not after start 3 s",
        "line 3 of clips.csv: end 3 s is not after start 3 s",
        "line 4 of clips.csv: end 3 s is not after start 3 s",
    ]


def test_every_bad_line_of_json_is_reported(write: Write) -> None:
    bad = {
        "not json": "is not JSON",
        '{"path": "a.wav"': "is not JSON",
        "[1, 2]": "is not a JSON object",
        "null": "is not a JSON object",
        '"a.wav"': "is not a JSON object",
        "{}": "has no path",
        '{"path": ""}': "has no path",
        '{"path": null, "text": "x"}': "has no path",
        '{"path": 7}': "no such file",
        '{"path": {"bytes": null}}': "no such file",
        '{"path": "none.wav"}': "no such file",
        '{"path": "sub"}': "is a folder",
        '{"path": "a\\u0000.wav"}': "not a path",
        '{"path": "\\ud800.wav"}': "is not in UTF-8",
        '{"path": "a.wav", "start": NaN}': "start 'NaN'",
        '{"path": "a.wav", "start": true}': "start 'true'",
        '{"path": "a.wav", "start": [1]}': "start '[1]'",
        '{"path": "a.wav", "split": "mine"}': "split 'mine'",
        "[" * 100_000: "is not JSON",
    }
    text = "\n".join(
        f'{{"path": "{name}"}}\n{line}'
        for name, line in zip(["a.wav", "b.wav"] + ["a.wav"] * 50, bad, strict=False)
    )
    clips, lines = serve(write("clips.jsonl", text))
    assert [clip.id for clip in clips] == ["a.wav", "b.wav"]
    reasons = [line for line in lines if "given twice" not in line]
    assert len(reasons) == len(bad)
    for line, (i, reason) in zip(reasons, enumerate(bad.values()), strict=True):
        assert reason in line and f"line {2 * i + 2} of clips.jsonl" in line


def test_every_bad_line_of_csv_is_reported(write: Write) -> None:
    text = (
        "path,text,speaker\n"
        "a.wav,Hello, world,ann\n"  # a comma too many
        'b.wav,"He said "no" to me",ann\n'  # quotation marks that are not doubled
        "a.wav\n"  # a short row is one whose other columns are empty
        ",text without path,\n"
        "b.wav,padded,ann,,,\n"  # as spreadsheets pad
        "none.wav,gone,\n"
        'sub/ü c.wav,"never closed,ann\n'
        "a.wav,swallowed,\n"
    )
    clips, lines = serve(write("clips.csv", text))
    assert [(clip.id, clip.text) for clip in clips] == [("a.wav", None), ("b.wav", "padded")]
    assert [line.partition("clips.csv: ")[2] for line in lines][:4] == [
        "line 2 of clips.csv: has 4 fields where the first row names 3; put a field that holds "
        "',' in quotation marks",
        "line 3 of clips.csv: is not CSV: ',' expected after '\"'",
        "line 5 of clips.csv: has no path",
        "no such file",
    ]
    assert lines[4].startswith("/clips.csv: line 8 of clips.csv: opens a quotation mark")
    assert "given twice" in lines[5]  # the row behind it, which is one of its own
    assert len(lines) == 6


def test_a_mark_that_is_never_closed_does_not_swallow_the_rest(write: Write) -> None:
    filler = "".join(f"a.wav,{i:06d}{'x' * 100}\n" for i in range(3000))
    manifest = write("clips.csv", f'path,text\nb.wav,"open\n{filler}sub/ü c.wav,"last"\n')
    clips, lines = serve(manifest)
    assert clips[-1].text == "last"
    assert "line 2 of clips.csv: opens a quotation mark" in lines[0]
    assert len(lines) + len(clips) == 3002


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize("others", ["plain", '"in marks"'])
def test_every_row_is_served_or_has_a_line_wherever_marks_stand(
    write: Write, tmp_path: Path, kind: str, others: str
) -> None:
    """Texts with marks at random, in tables that quote elsewhere and in tables that do not."""
    rng = random.Random(f"{kind} {others}")
    texts = ('"open', 'close"', '"', '"said" he', 'he "said"', '""', "plain", '"a"b"', "'")
    for _ in range(40):
        names = [f"{i}.wav" for i in range(30)]
        for name in names:
            (tmp_path / "set" / name).touch()
        rows = [(name, rng.choice((others, others, *texts)), "ann") for name in names]
        separator = "\t" if kind == "tsv" else ","
        lines = [separator.join(row) for row in (("path", "text", "speaker"), *rows)]
        clips, skipped = serve(write(f"clips.{kind}", "\n".join(lines) + "\n"))
        served = {clip.id for clip in clips}
        said = {int(n) for line in skipped for n in re.findall(r"line (\d+) of", line)[:1]}
        assert all(name in served or i + 2 in said for i, name in enumerate(names))
        assert len(served) + len(skipped) == 30


def test_a_table_that_nowhere_quotes_is_read_as_one_that_does_not(write: Write) -> None:
    texts = ['"Hello', "and so on", 'he said"', 'the "end"', '"Who" asked']
    paths = ["a.wav", "b.wav", "sub/ü c.wav", "a.wav", "b.wav"]
    for kind, separator in (("csv", ","), ("tsv", "\t")):
        rows = [
            (path, text, f"{i}") for i, (path, text) in enumerate(zip(paths, texts, strict=True))
        ]
        table = "\n".join(separator.join(row) for row in (("path", "text", "id"), *rows))
        clips, lines = serve(write(f"clips.{kind}", table))
        assert [clip.text for clip in clips] == texts and lines == []


def test_a_text_of_several_lines_in_marks_is_one_field(write: Write) -> None:
    table = 'path,text\na.wav,"one, two,\nthree\n""four"" five.wav"\nb.wav,six\n'
    clips, lines = serve(write("clips.csv", table))
    assert [clip.text for clip in clips] == ['one, two,\nthree\n"four" five.wav', "six"]
    assert lines == []


def test_other_encodings_are_reported(write: Write) -> None:
    latin = "path,text\na.wav,caf\xe9\nb.wav,tea\n".encode("latin-1")
    clips, lines = serve(write("clips.csv", latin))
    assert [clip.id for clip in clips] == ["b.wav"]
    assert "line 2 of clips.csv: is not in UTF-8" in lines[0]
    with pytest.raises(ValueError, match="not a table in UTF-8"):
        serve(write("clips.csv", "path,caf\xe9\na.wav,x\n".encode("latin-1")))
    for kind in ("csv", "jsonl"):  # UTF-16 without its mark
        with pytest.raises(ValueError, match=r"UTF-8|no row has"):
            serve(write(f"clips.{kind}", "path,text\na.wav,x\n".encode("utf-16-le")))


def test_rows_given_twice_are_skipped(write: Write) -> None:
    text = "path,start,id\na.wav,,\na.wav,,\n./a.wav,,\na.wav,1,\na.wav,1.0,\nb.wav,,a.wav\n"
    clips, lines = serve(write("clips.csv", text))
    assert [clip.id for clip in clips] == ["a.wav", "a.wav#1-"]
    assert len(lines) == 4 and all("given twice" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("clips.csv", "", "holds no rows"),
        ("clips.csv", "\n\n", "holds no rows"),
        ("clips.csv", "path,text\n", "holds no rows"),
        ("clips.jsonl", "", "holds no rows"),
        ("clips.csv", "file,text\na.wav,x\n", "no column is named path or .* file, text"),
        ("clips.csv", "a.wav\nb.wav\n", "no column is named path"),
        ("clips.jsonl", '{"file": "a.wav"}\n', "no row has a path"),
        ("clips.json", '[\n{"path": "a.wav"}\n]\n', "one JSON list"),
        ("clips.csv", "path,text,text\na.wav,x,y\n", "two columns are named 'text'"),
        ("clips.txt", "a.wav\n", r"not one of \.csv"),
        ("clips.csv", bytes(range(256)) * 10, "UTF-8|first row"),
        ("clips.jsonl", bytes(range(256)) * 10, "no row has"),
    ],
)
def test_a_table_that_cannot_serve_is_refused(
    write: Write, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        serve(write(name, content))
    assert "\n" not in str(error.value)


def test_no_such_manifest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such manifest"):
        next(manifest_clips(tmp_path / "none.csv"))
    with pytest.raises(IsADirectoryError, match="is a folder; pass the manifest's file"):
        next(manifest_clips(tmp_path))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_memory_does_not_grow_with_the_rows(write: Write, kind: str) -> None:
    def peak(rows: int) -> int:
        if kind == "csv":
            text = "path,text\n" + "".join(f"none{i}.wav,{'x' * 200}\n" for i in range(rows))
        else:
            line = '{{"path": "none{}.wav", "text": "{}"}}\n'
            text = "".join(line.format(i, "x" * 200) for i in range(rows))
        manifest = write(f"clips.{kind}", text)
        tracemalloc.start()
        assert sum(1 for _ in manifest_clips(manifest)) == rows
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(4000) < peak(400) + 100_000
