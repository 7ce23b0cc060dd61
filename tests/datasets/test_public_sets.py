"""Public sets: the clips are those of torchaudio's own classes on the same made-up trees."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torchaudio

from audiolm.datasets.clip import Clip, SkippedClip
from audiolm.datasets.public_sets import (
    gtzan_clips,
    librispeech_clips,
    libritts_clips,
    ljspeech_clips,
    speechcommands_clips,
    vctk_clips,
    yesno_clips,
)

Source = Callable[..., Iterator[Clip | SkippedClip]]


def make(root: Path, tree: dict[str, str]) -> None:
    """Files of these texts; recordings are empty, nothing here decodes them."""
    for name, text in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


LIBRISPEECH = {
    "LibriSpeech/SPEAKERS.TXT": "84 | F | dev-clean",
    "LibriSpeech/dev-clean/84/121123/84-121123-0000.flac": "",
    "LibriSpeech/dev-clean/84/121123/84-121123-0001.flac": "",
    "LibriSpeech/dev-clean/84/121123/84-121123.trans.txt": "84-121123-0000 GO DO YOU\n"
    "84-121123-0001 BUT IN\n",
    "LibriSpeech/test-other/7/1/7-1-0000.flac": "",
    "LibriSpeech/test-other/7/1/7-1.trans.txt": "7-1-0000 YES\n",
    "LibriSpeech/train-clean-100/9/2/9-2-0000.flac": "",
    "LibriSpeech/train-clean-100/9/2/9-2.trans.txt": "9-2-0000 NO\n",
}
LIBRITTS = {
    "LibriTTS/dev-clean/84/121123/84_121123_000007_000001.wav": "",
    "LibriTTS/dev-clean/84/121123/84_121123_000007_000001.normalized.txt": "Mister X, go.",
    "LibriTTS/dev-clean/84/121123/84_121123_000007_000001.original.txt": "Mr. X, go.",
    "LibriTTS/train-other-500/9/2/9_2_000000_000000.wav": "",
    "LibriTTS/train-other-500/9/2/9_2_000000_000000.normalized.txt": "No.",
    "LibriTTS/train-other-500/9/2/9_2_000000_000000.original.txt": "No.",
}
LJSPEECH = {
    "LJSpeech-1.1/metadata.csv": 'LJ001-0001|Printing, in 1450|Printing, in "fourteen"\n'
    "LJ002-0001|“Yes”|“Yes”\n",
    "LJSpeech-1.1/wavs/LJ001-0001.wav": "",
    "LJSpeech-1.1/wavs/LJ002-0001.wav": "",
}
VCTK = {
    **{f"VCTK-Corpus-0.92/txt/p225/p225_00{i}.txt": f"Sentence {i}.\n" for i in (1, 2)},
    **{
        f"VCTK-Corpus-0.92/wav48_silence_trimmed/p225/p225_00{i}_mic{mic}.flac": ""
        for i in (1, 2)
        for mic in (1, 2)
    },
    "VCTK-Corpus-0.92/txt/s5/s5_001.txt": "Last.\n",
    "VCTK-Corpus-0.92/wav48_silence_trimmed/s5/s5_001_mic2.flac": "",
    "VCTK-Corpus-0.92/wav48_silence_trimmed/log.txt": "",
}
SPEECHCOMMANDS = {
    f"SpeechCommands/speech_commands_v0.02/{name}": text
    for name, text in {
        "bed/0c40e715_nohash_0.wav": "",
        "bed/0c40e715_nohash_1.wav": "",
        "cat/aa_nohash_0.wav": "",
        "_background_noise_/pink_noise.wav": "",
        "validation_list.txt": "bed/0c40e715_nohash_1.wav\n",
        "testing_list.txt": "cat/aa_nohash_0.wav\n",
        "README.md": "",
    }.items()
}
YESNO = {"waves_yesno/0_0_0_0_1_1_1_1.wav": "", "waves_yesno/1_0_1_0_1_0_1_0.wav": ""}
GTZAN = {
    "genres/blues/blues.00000.wav": "",
    "genres/blues/blues.00001.wav": "",
    "genres/rock/rock.00099.wav": "",
}
SETS: dict[str, tuple[Source, dict[str, str], str]] = {
    "librispeech": (librispeech_clips, LIBRISPEECH, "LibriSpeech"),
    "libritts": (libritts_clips, LIBRITTS, "LibriTTS"),
    "ljspeech": (ljspeech_clips, LJSPEECH, "LJSpeech-1.1"),
    "vctk": (vctk_clips, VCTK, "VCTK-Corpus-0.92"),
    "speechcommands": (speechcommands_clips, SPEECHCOMMANDS, "SpeechCommands"),
    "yesno": (yesno_clips, YESNO, "waves_yesno"),
    "gtzan": (gtzan_clips, GTZAN, "genres"),
}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that torchaudio's classes load: they decode nothing here."""
    paths: list[Path] = []

    def load(path: str | Path, *_: Any, **__: Any) -> tuple[None, int]:
        paths.append(Path(path))
        return None, 16000

    monkeypatch.setattr(torchaudio, "load", load)
    return paths


