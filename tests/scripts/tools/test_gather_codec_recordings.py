from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audiolm.audio.find import search_folder

from ..conftest import RunScript

PATH = Path(__file__).resolve().parents[3] / "scripts" / "tools" / "gather_codec_recordings.py"
"""A script that stands alone is loaded from its file, under the name that its workers find."""
spec = spec_from_file_location(PATH.stem, PATH)
assert spec and spec.loader
tool = sys.modules[PATH.stem] = module_from_spec(spec)
spec.loader.exec_module(tool)
Clip, gather, recordings = tool.Clip, tool.gather, tool.recordings

FREE = ("GPL-2", "GPL-3", "LGPL-2", "GFDL-1.3", "CC BY 3.0", "CC BY-SA ", "CMU ")
KLETTRES = Path("usr/share/klettres")
BOOK = Path("usr/share/doc/anarchism/html")


def write_noise(path: Path, seconds: float = 0.3, rate: int = 22050, peak: float = 0.3) -> None:
    """A recording unlike any of another name."""
    seed = int(hashlib.sha256(str(path).encode()).hexdigest()[:8], 16)
    noise = np.random.default_rng(seed).uniform(-peak, peak, round(seconds * rate))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, noise, rate)


def write_book(root: Path) -> None:
    """7,000 sentences."""
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=5)) for _ in range(2000)]
    text = " ".join(" ".join(draw.choices(words, k=6)) + "." for _ in range(7000))
    (root / BOOK).mkdir(parents=True)
    (root / BOOK / "page.html").write_text(f"<p>{text}</p>")


def names(folder: Path) -> set[str]:
    """What lies below train/SOURCE or validation/SOURCE."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*.flac")}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file system with two hundred recordings of KLettres, in two languages and in Russian."""
    root = tmp_path_factory.mktemp("root")
    for language, count in (("cs", 100), ("fr", 80), ("ru", 20)):
        for i in range(count):
            write_noise(root / KLETTRES / language / "alpha" / f"{i}.wav")
    return root


