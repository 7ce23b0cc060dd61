"""Gather the recordings that the bundled codec is trained and evaluated on.

    git clone https://github.com/Jakobovski/free-spoken-digit-dataset digits
    python scripts/tools/gather_codec_recordings.py OUT --digits digits/recordings

makes OUT/train for scripts/train_codec.py, OUT/validation for evaluate_codec.py, each with a
subfolder for every source, of 16 kHz mono FLAC, and OUT/SOURCES.md: how much there is of each, by
whom, under which licence. All but the digits comes from Debian's packages; what is not installed is
named. With --only fillets_cs,flite_rms some of it is made. A run that was stopped continues when it
is started again: a clip that is there is kept.

For validation are 4% of each source of people's recordings, and as a whole: all Russian, festival's
voice kdl, a piece of music, takes 0 to 9 of the digits, melodies of another seed, and flite's voice
slt, with sentences that nothing in this project is trained on.
"""

from __future__ import annotations

from audiolm.cli.loading import end_loading, start_loading

if __name__ == "__main__":
    start_loading()  # the other imports take seconds

import argparse
import csv
import gettext
import hashlib
import html
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import soundfile
import torch

from audiolm.audio import AUDIO_SUFFIXES, AudioError, read_audio, read_info
from audiolm.demo import make_melodies
from audiolm.files import replacing

SAMPLE_RATE = 16000  # Hz
SHORTEST = 0.15  # seconds; a codec's frame is 0.02
SILENT = 1e-3  # peak
PROCESSES = 2
SECONDS_BETWEEN_LINES = 10
OLD = 3600  # seconds

NEVER_TRAINED_ON = ("slt", "george", "lucas", "yweweler")
"""Voices that something in this project is evaluated with."""
UNSEEN_LANGUAGE = "ru"
MOST_UNSEEN = 200
"""Clips of the unseen language in each source: more would only make evaluation slower."""
VALIDATION_MUSIC = "reno_project-system"
VALIDATION_TAKES = range(10)
MELODIES = "demo"

KNOWN_SENTENCES, ALL_SENTENCES, TEST_SENTENCES = 4000, 6500, 150
"""Of the book's sentences, in order: the first may be trained on, the last are to evaluate with."""


@dataclass(frozen=True)
class Clip:
    """A clip to make: from a recording, or by a command that speaks a text."""

    target: str
    """Below OUT: train/SOURCE/... or validation/SOURCE/..."""
    voice: str = ""
    recording: str = ""
    seconds: float | None = None
    """Of the recording, from its start; None takes it whole."""
    command: tuple[str, ...] = ()
    """Writes WAV, to where it says {wav}."""
    text: bytes = b""
    """What the command reads."""

    def __post_init__(self) -> None:
        if self.target.startswith("train/") and self.voice in NEVER_TRAINED_ON:
            raise ValueError(
                f"{self.target}: the voice {self.voice} is for evaluation; put it in validation/"
            )


@dataclass(frozen=True)
class Source:
    """Where clips come from, and what their makers ask for."""

    name: str
    """The subfolder of train and of validation."""
    packages: str
    """To apt-get install."""
    voices: str
    by: str
    licence: str
    clips: Callable[[Path], Iterator[Clip]]
    """Of the root of the file system, where the packages are installed."""
    programs: tuple[str, ...] = ()


class Missing(Exception):
    """Something that a source needs is not installed."""