def serve(source: Source, root: Path, **arguments: Any) -> list[Clip]:
    found = list(source(root, **arguments))
    assert not [str(one) for one in found if isinstance(one, SkippedClip)]
    clips = [one for one in found if isinstance(one, Clip)]
    assert len({clip.id for clip in clips}) == len(clips) > 0
    return clips


@pytest.mark.parametrize("name", SETS)
def test_the_root_may_be_the_set_or_the_folder_above(tmp_path: Path, name: str) -> None:
    source, tree, own = SETS[name]
    make(tmp_path, tree)
    clips = serve(source, tmp_path)
    assert serve(source, tmp_path / own) == clips
    audio = {tmp_path / name for name in tree if name.endswith((".wav", ".flac"))}
    assert {clip.path for clip in clips} <= audio


@pytest.mark.parametrize("name", SETS)
def test_a_missing_layout_says_what_was_looked_for(tmp_path: Path, name: str) -> None:
    source, _, own = SETS[name]
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=rf"no .* in {root}: looked for .*{own}") as e:
            next(source(root))
        assert "data.root=DIR" in str(e.value) and "data.download=true" in str(e.value)


# ---- Against torchaudio


@pytest.mark.parametrize(
    ("subset", "split"),
    [("dev-clean", "valid"), ("test-other", "test"), ("train-clean-100", "train")],
)
def test_librispeech(tmp_path: Path, subset: str, split: str) -> None:
    make(tmp_path, LIBRISPEECH)
    theirs = torchaudio.datasets.LIBRISPEECH(tmp_path, subset)
    clips = serve(librispeech_clips, tmp_path, subsets=[subset])
    assert len(theirs) == len(clips)
    for i, clip in enumerate(clips):
        path, _, text, speaker, chapter, _ = theirs.get_metadata(i)
        assert clip == Clip(
            path,
            tmp_path / "LibriSpeech" / path,
            split=split,
            text=text,
            columns={"speaker": str(speaker), "chapter": str(chapter), "subset": subset},
        )
    assert serve(librispeech_clips, tmp_path, subsets=subset) == clips


def test_libritts(tmp_path: Path, loaded: list[Path]) -> None:
    make(tmp_path, LIBRITTS)
    clips = serve(libritts_clips, tmp_path)
    items = []
    for subset in ("dev-clean", "train-other-500"):
        items += list(map(torchaudio.datasets.LIBRITTS(tmp_path, subset).__getitem__, range(1)))
    assert loaded == [clip.path for clip in clips]
    assert [clip.split for clip in clips] == ["valid", "train"]
    for clip, (_, _, _, text, speaker, chapter, utterance) in zip(clips, items, strict=True):
        assert (clip.text, clip.path.stem) == (text, utterance)
        assert (clip.columns["speaker"], clip.columns["chapter"]) == (str(speaker), str(chapter))