@pytest.fixture(scope="module")
def gathered(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is made of them."""
    out = tmp_path_factory.mktemp("out")
    gather(out, root, None, ["klettres"])
    return out


def test_what_is_for_validation_is_never_in_train(gathered: Path) -> None:
    train, validation = names(gathered / "train/klettres"), names(gathered / "validation/klettres")
    assert len(train | validation) == 180 and validation
    assert all(map(tool.is_validation, validation)) and not any(map(tool.is_validation, train))
    assert len(names(gathered / "validation/unseen_klettres_ru")) == 20
    assert [path.name for path in (gathered / "train").iterdir()] == ["klettres"]


def test_clips_are_16_khz_mono_flac(gathered: Path) -> None:
    info = soundfile.info(next((gathered / "train").rglob("*.flac")))
    assert (info.format, info.samplerate, info.channels) == ("FLAC", 16000, 1)
    assert info.duration == pytest.approx(0.3, abs=0.001)


def test_the_table_tells_minutes_and_licence_of_every_subfolder(gathered: Path) -> None:
    rows = (gathered / "SOURCES.md").read_text().splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == ["klettres", "klettres", "unseen_klettres_ru"]
    for row in rows:
        assert "Anne-Marie Mahfouf" in row and "GPL-2 or later" in row and "klettres-data" in row
    assert "| validation | unseen_klettres_ru | 0.1 | 20 |" in rows[-1]


def test_another_run_makes_nothing_twice(
    root: Path, gathered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in gathered.rglob("*.flac")}
    gather(gathered, root, None, ["klettres"])
    assert {path: path.stat().st_mtime_ns for path in gathered.rglob("*.flac")} == before
    assert "klettres: 0 made, 200 kept" in capsys.readouterr().out


def test_melodies_are_recordings_like_all_others(root: Path, tmp_path: Path) -> None:
    for _ in range(2):
        gather(tmp_path, root, None, [tool.MELODIES])
        found = search_folder(tmp_path / "train")
        assert len(found.files) == 140 and not found.outputs


def test_the_same_recording_under_two_names_is_used_once(tmp_path: Path) -> None:
    folder = tmp_path / KLETTRES / "cs"
    for i in range(50):
        write_noise(folder / f"{i}.wav")
        (folder / f"{i}copy.wav").write_bytes((folder / f"{i}.wav").read_bytes())
    assert len(list(recordings(str(KLETTRES), "klettres", tmp_path))) == 50


def test_short_silent_and_narrow_recordings_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / KLETTRES / "cs"
    write_noise(folder / "good.wav")
    write_noise(folder / "short.wav", seconds=0.1)
    write_noise(folder / "silent.wav", peak=1e-4)
    write_noise(folder / "narrow.wav", rate=8000)
    (folder / "broken.wav").write_bytes(b"RIFF")
    gather(tmp_path / "out", tmp_path, None, ["klettres"])
    assert names(tmp_path / "out/train/klettres") == {"cs/good.flac"}
    printed = capsys.readouterr().out
    assert "1 made" in printed and "skipped 1: silent" in printed
    assert "skipped 1: shorter than 0.15 s" in printed


def test_a_kill_leaves_no_half_file_and_the_next_run_goes_on(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, str(PATH), str(out)]
    command += ["--root", str(root), "--only", "klettres"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    while not any(out.rglob("*.flac")) and run.poll() is None:
        time.sleep(0.001)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert run.returncode == -signal.SIGKILL, "it ended before it could be killed"
    done = list(out.rglob("*.flac"))
    assert 0 < len(done) < 200
    for path in done:
        samples, _ = soundfile.read(path)
        assert len(samples) == 4800
    for half in out.rglob("*.tmp"):
        os.utime(half, (0, 0))
    gather(out, root, None, ["klettres"])
    assert len(list(out.rglob("*.flac"))) == 200
    assert not list(out.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("animals/cow_desc_fr", "fr/animals/cow"),
        ("animals/cow_desc", "en/animals/cow"),
        ("animals/cow_desc_pt_BR", "pt_BR/animals/cow"),
        ("symbols/math/7_en_GB", "en_GB/symbols/math/7_read"),
        ("animals/cow", None),
        ("animals/cow_moo", None),
    ],
)
def test_stamps_that_are_named_are_sorted_by_language(name: str, wanted: str | None) -> None:
    assert tool.of_a_stamp(name) == wanted


@pytest.mark.parametrize("voice", ["slt", "george", "lucas", "yweweler"])
def test_voices_to_evaluate_with_are_refused_for_training(voice: str) -> None:
    with pytest.raises(ValueError, match=f"the voice {voice} is for evaluation"):
        Clip("train/any/clip.flac", voice)
    Clip("validation/any/clip.flac", voice)


def test_takes_and_speakers_of_digits_are_for_validation(tmp_path: Path) -> None:
    for speaker in ("jackson", "george"):
        for take in (0, 9, 10, 49):
            write_noise(tmp_path / f"7_{speaker}_{take}.wav", rate=8000)
    write_noise(tmp_path / "a_note_of_mine.wav")
    assert [clip.target for clip in tool.digits(tmp_path, Path("/"))] == [
        "validation/unseen_digits/7_george_0.flac",
        "validation/unseen_digits/7_george_9.flac",
        "validation/digits/7_jackson_0.flac",
        "train/digits/7_jackson_10.flac",
        "train/digits/7_jackson_49.flac",
        "validation/digits/7_jackson_9.flac",
    ]


def test_sentences_to_evaluate_with_are_not_said_in_train(tmp_path: Path) -> None:
    write_book(tmp_path)
    (tmp_path / "usr/share/festival/voices/english/kal_diphone").mkdir(parents=True)
    evaluated = {text for _, text in tool.test_texts(tmp_path, 150)}
    evaluated |= set(tool.sentences(tmp_path / BOOK)[6200:6500])
    assert len(evaluated) == 300
    clips = [*tool.festival_kal(tmp_path)]
    for voice, start in (("rms", 0), ("awb", 700), ("kal16", 1400)):
        clips += tool.flite(voice, start, 700, tmp_path)
    said = {clip.text.decode() or clip.command[4] for clip in clips}
    assert len(said) == 290 + 3 * 700  # each sentence by one voice
    assert not said & evaluated
    assert [clip.target for clip in tool.slt(tmp_path)][:1] == ["validation/slt/s06350.flac"]


def test_each_source_tells_by_whom_and_under_which_free_licence() -> None:
    sources = tool.all_sources(Path("digits"))
    assert len({source.name for source in sources}) == len(sources)
    for source in sources:
        assert source.licence.startswith(FREE), source.name
        assert source.by and (source.packages or source.name == "digits")
        assert "NC" not in source.licence and "ND" not in source.licence
        assert "slt" not in source.packages


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "klettres,gcin"], "apt-get install klettres-data gcin-voice, or name other"),
        (["--only", "festival_hindi"], "apt-get install festival festvox-hi-nsk"),
        (["--only", "klettre"], "--only klettre: no such source; there are fillets_cs,"),
        (["--only", "digits"], "--only digits: name the folder of recordings with --digits DIR"),
        (["--digits", "nowhere"], "nowhere: no such folder; --digits takes recordings/ of the set"),
    ],
)
def test_errors_are_one_line_with_the_remedy(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    run_script: RunScript,
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    result = run_script(
        "tools/gather_codec_recordings", str(out), "--root", str(tmp_path), *arguments
    )
    assert result.code == 2
    assert result.err.startswith(message) and result.err.count("\n") == 1
    assert not list(out.iterdir())


def test_a_folder_of_the_older_layout_is_answered_with_the_new_name(tmp_path: Path) -> None:
    (tmp_path / "out" / "heldout").mkdir(parents=True)
    with pytest.raises(ValueError, match="is called validation now; mv "):
        gather(tmp_path / "out", tmp_path, None, ["klettres"])
