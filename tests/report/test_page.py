"""The page of a run: what it says is what the files say, and any of them may be missing or odd."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audiolm.report import sections
from audiolm.report.page import MOST_BYTES, comparison_page, run_page, write_run_page
from audiolm.run_folder import RunFolder

from .pages import Page, check_numbers
from .runs import RATE, evaluation, make_run, session, write_json, write_sound

SECTIONS = ["loss", "pace", "samples", "evaluation", "data", "codec", "settings", "machine",
            "commands", "missing"]  # fmt: skip
OPTIONAL = [
    "plan.json",
    "sessions.json",
    "metrics.csv",
    "scores.json",
    "evaluation.json",
    "listen/listen.json",
    ".hydra/config.yaml",
    ".hydra/overrides.yaml",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture(scope="module")
def html(made: RunFolder) -> str:
    return run_page(made)


@pytest.fixture
def run(made: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy to take apart."""
    return RunFolder(Path(shutil.copytree(made.path, tmp_path / "run")))


def test_every_number_is_that_of_its_file(made: RunFolder, html: str) -> None:
    page = Page.read(html)
    assert check_numbers(page, made.path) > 80
    sources = {shown.source.partition("#")[0] for shown in page.shown}
    assert sources >= {"metrics.csv", "plan.json", "sessions.json", "scores.json",
                       "evaluation.json", "listen/listen.json"}  # fmt: skip


def test_a_number_that_is_not_the_files_would_be_seen(made: RunFolder, html: str) -> None:
    for wrong in (
        html.replace(">1.500</data>", ">1.501</data>", 1),
        html.replace('data-source="plan.json#/parameters"', 'data-source="plan.json#/max_steps"'),
        html.replace("Of <data", "Of 0.25 <data", 1),
    ):
        assert wrong != html
        with pytest.raises(AssertionError):
            check_numbers(Page.read(wrong), made.path)


def test_the_sections_stand_in_order(html: str) -> None:
    page = Page.read(html)
    assert [i for i in page.ids if i in SECTIONS] == SECTIONS
    assert html.index('class="verdict"') < html.index('id="loss"')
    assert len(set(page.ids)) == len(page.ids)  # also of the figures
    for name in re.findall(r'(?:href="#|url\(#)([^")]+)', html):
        assert name in page.ids


def test_the_verdict_has_the_best_validation_not_the_last(run: RunFolder) -> None:
    with run.metrics.open("a") as file:
        file.write("49,,,,,2.5,360.7,2.2,2.8\n")
    page = Page.read(run_page(run))
    assert "1.500 nats per code" in page.text and "logged at step 39" in page.text


def test_nothing_is_fetched(html: str) -> None:
    page = Page.read(html)
    assert {"script", "iframe", "object", "base"}.isdisjoint(tag for tag, _ in page.tags)
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "poster", "srcset", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value[:80])
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    assert "@import" not in html and not re.search(r"url\((?!#)", html)


def test_the_same_files_give_the_same_bytes(run: RunFolder, tmp_path: Path) -> None:
    first = write_run_page(run, tmp_path / "one.html").read_bytes()
    assert write_run_page(run, tmp_path / "two.html").read_bytes() == first
    assert len(first) < MOST_BYTES
    assert write_run_page(run) == run.report and run.report.read_bytes() == first


