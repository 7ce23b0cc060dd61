"""torchaudio's public sets as sources of clips, each read from a folder laid out as the set is.

    librispeech_clips  libritts_clips  ljspeech_clips  vctk_clips
    speechcommands_clips  yesno_clips  gtzan_clips

`root` is the folder that holds the set's own folder, or that folder itself; ids are paths below the
latter. With `download`, what is not there is fetched by torchaudio, checked against its hash, and
unpacked; a download that was stopped resumes with whatever archives are whole.

All raise FileNotFoundError, when the first clip is asked for, where the layout is not found (saying
what was looked for), and OSError where a download fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from audiolm.datasets.clip import Clip, SkippedClip, make_clip, split_name
from audiolm.files import one_line, user_path

# ---- The sets


def librispeech_clips(
    root: str | Path, subsets: Sequence[str] | None = None, *, download: bool = False
) -> Iterator[Clip | SkippedClip]:
    """LibriSpeech: read English, 16 kHz.

        LibriSpeech/dev-clean/84/121123/84-121123-0000.flac
                                        84-121123.trans.txt    84-121123-0000 GO DO YOU HEAR

    subsets: such as dev-clean and train-clean-100; None: all that are there.
    The clips have text, speaker, chapter and subset; dev-... is "valid", test-... is "test",
    train-... is "train". Raises ValueError for a download without subsets: all are 60 GB.
    """
    for folder in _libri_folders("LibriSpeech", "LIBRISPEECH", user_path(root), subsets, download):
        for chapter in _folders(folder, depth=2):
            texts: dict[str, str] = {}
            for file in sorted(chapter.glob("*.trans.txt")):
                for line in _lines(file):
                    id, _, text = line.partition(" ")
                    texts[id] = text
            for path in sorted(chapter.glob("*.flac")):
                yield _libri_clip(folder, path, texts.pop(path.stem, ""))
            for id in texts:  # a line without its recording
                yield _libri_clip(folder, chapter / f"{id}.flac", "")


def libritts_clips(
    root: str | Path, subsets: Sequence[str] | None = None, *, download: bool = False
) -> Iterator[Clip | SkippedClip]:
    """LibriTTS: LibriSpeech's books cut at sentences, 24 kHz.

        LibriTTS/dev-clean/84/121123/84_121123_000007_000001.wav
                                     84_121123_000007_000001.normalized.txt
                                     84_121123_000007_000001.original.txt

    As `librispeech_clips`; the text is the normalized one.
    """
    for folder in _libri_folders("LibriTTS", "LIBRITTS", user_path(root), subsets, download):
        for chapter in _folders(folder, depth=2):
            for path in sorted(chapter.glob("*.wav")):
                text = " ".join(_lines(path.with_suffix(".normalized.txt")))
                yield _libri_clip(folder, path, text)


def ljspeech_clips(root: str | Path, *, download: bool = False) -> Iterator[Clip | SkippedClip]:
    """LJSpeech 1.1: 24 hours of one reader, 22.05 kHz; also another set of this layout.

        LJSpeech-1.1/metadata.csv    LJ001-0001|Printing, in 1450|Printing, in fourteen fifty
                     wavs/LJ001-0001.wav

    The clips have text (the normalized one, where there is one) and chapter (LJ001). A recording
    that metadata.csv does not list is skipped.
    """
    layout = _Layout("LJSpeech", "LJSPEECH", ("LJSpeech-1.1", "."), ("metadata.csv", "wavs/*.wav"))
    folder = _find(layout, user_path(root), download)
    listed = set()
    for line in _lines(folder / "metadata.csv"):
        id, *texts = (part.strip() for part in line.split("|"))
        path = folder / "wavs" / f"{id}.wav"
        listed.add(path.name)
        chapter, hyphen, _ = id.partition("-")
        text = next(filter(None, reversed(texts[:2])), "")
        yield _clip(folder, path, {"text": text, "chapter": chapter if hyphen else ""})
    for path in sorted((folder / "wavs").glob("*.wav")):
        if path.name not in listed:
            yield SkippedClip(path, "is not listed in metadata.csv")


def vctk_clips(
    root: str | Path, *, mic: str = "mic2", download: bool = False
) -> Iterator[Clip | SkippedClip]:
    """VCTK 0.92: 110 speakers of English, 48 kHz, each sentence through two microphones.

        VCTK-Corpus-0.92/wav48_silence_trimmed/p225/p225_001_mic2.flac
                         txt/p225/p225_001.txt

    mic: the microphone, "mic1" or "mic2" (torchaudio's default; p280 has only mic1).
    The clips have text (but p315's) and speaker. Raises ValueError for another mic.
    """
    if mic not in ("mic1", "mic2"):
        raise ValueError(f"mic is {mic!r}; pass mic1 or mic2")
    audio = "wav48_silence_trimmed"
    layout = _Layout("VCTK", "VCTK_092", ("VCTK-Corpus-0.92", "."), (f"{audio}/*", "txt/*"))
    folder = _find(layout, user_path(root), download)
    for speaker in _folders(folder / audio, depth=1):
        for path in sorted(speaker.glob(f"*_{mic}.flac")):
            name = path.stem.removesuffix(f"_{mic}")
            text = " ".join(_lines(folder / "txt" / speaker.name / f"{name}.txt"))
            yield _clip(folder, path, {"text": text, "speaker": speaker.name})


def speechcommands_clips(
    root: str | Path, *, download: bool = False
) -> Iterator[Clip | SkippedClip]:
    """Speech Commands 0.02 (or 0.01, where only that is there): single words, 16 kHz.

        SpeechCommands/speech_commands_v0.02/bed/0c40e715_nohash_0.wav
                                             validation_list.txt    bed/0c40e715_nohash_0.wav
                                             testing_list.txt

    The clips have label (the word) and speaker, and the split of the set's own lists: "train" for
    what is in neither. What is in _background_noise_ is neither a word nor a clip.
    """
    lists = {"valid": "validation_list.txt", "test": "testing_list.txt"}
    versions = ("speech_commands_v0.02", "speech_commands_v0.01")
    folders = (*(f"SpeechCommands/{version}" for version in versions), *versions, ".")
    layout = _Layout("Speech Commands", "SPEECHCOMMANDS", folders, tuple(lists.values()))
    folder = _find(layout, user_path(root), download)
    splits = {line: split for split, name in lists.items() for line in _lines(folder / name)}
    for word in _folders(folder, depth=1):
        if word.name == "_background_noise_":
            continue
        for path in sorted(word.glob("*_nohash_*.wav")):
            split = splits.pop(f"{word.name}/{path.name}", "train")
            speaker = path.name.partition("_nohash_")[0]
            yield _clip(folder, path, {"label": word.name, "speaker": speaker, "split": split})
    for name in splits:  # listed, and not there
        yield _clip(folder, folder / name, {})


def yesno_clips(root: str | Path, *, download: bool = False) -> Iterator[Clip | SkippedClip]:
    """YesNo: sixty recordings of one speaker saying yes or no eight times in Hebrew, 8 kHz.

        waves_yesno/0_0_0_0_1_1_1_1.wav

    The clips have a text, here "no no no no yes yes yes yes".
    """
    layout = _Layout("YesNo", "YESNO", ("waves_yesno", "."), ("[01]_[01]_*.wav",))
    folder = _find(layout, user_path(root), download)
    for path in sorted(folder.glob("*.wav")):
        words = [{"0": "no", "1": "yes"}.get(digit, "") for digit in path.stem.split("_")]
        if all(words):
            yield _clip(folder, path, {"text": " ".join(words)})
        else:
            yield SkippedClip(path, "its name is not 0 and 1 with _ between them")


def gtzan_clips(root: str | Path, *, download: bool = False) -> Iterator[Clip | SkippedClip]:
    """GTZAN: a thousand half minutes of music in ten genres, 22.05 kHz.

        genres/blues/blues.00000.wav    (or .au, as it was published; or genres_original/)

    The clips have a label: the genre, which is the folder. The set has no official splits.
    """
    layout = _Layout("GTZAN", "GTZAN", ("genres", "genres_original", "."), ("*/*.[0-9]*",))
    folder = _find(layout, user_path(root), download)
    for genre in _folders(folder, depth=1):
        for path in sorted([*genre.glob("*.wav"), *genre.glob("*.au")]):
            yield _clip(folder, path, {"label": genre.name})


# ---- What they share


class _Layout(NamedTuple):
    """Where a set lies and how one knows it.

    dataset: the name of torchaudio's class. folders: where the set's own folder may be, from the
    root; first where torchaudio makes it. holds: patterns of paths in it, all of which match some.
    """

    title: str
    dataset: str
    folders: tuple[str, ...]
    holds: tuple[str, ...]


def _find(layout: _Layout, root: Path, download: bool, **options: str) -> Path:
    """The set's own folder; where it is not there, downloaded with `options` of torchaudio's."""
    for folder in (root / home for home in layout.folders):
        if all(any(folder.glob(pattern)) for pattern in layout.holds):
            return folder
    if not download:
        raise FileNotFoundError(
            f"no {layout.title} in {one_line(root)}: looked for {' and '.join(layout.holds)} in "
            f"{', '.join(layout.folders)}; pass data.root=DIR, or data.download=true to fetch it"
        )
    home = layout.folders[0]
    _download(layout, root, options)
    return root / home


def _download(layout: _Layout, root: Path, options: Mapping[str, str]) -> None:
    """Have torchaudio fetch and unpack the set beside its folder, which it takes when whole.

    torchaudio takes any folder of the name for a whole set, also one that was half unpacked.
    """
    from torchaudio import datasets

    home = layout.folders[0]
    partial = root / ".incomplete"
    shutil.rmtree(partial / home, ignore_errors=True)
    try:
        partial.mkdir(parents=True, exist_ok=True)
        getattr(datasets, layout.dataset)(str(partial), download=True, **options)
        (root / home).parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial / home, root / home)
    # torchaudio lets through whatever the network, the archive and the disk give.
    except Exception as error:
        line = " ".join(str(error).split())
        raise OSError(
            f"cannot download {layout.title} ({line}); check the network, or fetch it by other "
            f"means and unpack it as {one_line(root / home)}"
        ) from error
    shutil.rmtree(partial)


def _libri_folders(
    title: str, dataset: str, root: Path, subsets: Sequence[str] | None, download: bool
) -> list[Path]:
    """The folders of the subsets."""
    if not subsets:
        for base in (root / title, root):
            found = [folder for folder in _folders(base, depth=1) if split_name(folder.name)]
            if any(any(folder.glob("*/*/*")) for folder in found):
                return found
        if download:
            raise ValueError(
                f"{title} is fetched by its subsets; name them, such as "
                "data.subsets=[dev-clean,train-clean-100]"
            )
        raise FileNotFoundError(
            f"no {title} in {one_line(root)}: looked for folders such as dev-clean in {title}, .; "
            "pass data.root=DIR, or data.download=true with data.subsets=[...] to fetch some"
        )
    folders = []
    for name in [subsets] if isinstance(subsets, str) else subsets:
        layout = _Layout(f"{title} {name}", dataset, (f"{title}/{name}", name), ("*/*/*",))
        folders.append(_find(layout, root, download, url=name))
    return folders


def _libri_clip(folder: Path, path: Path, text: str) -> Clip | SkippedClip:
    """The clip of a recording in SUBSET/SPEAKER/CHAPTER."""
    speaker, chapter = path.parts[-3:-1]
    says = {"text": text, "speaker": speaker, "chapter": chapter, "subset": folder.name}
    return _clip(folder.parent, path, says | {"split": folder.name})


def _clip(folder: Path, path: Path, says: Mapping[str, str]) -> Clip | SkippedClip:
    return make_clip(path.relative_to(folder).as_posix(), path, says)


def _folders(folder: Path, depth: int) -> list[Path]:
    """The folders so many levels below, sorted."""
    return sorted(path for path in folder.glob("/".join("*" * depth)) if path.is_dir())


def _lines(file: Path) -> list[str]:
    """The lines of a text that are not empty; none where it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return []
    return [stripped for line in text.split("\n") if (stripped := line.strip())]