def is_validation(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < 4


def is_narrow(path: Path) -> bool:
    """Whether a file's rate is below the codec's. G.722 has it, and no header that says so."""
    try:
        return path.suffix != ".g722" and read_info(path).sample_rate < SAMPLE_RATE
    except AudioError:
        return False  # reported when the clip is made


def sound_of(path: Path) -> bytes:
    """The same for recordings that sound the same. The files of copies differ in their numbers."""
    content = path.read_bytes()
    if path.suffix != ".g722":
        with suppress(AudioError):  # reported when the clip is made
            content = read_audio(path)[0].numpy().tobytes()
    return hashlib.sha256(content).digest()


def without_copies(recordings: dict[str, Path]) -> Iterator[tuple[str, Path]]:
    """The first of each sound: under two names it could be in both parts."""
    sizes = Counter(path.stat().st_size for path in recordings.values())
    seen: set[bytes] = set()
    for name, path in recordings.items():
        if sizes[path.stat().st_size] > 1:  # others need not be decoded to know that they differ
            sound = sound_of(path)
            if sound in seen:
                continue
            seen.add(sound)
        yield name, path


def no_change(name: str) -> str:
    return name


def of_a_player(name: str) -> str | None:
    """Hedgewars' voices, without those that no person speaks or that speak the unseen language."""
    return None if name.startswith(("Robot/", "Default_ru/")) else name


def of_a_unit(name: str) -> str | None:
    """MegaGlest's units, where they speak; not their steps, blows and cries."""
    return name if re.search(r"_(ack|select)\w*$", name) else None


def of_a_stamp(name: str) -> str | None:
    """Tux Paint's stamps, where they are named: animals/cow_desc_fr becomes fr/animals/cow.

    Letters and numbers are also read out by others: symbols/7_fr becomes fr/symbols/7_read.
    """
    if found := re.fullmatch(r"(.+)_desc(?:_([a-z]{2}(?:_[A-Z]{2})?))?", name):
        return f"{found[2] or 'en'}/{found[1]}"
    if found := re.fullmatch(r"(symbols/.+)_([a-z]{2}(?:_[A-Za-z]{2})?)", name):
        return f"{found[2]}/{found[1]}_read"
    return None  # a noise


def recordings(
    folder: str,
    source: str,
    root: Path,
    pattern: str = "**/*",
    named: Callable[[str], str | None] = no_change,
    seconds: float | None = None,
) -> Iterator[Clip]:
    """The recordings below a folder: each content once, the unseen language for validation.

    Args:
        pattern: which files; those that are no audio are passed over.
        named: from a file's name, without its suffix, the clip's; None skips it.
    """
    base = root / folder
    if not base.is_dir():
        raise Missing
    found: dict[str, Path] = {}
    for path in sorted(base.glob(pattern)):
        name = named(str(path.relative_to(base).with_suffix("")))
        if name and path.suffix.lower() in (*AUDIO_SUFFIXES, ".g722"):
            found[name] = path
    unseen: list[tuple[str, Path]] = []
    for name, path in without_copies(found):
        if is_narrow(path):
            continue
        if name.split("/")[0] == UNSEEN_LANGUAGE:
            unseen.append((f"{name}.flac", path))
            continue
        part = "validation" if is_validation(f"{name}.flac") else "train"
        yield Clip(f"{part}/{source}/{name}.flac", recording=str(path), seconds=seconds)
    unseen.sort(key=lambda clip: hashlib.sha256(clip[0].encode()).hexdigest())
    for name, path in unseen[:MOST_UNSEEN]:
        yield Clip(f"validation/unseen_{source}_{UNSEEN_LANGUAGE}/{name}", recording=str(path))


def prompts(voice: str, root: Path) -> Iterator[Clip]:
    """Telephone prompts in one language, by one speaker; G.722 keeps all up to 7 kHz."""
    language = voice[:2]
    for clip in recordings(f"usr/share/asterisk/sounds/{voice}", f"speech_{language}", root):
        target = clip.target
        if language == UNSEEN_LANGUAGE:
            target = target.replace("train/", "validation/", 1)
        yield Clip(target, recording=clip.recording)


def hold_music(root: Path) -> Iterator[Clip]:
    for path in sorted((root / "usr/share/asterisk/moh").glob("*.g722")):
        part = "validation" if path.stem == VALIDATION_MUSIC else "train"
        yield Clip(f"{part}/music/{path.stem}.flac", recording=str(path))


def game_music(root: Path) -> Iterator[Clip]:
    """A minute of each piece: many pieces teach more than long ones."""
    games = "usr/share/games"
    for game, folder in (("fillets", "fillets-ng/music"), ("hedgewars", "hedgewars/Data/Music")):
        yield from recordings(
            f"{games}/{folder}", "game_music", root, named=f"{game}/{{}}".format, seconds=60
        )


def digits(folder: Path | None, root: Path) -> Iterator[Clip]:
    """Spoken digits, DIGIT_SPEAKER_TAKE.wav; a speaker who is for evaluation stays out of train."""
    del root  # they are in no package
    for path in sorted(folder.glob("*.wav")) if folder else ():
        found = re.fullmatch(r"[0-9]_([a-z]+)_([0-9]+)", path.stem)
        if not found:
            continue
        speaker, validation = found[1], int(found[2]) in VALIDATION_TAKES
        if speaker in NEVER_TRAINED_ON:
            if validation:
                yield Clip(f"validation/unseen_digits/{path.stem}.flac", speaker, str(path))
            continue
        part = "validation" if validation else "train"
        yield Clip(f"{part}/digits/{path.stem}.flac", speaker, str(path))


@lru_cache(maxsize=1)
def sentences(book: Path) -> tuple[str, ...]:
    """Sentences of 15 to 75 letters, lower case, in a fixed order.

    The order is that of the corpus which the project's speech recipe is trained and evaluated on:
    its first 6,500 sentences, the last 300 of them to evaluate with.
    """
    pages = (
        re.sub(r"<[^>]+>", " ", p.read_text(errors="replace")) for p in sorted(book.glob("*.html"))
    )
    text = re.sub(r"\s+", " ", html.unescape(" ".join(pages)))
    found: dict[str, None] = {}
    for sentence in re.split(r"(?<=[.?!])\s+", text):
        sentence = sentence.strip().replace("\u2019", "'").lower()
        fits = 15 <= len(sentence) <= 75 and len(sentence.split()) >= 3
        if fits and re.fullmatch(r"[a-z',;?! -]+[.?!]", sentence):
            found[sentence] = None
    order = list(found)
    random.Random(0).shuffle(order)
    return tuple(order)


def english(root: Path) -> tuple[str, ...]:
    book = root / "usr/share/doc/anarchism/html"
    if not book.is_dir():
        raise Missing
    return sentences(book)


def training_texts(root: Path, start: int, count: int) -> list[str]:
    """English sentences for training; voices take turns, so that each says other ones."""
    return list(english(root)[:KNOWN_SENTENCES][start : start + count])


def test_texts(root: Path, count: int) -> list[tuple[int, str]]:
    """English sentences that nothing is trained on, with their indices."""
    first = ALL_SENTENCES - TEST_SENTENCES
    return list(enumerate(english(root)[first:ALL_SENTENCES], first))[:count]


TRANSLATIONS = ("glib20", "gtk20", "gtk20-properties", "shared-mime-info", "Linux-PAM")
TRANSLATION_PACKAGES = "libglib2.0-data libgtk2.0-common shared-mime-info libpam-runtime"
NOT_SPOKEN = re.compile(r"[0-9%<>{}\[\]|/\\=$@#*~^`\"&()+_]")


@lru_cache
def translated_texts(root: Path, language: str) -> tuple[str, ...]:
    """What programs say in a language, from 12 to 90 letters, in a fixed order.

    A voice sounds like itself only where the text is in its language; of free texts in very many
    languages a computer has these.
    """
    found: dict[str, None] = {}
    latin = not language.startswith(("hi", "mr", "te"))
    for domain in TRANSLATIONS:
        path = root / "usr/share/locale" / language / "LC_MESSAGES" / f"{domain}.mo"
        if not path.is_file():
            continue
        with path.open("rb") as file:
            catalogue = vars(gettext.GNUTranslations(file))["_catalog"]
        for text in catalogue.values():
            text = " ".join(str(text).split()).strip(". ")
            # Names of options, and in another script all that is left in English, are no words.
            odd = NOT_SPOKEN.search(text) or (not latin and re.search("[A-Za-z]", text))
            if 12 <= len(text) <= 90 and " " in text and not odd:
                found[text] = None
    order = list(found)
    random.Random(0).shuffle(order)
    if not order:
        raise Missing
    return tuple(order)


def by_flite(voice: str, target: str, text: str) -> Clip:
    command = ("flite", "-voice", voice, "-t", text, "-o", "{wav}")
    return Clip(target, voice, command=command)


def flite(voice: str, start: int, count: int, root: Path) -> Iterator[Clip]:
    for i, text in enumerate(training_texts(root, start, count)):
        yield by_flite(voice, f"train/flite_{voice}/{i:04d}.flac", text)


def slt(root: Path) -> Iterator[Clip]:
    for index, text in test_texts(root, 60):
        yield by_flite("slt", f"validation/slt/s{index:05d}.flac", text)


def by_festival(voice: str, target: str, text: str, encoding: str) -> Clip:
    command = ("text2wave", "-eval", f"(voice_{voice})", "-o", "{wav}")
    # A letter that the encoding lacks is skipped: one word sounds odd, the clip is speech still.
    return Clip(target, voice, command=command, text=text.encode(encoding, "ignore"))


def check_festival(voice: str, root: Path) -> None:
    """Raises Missing where festival lacks a voice: it would say no more than that it failed."""
    if not any((root / "usr/share/festival/voices").glob(f"*/{voice}")):
        raise Missing


FESTIVAL_CLIPS = 280
"""Of each voice: a quarter of an hour."""


def festival(voice: str, name: str, language: str, encoding: str, root: Path) -> Iterator[Clip]:
    """A voice of festival saying translated texts, two voices of a language not the same ones."""
    check_festival(voice, root)
    texts = translated_texts(root, language)
    start = int(hashlib.sha256(voice.encode()).hexdigest(), 16) % len(texts)
    for i in range(min(FESTIVAL_CLIPS, len(texts))):
        text = texts[(start + i) % len(texts)]
        yield by_festival(voice, f"train/festival_{name}/{i:04d}.flac", text, encoding)


def festival_kal(root: Path) -> Iterator[Clip]:
    check_festival("kal_diphone", root)
    for i, text in enumerate(training_texts(root, 2100, 290)):
        yield by_festival("kal_diphone", f"train/festival_kal/{i:04d}.flac", text, "ascii")


def festival_kdl(root: Path) -> Iterator[Clip]:
    check_festival("ked_diphone", root)
    texts = english(root)[KNOWN_SENTENCES : KNOWN_SENTENCES + 60]
    for index, text in enumerate(texts, KNOWN_SENTENCES):
        target = f"validation/unseen_kdl/{index}.flac"
        yield by_festival("ked_diphone", target, text, "ascii")


ESPEAK_LANGUAGES = (
    "bg bn ca cs da de el en-gb en-gb-scotland en-us es et eu fi fr-fr:fr gu hi hr hu id it ka lt "
    "lv mr nb nl pa pl pt pt-br:pt_BR ro sk sl sr sv ta te tr uk vi"
)
"""As espeak-ng names them, after a colon as the texts are named where that is otherwise."""
ESPEAK_VARIANTS = "f1 m1 f2 m2 f3 m3 f4 m4 f5 m5 m6 m7 m8"


def espeak(root: Path) -> Iterator[Clip]:
    """Many languages, each clip by another variant, pitch and speed."""
    variants, number = ESPEAK_VARIANTS.split(), 0
    for entry in ESPEAK_LANGUAGES.split():
        language, _, locale = entry.partition(":")
        if language.startswith("en"):
            texts = training_texts(root, 2400 + number, 18)
        else:
            texts = list(translated_texts(root, locale or language)[:18])
        for i, text in enumerate(texts):
            variant = variants[number % len(variants)]
            pitch, speed = 25 + 7 * number % 50, 130 + 11 * number % 60
            voice = ("-v", f"{language}+{variant}", "-p", str(pitch), "-s", str(speed))
            command = ("espeak-ng", *voice, "-w", "{wav}", "--stdin")
            target = f"train/espeak/{language}/{i:02d}_{variant}.flac"
            yield Clip(target, command=command, text=text.encode())
            number += 1


GPL_2, GPL_3, LGPL_2, GFDL = "GPL-2 or later", "GPL-3 or later", "LGPL-2 or later", "GFDL-1.3"
BY_SA_3 = "CC BY-SA 3.0"
CMU = "CMU (free to use, change and pass on, with its notice)"
FILLETS = "ALTAR interactive, Ivo and Pavel Danihelka and others (Fish Fillets)"
IFM = "IFM Development Team, ISTC-SPFD CNR and ITC-irst"
BRAILCOM = "Brailcom, o.p.s."
SUOPUHE = "Universities of Helsinki and Joensuu (N. Volk, M. Vainio, S. Werner)"
UPC = "Universitat Politècnica de Catalunya, Antonio Bonafonte"
CDAC = "Priti Patil and the Janabhaaratii Team, C-DAC; Chaitanya Kamisetty"
MADRAS = "Chaitanya Kamisetty; DONLab, IIT Madras"
CSTR = "Alan W Black, Kevin Lenzo; CSTR, University of Edinburgh"
GAMES = "usr/share/games"


def recorded(
    name: str, packages: str, voices: str, by: str, licence: str, folder: str, **how: Any
) -> Source:
    """A source of recordings; ``how``: arguments of `recordings`."""
    clips = partial(recordings, folder, name, **how)
    return Source(name, packages, voices, by, licence, clips)


def of_people() -> Iterator[Source]:
    """Human speech at full band."""
    fillets, stamps = f"{GAMES}/fillets-ng/sound", "usr/share/tuxpaint/stamps"
    for code, package in (("cs", "-cs"), ("nl", "-nl"), ("en", "")):
        yield recorded(
            f"fillets_{code}",
            f"fillets-ng-data{package}",
            "2 leads and some 10 others" if package else "some 10",
            FILLETS,
            "GPL-2",
            fillets,
            pattern=f"**/{code}/*",
        )
    by = "Anne-Marie Mahfouf and others, for KDE (KLettres)"
    yield recorded("klettres", "klettres-data", "21", by, GPL_2, "usr/share/klettres")
    by = "Albert Astals Cid and others, for KDE (KTuberling)"
    folder = "usr/share/ktuberling/sounds"
    yield recorded("ktuberling", "ktuberling-data", "some 25", by, GPL_2, folder)
    by = "Bill Kendrick and others (Tux Paint stamps)"
    packages = "tuxpaint-stamps-default"
    yield recorded("tuxpaint", packages, "some 30", by, "GPL-2", stamps, named=of_a_stamp)
    by = "Andrey Korotaev and others (Hedgewars)"
    folder = f"{GAMES}/hedgewars/Data/Sounds/voices"
    yield recorded("hedgewars", "hedgewars-data", "13", by, GFDL, folder, named=of_a_player)
    by = "Edward Der-Hua Liu (3.ogg, GPL-3); Chu Lo, ChionMeilin (5.ogg, CC BY 3.0)"
    licence = "GPL-3 and CC BY 3.0"
    yield recorded("gcin", "gcin-voice", "2", by, licence, "usr/share/gcin-voice/ogg")
    by, folder = "The Glest Team, The MegaGlest Team", f"{GAMES}/megaglest/techs"
    yield recorded("megaglest", "megaglest-data", "some 20", by, BY_SA_3, folder, named=of_a_unit)


def of_asterisk() -> Iterator[Source]:
    """Telephone prompts and hold music."""
    for voice, by, licence in (
        ("en_US_f_Allison", "Allison Smith", BY_SA_3),
        ("es_MX_f_Allison", "Allison Smith", BY_SA_3),
        ("fr_CA_f_June", "June Wallack", BY_SA_3),
        ("it_IT_m_Carlo", "Carlo Flora", "CC BY 3.0"),
        ("ru_RU_f_IvrvoiceRU", "Maxim Topal", "CC BY 3.0"),
    ):
        code = voice[:2]
        packages, by = f"asterisk-core-sounds-{code}-g722 ffmpeg", f"{by} (Asterisk core sounds)"
        yield Source(
            f"speech_{code}", packages, "1", by, licence, partial(prompts, voice), ("ffmpeg",)
        )
    packages = "asterisk-moh-opsound-g722 ffmpeg"
    by = "Paul Shuler (Macroform), Manolo Camp, Reno Project (Asterisk opsound)"
    yield Source("music", packages, "", by, BY_SA_3, hold_music, ("ffmpeg",))


def of_flite() -> Iterator[Source]:
    packages, by = "flite anarchism", "Carnegie Mellon University (flite)"
    for voice, start in (("rms", 0), ("awb", 700), ("kal16", 1400)):
        clips = partial(flite, voice, start, 700)
        yield Source(f"flite_{voice}", packages, "1", by, CMU, clips, ("flite",))
    yield Source("slt", packages, "1", by, CMU, slt, ("flite",))


def of_festival() -> Iterator[Source]:
    program = ("text2wave",)
    packages = "festival festvox-kdlpc16k anarchism"
    yield Source("unseen_kdl", packages, "1", CSTR, CMU, festival_kdl, program)
    packages = "festival festvox-kallpc16k anarchism"
    yield Source("festival_kal", packages, "1", CSTR, CMU, festival_kal, program)
    latin_1, latin_2, utf_8 = "iso-8859-15", "iso-8859-2", "utf-8"
    for name, package, voice, language, encoding, by, licence in (
        ("italian_lp", "italp16k", "lp_diphone", "it", latin_1, IFM, GPL_2),
        ("italian_pc", "itapc16k", "pc_diphone", "it", latin_1, IFM, GPL_2),
        ("czech_dita", "czech-dita", "czech_dita", "cs", latin_2, BRAILCOM, GPL_3),
        ("czech_krb", "czech-krb", "czech_krb", "cs", latin_2, BRAILCOM, GPL_3),
        ("czech_machac", "czech-machac", "czech_machac", "cs", latin_2, BRAILCOM, GPL_3),
        ("czech_ph", "czech-ph", "czech_ph", "cs", latin_2, BRAILCOM, GPL_2),
        ("finnish_lj", "suopuhe-lj", "suo_fi_lj_diphone", "fi", latin_1, SUOPUHE, LGPL_2),
        ("finnish_mv", "suopuhe-mv", "hy_fi_mv_diphone", "fi", latin_1, SUOPUHE, LGPL_2),
        ("catalan_ona", "ca-ona-hts", "upc_ca_ona_hts", "ca", latin_1, UPC, "LGPL-2.1 or later"),
        ("hindi", "hi-nsk festival-hi", "hindi_NSK_diphone", "hi", utf_8, CDAC, GPL_2),
        ("marathi", "mr-nsk festival-mr", "marathi_NSK_diphone", "mr", utf_8, CDAC, GPL_2),
        ("telugu", "te-nsk festival-te", "telugu_NSK_diphone", "te", utf_8, MADRAS, GPL_2),
    ):
        packages = f"festival festvox-{package} {TRANSLATION_PACKAGES}"
        clips = partial(festival, voice, name, language, encoding)
        yield Source(f"festival_{name}", packages, "1", by, licence, clips, program)


def all_sources(digits_folder: Path | None) -> tuple[Source, ...]:
    """In the order in which they are made: people at full band first, the most synthetic last."""
    packages, by = "fillets-ng-data hedgewars-data", f"{FILLETS}; Andrey Korotaev (Hedgewars)"
    games = Source("game_music", packages, "", by, "GPL-2", game_music)
    by = "Zohar Jackson and others, Free Spoken Digit Dataset"
    numbers = Source("digits", "", "3", by, "CC BY-SA 4.0", partial(digits, digits_folder))
    packages = f"espeak-ng anarchism {TRANSLATION_PACKAGES}"
    by, voices = "Jonathan Duddington, Reece H. Dunn and others (eSpeak NG)", "variants of 1"
    variants = Source("espeak", packages, voices, by, GPL_3, espeak, ("espeak-ng",))
    return (
        *of_people(),
        *of_asterisk(),
        games,
        numbers,
        *of_flite(),
        *of_festival(),
        variants,
    )


def start_worker() -> None:
    """Set up a process of the pool: it ends with its parent, however that ends."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops them
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def to_wav(clip: Clip, folder: Path) -> Path:
    """What a clip is made from as a file that `read_audio` reads.

    Raises:
        AudioError: the program failed.
    """
    wav = folder / "clip.wav"
    if clip.command:
        command = [str(wav) if part == "{wav}" else part for part in clip.command]
    elif clip.recording.endswith(".g722"):
        # Its name alone tells a decoder what it is; no byte in it does.
        command = ["ffmpeg", "-v", "error", "-f", "g722", "-i", clip.recording, str(wav)]
    else:
        return Path(clip.recording)
    done = subprocess.run(command, input=clip.text, capture_output=True)
    if done.returncode or not wav.is_file():
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise AudioError(
            clip.recording or clip.target, f"{command[0]} failed: {' '.join(said[-1:])}"
        )
    return wav


def make_clip(out: Path, clip: Clip) -> str:
    """Make one clip, whole or not at all. Returns "made", "kept" or why it was skipped."""
    target = out / clip.target
    if target.exists():
        return "kept"
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = to_wav(clip, Path(folder))
            waveform, _ = read_audio(path, SAMPLE_RATE, 1, duration=clip.seconds)
    except AudioError as error:
        return error.reason
    if waveform.shape[1] < SHORTEST * SAMPLE_RATE:
        return f"shorter than {SHORTEST} s"
    peak = float(waveform.abs().max())
    if peak < SILENT:
        return "silent"
    samples = (waveform[0] / max(1.0, peak)).numpy()
    with replacing(target) as temporary:
        soundfile.write(str(temporary), samples, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return "made"


def make_source(
    out: Path, name: str, clips: Sequence[Clip], pool: ProcessPoolExecutor
) -> Counter[str]:
    """Make a source's clips, telling how far it is, and count what became of them.

    Raises:
        ValueError: not one could be made.
    """
    results: Counter[str] = Counter()
    reported = time.monotonic()
    outcomes = pool.map(partial(make_clip, out), clips, chunksize=8)
    for number, outcome in enumerate(outcomes, 1):
        results[outcome] += 1
        if time.monotonic() - reported > SECONDS_BETWEEN_LINES:
            reported = time.monotonic()
            print(f"{name}: {number} of {len(clips)}", flush=True)
    skipped = {k: n for k, n in results.items() if k not in ("made", "kept")}
    reasons = "".join(f"; skipped {n}: {reason}" for reason, n in sorted(skipped.items()))
    print(f"{name}: {results['made']} made, {results['kept']} kept{reasons}", flush=True)
    if not results["made"] + results["kept"]:
        raise ValueError(f"{name}: not one of its {len(clips)} clips could be made{reasons}")
    return results


def write_texts(out: Path, root: Path) -> None:
    """What slt says, for word error rates."""
    metadata = out / "validation/slt/metadata.csv"
    with replacing(metadata) as temporary, temporary.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file_name", "text"])
        table.writerows((f"s{index:05d}.flac", text) for index, text in test_texts(root, 60))


def is_missing(source: Source, root: Path) -> bool:
    """Whether a source lacks a package. Looks no further than its first clip."""
    if not all(map(shutil.which, source.programs)):
        return True
    try:
        return next(source.clips(root), None) is None
    except Missing:
        return True


def check_installed(sources: Iterable[Source], root: Path) -> None:
    """Refuse what cannot be made.

    Raises:
        ValueError: packages are missing; names them all.
    """
    missing: dict[str, None] = {}
    for source in sources:
        if is_missing(source, root):
            if not source.packages:
                raise ValueError(f"--{source.name}: no DIGIT_SPEAKER_TAKE.wav lies in that folder")
            missing |= dict.fromkeys(source.packages.split())
    if missing:
        raise ValueError(f"apt-get install {' '.join(missing)}, or name other sources with --only")


def table_of(out: Path, sources: Iterable[Source]) -> list[str]:
    """SOURCES.md: what lies in OUT, counted, with what its makers ask for."""
    lines = [
        "| part | subfolder | minutes | clips | voices | by | licence | packages |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    by_name = {source.name: source for source in sources}
    for part in ("train", "validation"):
        for folder in sorted((out / part).glob("*")):
            files = [p for p in folder.rglob("*") if p.suffix in (".flac", ".wav")]
            minutes = sum(read_info(path).duration for path in files) / 60
            name = re.sub(rf"^unseen_(\w+?)(_{UNSEEN_LANGUAGE})?$", r"\1", folder.name)
            source = by_name.get(folder.name) or by_name.get(name)
            about = ("", "made by code", "", "")
            if source:
                about = (source.voices, source.by, source.licence, source.packages)
            row = (part, folder.name, f"{minutes:.1f}", str(len(files)), *about)
            lines.append(f"| {' | '.join(row)} |")
    return lines


def remove_leftovers(out: Path) -> None:
    """Remove what runs that were killed were writing. Younger files may be another run's."""
    for left in out.glob("**/.*.tmp"):
        if time.time() - left.stat().st_mtime > OLD:
            left.unlink(missing_ok=True)


def chosen(sources: Sequence[Source], only: Sequence[str], has_digits: bool) -> list[Source]:
    """The sources named, or all that can be made.

    Raises:
        ValueError: no such source.
    """
    names = [source.name for source in sources] + [MELODIES]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise ValueError(f"--only {unknown[0]}: no such source; there are {', '.join(names)}")
    if "digits" in only and not has_digits:
        raise ValueError("--only digits: name the folder of recordings with --digits DIR")
    if only:
        return [source for source in sources if source.name in only]
    return [source for source in sources if source.name != "digits" or has_digits]


def summarise(out: Path, sources: Iterable[Source]) -> None:
    """Write SOURCES.md, and say how much there is and what is next."""
    table = table_of(out, sources)
    with replacing(out / "SOURCES.md") as temporary:
        temporary.write_text("\n".join(table) + "\n")
    minutes = {"train": 0.0, "validation": 0.0}
    for row in table[2:]:
        part, _, duration, *_ = row.removeprefix("| ").split(" | ")
        minutes[part] += float(duration)
    hours = {part: f"{total / 60:.2f} h" for part, total in minutes.items()}
    print(
        f"{out}: {hours['train']} for training, {hours['validation']} for validation; "
        "see its SOURCES.md"
    )
    command = "python scripts/train_codec.py experiment=bundled_codec_start data=folder"
    print(f"next: {command} data.path={out / 'train'}")


def gather(out: Path, root: Path, digits_folder: Path | None, only: Sequence[str]) -> None:
    """Make all sources, or those named.

    Args:
        root: of the file system in which the packages are installed.

    Raises:
        ValueError: no such source, something is not installed, or `out` is of an older layout.
        OSError: a file cannot be written.
    """
    if (old := out / "heldout").is_dir():
        new = old.with_name("validation")
        raise ValueError(f"{old}: that part is called validation now; mv '{old}' '{new}'")
    sources = all_sources(digits_folder)
    wanted = chosen(sources, only, digits_folder is not None)
    check_installed(wanted, root)
    remove_leftovers(out)
    with ProcessPoolExecutor(PROCESSES, initializer=start_worker) as pool:
        for source in wanted:
            make_source(out, source.name, list(source.clips(root)), pool)
    if any(source.name == "slt" for source in wanted):
        write_texts(out, root)
    if not only or MELODIES in only:
        melodies(out / "train" / MELODIES, 140, seed=1)
        melodies(out / "validation" / MELODIES, 12, seed=2)
    summarise(out, sources)


def melodies(folder: Path, count: int, seed: int) -> None:
    """Melodies of the demo, as recordings like all others.

    By the file beside them they would be known as output of this program, and passed over.
    """
    if not (folder / "metadata.csv").exists():  # which is written last
        make_melodies(folder, count, seed)
    (folder / "melodies.json").unlink(missing_ok=True)


def main() -> None:
    end_loading()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--digits", type=Path, help="recordings/ of the Free Spoken Digit Dataset")
    parser.add_argument("--only", default="", help="names of sources, separated by commas")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where packages are installed")
    options = parser.parse_args()
    if options.digits and not options.digits.is_dir():
        parser.exit(2, f"{options.digits}: no such folder; --digits takes recordings/ of the set\n")
    try:
        only = [name for name in options.only.split(",") if name]
        gather(options.out, options.root, options.digits, only)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the same command continues from here\n")


if __name__ == "__main__":
    main()