def test_players_play_the_files(made: RunFolder, html: str) -> None:
    sounds = []
    for source in Page.read(html).players:
        kind, _, data = source.partition(",")
        assert kind == "data:audio/flac;base64"
        sound, rate = soundfile.read(io.BytesIO(base64.b64decode(data)), dtype="int16")
        assert rate == RATE
        sounds.append(sound)
    for path in sorted(made.path.rglob("*.wav")):
        file = soundfile.read(path, dtype="int16")[0]
        assert sum(np.array_equal(sound, file) for sound in sounds) == 1, path
    assert len(sounds) == 7


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_is_missing_is_said_with_its_reason(run: RunFolder, name: str) -> None:
    (run.path / name).unlink()
    page = Page.read(run_page(run))
    assert re.search(rf"{name}\s*.+\w", page.text.split("What is missing, and why")[1])
    check_numbers(page, run.path)


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("content", [b"\xff\x00{", b"[1, 2]", b'{"a": 1}', b"null"])
def test_a_damaged_file_stops_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    run = make_run(tmp_path / "run", sounds=False)
    if name != "evaluation.json":
        run.evaluation.unlink()
    (run.path / name).write_bytes(content)
    page = Page.read(run_page(run))
    # A plan of which nothing is known, a config and a list of overrides are what they may be.
    whole = {".hydra/config.yaml": b'{"a": 1}', ".hydra/overrides.yaml": b"[1, 2]"}
    if name != "plan.json" and whole.get(name) != content:
        assert name in page.text.split("What is missing, and why")[1]


def test_an_empty_folder_has_a_page(tmp_path: Path) -> None:
    page = Page.read(run_page(RunFolder(tmp_path)))
    for name in OPTIONAL:
        assert name in page.text
    with pytest.raises(FileNotFoundError, match="no such folder"):
        write_run_page(RunFolder(tmp_path / "none"))


def test_a_sound_that_cannot_be_played_is_named(run: RunFolder) -> None:
    (run.samples / "step_00000040_sample_000.wav").write_bytes(b"RIFF")
    page = Page.read(run_page(run))
    assert len(page.players) == 6
    assert "step_00000040_sample_000.wav" in page.text.split("What is missing, and why")[1]


@pytest.mark.parametrize(
    ("codes", "words"),
    [(9000, "1.5 hours of audio a minute"), (4500, "45.0 minutes of audio a minute")],
)
def test_speed_is_in_audio_a_minute(run: RunFolder, codes: int, words: str) -> None:
    with run.metrics.open("a") as file:
        file.write(f"39,,,,{codes},,,,\n")  # of 100 codes a second of audio
    page = Page.read(run_page(run))
    assert f"{words} at the end" in page.text
    check_numbers(page, run.path)
    plan = json.loads(run.plan.read_text())
    del plan["codec"]
    write_json(run.plan, plan)
    assert f"{codes:,} codes a second at the end" in Page.read(run_page(run)).text


def test_samples_say_what_they_were_conditioned_on(run: RunFolder, html: str) -> None:
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html, flags=re.S)
    told = {
        step: [re.sub(r"<[^>]*>", "", c.split("<br>")[1]) for c in captions if c.startswith(step)]
        for step in ("step 20,", "step 40,", "sample 000")
    }
    both = ["label seven &lt;7&gt;, text a sentence of 1.5 words &amp; more", "label eight"]
    assert told == {"step 20,": both, "step 40,": both, "sample 000": ["speaker theo"]}
    plan = json.loads(run.plan.read_text())
    plan["data"]["conditions"] = {"label": "2 names"}
    del plan["sample_conditions"]
    write_json(run.plan, plan)
    older = run_page(run)
    assert "<br>label" not in older
    assert "plan.json, sample_conditions" in older.split("What is missing, and why")[1]