def test_ljspeech(tmp_path: Path, loaded: list[Path]) -> None:
    make(tmp_path, LJSPEECH)
    theirs = torchaudio.datasets.LJSPEECH(tmp_path)
    clips = serve(ljspeech_clips, tmp_path)
    assert [clip.text for clip in clips] == [theirs[i][3] for i in range(len(theirs))]
    assert [clip.path for clip in clips] == loaded
    assert [clip.columns for clip in clips] == [{"chapter": "LJ001"}, {"chapter": "LJ002"}]


@pytest.mark.parametrize("mic", ["mic1", "mic2"])
def test_vctk(tmp_path: Path, loaded: list[Path], mic: str) -> None:
    make(tmp_path, VCTK)
    make(tmp_path, {"VCTK-Corpus-0.92/wav48_silence_trimmed/s5/s5_001_mic1.flac": ""})
    theirs = torchaudio.datasets.VCTK_092(str(tmp_path), mic)
    clips = serve(vctk_clips, tmp_path, mic=mic)
    items = [theirs[i] for i in range(len(theirs))]
    assert [clip.path for clip in clips] == loaded
    assert [(clip.text, clip.columns) for clip in clips] == [
        (text.strip(), {"speaker": speaker}) for _, _, text, speaker, _ in items
    ]
    with pytest.raises(ValueError, match="mic is 'mic3'"):
        next(vctk_clips(tmp_path, mic="mic3"))


def test_speechcommands(tmp_path: Path) -> None:
    make(tmp_path, SPEECHCOMMANDS)
    clips = serve(speechcommands_clips, tmp_path)
    found = set()
    for subset, split in (("training", "train"), ("validation", "valid"), ("testing", "test")):
        theirs = torchaudio.datasets.SPEECHCOMMANDS(tmp_path, subset=subset)
        for i in range(len(theirs)):
            path, _, label, speaker, _ = theirs.get_metadata(i)
            found.add((tmp_path / "SpeechCommands" / path, split, label, speaker))
    ours = {(clip.path, clip.split, clip.label, clip.columns["speaker"]) for clip in clips}
    assert ours == found


def test_yesno(tmp_path: Path, loaded: list[Path]) -> None:
    make(tmp_path, YESNO)
    theirs = torchaudio.datasets.YESNO(tmp_path)
    clips = serve(yesno_clips, tmp_path)
    words = [" ".join("yes" if digit else "no" for digit in theirs[i][2]) for i in range(2)]
    assert [clip.text for clip in clips] == words
    assert [clip.path for clip in clips] == loaded


def test_gtzan(tmp_path: Path, loaded: list[Path]) -> None:
    make(tmp_path, GTZAN)
    theirs = torchaudio.datasets.GTZAN(tmp_path)
    clips = serve(gtzan_clips, tmp_path)
    assert [clip.label for clip in clips] == [theirs[i][2] for i in range(len(theirs))]
    assert [clip.path for clip in clips] == loaded


# ---- Sets that are not quite whole


def test_a_recording_without_text_is_served_and_a_text_without_recording_reported(
    tmp_path: Path,
) -> None:
    make(tmp_path, {**LIBRISPEECH, **LIBRITTS, **LJSPEECH, **VCTK, **SPEECHCOMMANDS})
    chapter = tmp_path / "LibriSpeech/dev-clean/84/121123"
    (chapter / "84-121123-0000.flac").unlink()
    (chapter / "84-121123-0002.flac").touch()
    (tmp_path / "LibriTTS/dev-clean/84/121123/84_121123_000007_000001.normalized.txt").unlink()
    (tmp_path / "LJSpeech-1.1/wavs/LJ001-0001.wav").rename(
        tmp_path / "LJSpeech-1.1/wavs/LJ009-0001.wav"
    )
    (tmp_path / "VCTK-Corpus-0.92/txt/s5/s5_001.txt").unlink()
    (tmp_path / "SpeechCommands/speech_commands_v0.02/cat/aa_nohash_0.wav").unlink()
    texts: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    for source in (
        librispeech_clips,
        libritts_clips,
        ljspeech_clips,
        vctk_clips,
        speechcommands_clips,
    ):
        for one in source(tmp_path):
            if isinstance(one, SkippedClip):
                reasons[one.path.name] = one.reason
            else:
                texts[one.path.name] = one.text
    assert reasons == {
        "84-121123-0000.flac": "no such file",
        "LJ001-0001.wav": "no such file",
        "LJ009-0001.wav": "is not listed in metadata.csv",
        "aa_nohash_0.wav": "no such file",
    }
    for name in ("84-121123-0002.flac", "84_121123_000007_000001.wav", "s5_001_mic2.flac"):
        assert texts[name] is None


