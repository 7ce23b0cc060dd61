"""Gather the recordings that the bundled codec is trained and evaluated on.

    apt-get install ffmpeg asterisk-core-sounds-{en,es,fr,it}-g722 asterisk-moh-opsound-g722
    git clone https://github.com/Jakobovski/free-spoken-digit-dataset
    python tests/tools/gather_recordings.py free-spoken-digit-dataset/recordings OUT

makes OUT/train for scripts/train_codec.py and OUT/validation for evaluate_codec.py: telephone
prompts in four languages and hold music (16 kHz, CC BY-SA 3.0), spoken digits (CC BY-SA 4.0), and
melodies of the demo set's grammar. For validation are 4% of the prompts, one of the five pieces of
music, takes 0 to 9 of each digit and speaker, and melodies of another seed.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
from pathlib import Path

from audiolm.demo import make_melodies

ASTERISK = Path("/usr/share/asterisk")
VALIDATION_MUSIC = "reno_project-system"
HELD_OUT_TAKES = range(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("digits", type=Path, help="recordings/ of the Free Spoken Digit Dataset")
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--asterisk", type=Path, default=ASTERISK)
    options = parser.parse_args()
    for needed in (options.digits, options.asterisk / "sounds", options.asterisk / "moh"):
        if not needed.is_dir():
            parser.error(f"{needed}: no such folder; see the top of this file for what to install")
    train, validation = options.out / "train", options.out / "validation"
    for voice in sorted((options.asterisk / "sounds").glob("??_*")):
        for source in sorted(voice.rglob("*.g722")):
            name = source.relative_to(voice).with_suffix(".flac")
            folder = validation if is_for_validation(str(name)) else train
            decode_g722(source, folder / f"speech_{voice.name[:2]}" / name)
    for source in sorted((options.asterisk / "moh").glob("*.g722")):
        folder = validation if source.stem == VALIDATION_MUSIC else train
        decode_g722(source, folder / "music" / f"{source.stem}.flac")
    for source in sorted(options.digits.glob("*.wav")):
        take = int(source.stem.split("_")[2])
        folder = validation if take in HELD_OUT_TAKES else train
        (folder / "digits").mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / "digits")
    make_melodies(train / "demo", 140, seed=1)
    make_melodies(validation / "demo", 12, seed=2)


def is_for_validation(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < 4


def decode_g722(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["ffmpeg", "-v", "error", "-y", "-f", "g722", "-i", str(source), str(target)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