@pytest.mark.parametrize("there", [True, False])
def test_the_command_to_export_is_there_with_its_script(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    script = tmp_path / "export.py"
    monkeypatch.setattr(sections, "EXPORT", script)
    if there:
        script.write_text("")
    command = f"python scripts/export.py ckpt_path={run.path} out={run.path}/exported"
    assert (command in Page.read(run_page(run)).text) == there


def test_a_row_cut_by_a_kill_does_not_count(run: RunFolder) -> None:
    whole = run_page(run)
    with run.metrics.open("a") as file:
        file.write("40,0.0001")
    assert run_page(run) == whole


@pytest.mark.parametrize(
    ("sessions", "words"),
    [
        ([session(40)], "40 of 40 steps, finished"),
        ([session(None)], "step 39 of 40 is the last one logged: it still runs, or was killed"),
        (
            [session(None), session(40, resumed_from="checkpoints/last.ckpt")],
            "40 of 40 steps, finished, resumed once",
        ),
        ([session(30)], "30 of 40 steps, ended early"),
        (
            [session(30, ended={**session(30)["ended"], "interrupted": True})],
            "30 of 40 steps, stopped by the user",
        ),
        (
            [session(30, ended={**session(30)["ended"], "error": "OSError: disk <full>"})],
            "30 of 40 steps, ended by an error: OSError: disk <full>",
        ),
    ],
)
def test_how_a_run_ended(run: RunFolder, sessions: list[object], words: str) -> None:
    write_json(run.sessions, sessions)
    page = Page.read(run_page(run))
    assert words in " ".join(page.text.split())
    check_numbers(page, run.path)


def test_an_evaluation_without_samples(run: RunFolder) -> None:
    metrics = evaluation(np.random.default_rng(0))
    del metrics["clips"], metrics["memorisation"]
    write_json(run.evaluation, metrics)
    run.scores.unlink()
    assert "not measured: run scripts/evaluate.py" in Page.read(run_page(run)).text


def test_names_are_harmless(run: RunFolder, tmp_path: Path) -> None:
    hostile = """<script>alert(1)</script>&amp;"'</title><img src=x onerror=alert(2)>"""
    path = tmp_path / hostile.replace("/", "_")
    shutil.copytree(run.path, path)
    plan = json.loads((path / "plan.json").read_text())
    plan["check"]["findings"]["silent"][0]["path"] = f"{hostile}\udcff"
    plan["changed_settings"][hostile] = {"value": hostile, "default": None}
    plan["check"]["rules"][hostile] = plan["check"]["rules"]["silent"]
    write_json(path / "plan.json", plan)
    listened = json.loads((path / "listen" / "listen.json").read_text())
    listened["clips"][0]["id"] = hostile
    write_json(path / "listen" / "listen.json", listened)
    write_json(path / "sessions.json", [session(40, command=["python", hostile])])
    page_file = write_run_page(RunFolder(path))
    page = Page.read(page_file.read_text(encoding="utf-8"))
    tags = {tag for tag, _ in page.tags}
    assert tags.isdisjoint({"script", "img"}) and hostile in page.text
    both = comparison_page([RunFolder(path), run])
    assert {tag for tag, _ in Page.read(both).tags}.isdisjoint({"script", "img"})


def test_a_page_never_grows_beyond_its_limit(run: RunFolder) -> None:
    rng = np.random.default_rng(1)
    for i in range(2, 26):
        write_sound(run.samples / f"step_00000040_sample_{i:03d}.wav", rng, seconds=20)
    html = run_page(run)
    assert 3_000_000 < len(html.encode()) <= MOST_BYTES
    assert "the page has no room for it" in html
    many = RunFolder(run.path)
    lines = many.metrics.read_text().splitlines()
    many.metrics.write_text("\n".join([lines[0]] + [
        f"{step},{1 + step % 7},0.5,0.001,9000,,,," for step in range(30_000)
    ]) + "\n")  # fmt: skip
    assert len(run_page(many).encode()) <= MOST_BYTES


def test_the_page_of_a_codecs_training(tmp_path: Path) -> None:
    run = make_run(tmp_path / "codec", codec_model={"n_filters": 4})
    rng = np.random.default_rng(0)
    for name in ("original_0", "step_00000020_0"):
        write_sound(run.reconstructions / f"{name}.wav", rng)
    run.metrics.write_text("step,valid/loss\n9,3.25\n19,2.125\n")
    for name in ("plan.json", "evaluation.json", "scores.json"):
        (run.path / name).unlink()
    page = Page.read(run_page(run))
    check_numbers(page, run.path)
    assert "2.125 validation loss, at step 19" in page.text
    assert "nats" not in page.text.split("Loss")[0]