def test_other_sets_of_the_layout_of_ljspeech(tmp_path: Path) -> None:
    make(tmp_path, {"metadata.csv": "a|One|\nb|Two\n\n", "wavs/a.wav": "", "wavs/b.wav": ""})
    clips = serve(ljspeech_clips, tmp_path)
    assert [(clip.id, clip.text, clip.columns) for clip in clips] == [
        ("wavs/a.wav", "One", {}),
        ("wavs/b.wav", "Two", {}),
    ]


def test_subsets(tmp_path: Path) -> None:
    make(tmp_path, LIBRISPEECH)
    clips = serve(librispeech_clips, tmp_path, subsets=["test-other", "dev-clean"])
    assert [clip.columns["subset"] for clip in clips] == ["test-other", "dev-clean", "dev-clean"]
    for subsets in (["dev-other"], ["dev-clean", "dev-other"]):
        with pytest.raises(FileNotFoundError, match="no LibriSpeech dev-other in"):
            next(librispeech_clips(tmp_path, subsets))


# ---- Downloads


def test_what_is_there_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchaudio, "datasets", None)
    for source, tree, own in SETS.values():
        make(tmp_path, tree)
        assert serve(source, tmp_path, download=True) == serve(source, tmp_path)
        assert serve(source, tmp_path / own, download=True)


def test_a_download_is_torchaudios(tmp_path: Path) -> None:
    """From an archive that was fetched before, so without the network."""
    make(tmp_path / "made", YESNO)
    partial = tmp_path / "root/.incomplete"
    partial.mkdir(parents=True)
    with tarfile.open(partial / "waves_yesno.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "made/waves_yesno", "waves_yesno")
    # Half unpacked by a run that was killed: torchaudio would take it for whole.
    make(partial, {"waves_yesno/0_0_0_0_1_1_1_1.wav": ""})
    assert len(serve(yesno_clips, tmp_path / "root", download=True)) == 2
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["waves_yesno"]


@pytest.mark.parametrize("name", SETS)
def test_a_download_without_network_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no\nnetwork")

    monkeypatch.setattr("torch.hub.urlopen", fail)
    source, _, own = SETS[name]
    subsets = {"subsets": ["dev-clean"]} if "libri" in name else {}
    with pytest.raises(
        OSError, match=rf"cannot download .*no network.*unpack it as .*{own}"
    ) as error:
        next(source(tmp_path / "new", download=True, **subsets))
    assert "\n" not in str(error.value)
    if subsets:
        with pytest.raises(ValueError, match="fetched by its subsets"):
            next(source(tmp_path / "new", download=True))


@pytest.mark.parametrize(("name", "subset"), [("librispeech", "dev-clean"), ("vctk", None)])
def test_a_downloaded_set_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, subset: str | None
) -> None:
    source, tree, _ = SETS[name]
    calls = []

    def fetch(root: str, *, download: bool, **options: str) -> None:
        calls.append(options)
        make(Path(root), tree)
        (Path(root) / "archive.tar").touch()

    dataset = {"librispeech": "LIBRISPEECH", "vctk": "VCTK_092"}[name]
    monkeypatch.setattr(torchaudio.datasets, dataset, fetch)
    arguments = {"subsets": [subset]} if subset else {}
    clips = serve(source, tmp_path, download=True, **arguments)
    assert serve(source, tmp_path, **arguments) == clips
    assert calls == [{"url": subset} if subset else {}]
    assert not (tmp_path / ".incomplete").exists()
