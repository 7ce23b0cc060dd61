"""The demo set: the same every time, as described beside it, and never mixed with another."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from audiolm.audio import find_audio_files, read_audio
from audiolm.demo.grammar import GRAMMAR, Piece
from audiolm.demo.melodies import (
    ACCENTS,
    BITS_A_PIECE,
    GAINS,
    NOTE_DURATION,
    NOTE_SAMPLES,
    SAMPLE_RATE,
    TIMBRES,
    Melody,
    make_melodies,
    note,
    sample_melody,
    synthesise,
    to_hertz,
)


def test_the_same_seed_gives_the_same_files_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_melodies(tmp_path / name, 3, seed)
    files = find_audio_files(tmp_path / "a")
    assert [file.name for file in files] == [f"melody_{i:04d}.wav" for i in range(3)]
    for file in files:
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
        assert file.read_bytes() != (tmp_path / "c" / file.name).read_bytes()
        waveform, rate = read_audio(file)
        assert (rate, waveform.shape) == (SAMPLE_RATE, (1, round(6.4 * SAMPLE_RATE)))


def test_the_truth_lies_beside_the_files(tmp_path: Path) -> None:
    make_melodies(tmp_path, 4, seed=5)
    with (tmp_path / "metadata.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for i, row in enumerate(rows):
        melody = sample_melody(5, i)
        assert tuple(map(int, row["degrees"].split())) == melody.piece.degrees
        assert (int(row["key"]), row["timbre"]) == (melody.piece.key, TIMBRES[melody.timbre].name)
        written = read_audio(tmp_path / row["file_name"])[0]
        assert float((written - synthesise(melody)).abs().max()) <= 0.5 / 32768 + 1e-9
    assert len(rows) == 4


def test_a_cut_run_goes_on_and_keeps_what_is_there(tmp_path: Path) -> None:
    make_melodies(tmp_path, 3)
    files = find_audio_files(tmp_path)
    whole = [file.read_bytes() for file in files]
    kept = files[0].stat().st_mtime_ns
    files[2].unlink()
    (tmp_path / "metadata.csv").unlink()
    make_melodies(tmp_path, 3)
    assert [file.read_bytes() for file in files] == whole
    assert files[0].stat().st_mtime_ns == kept
    assert (tmp_path / "metadata.csv").exists()


@pytest.mark.parametrize(("num_melodies", "seed"), [(2, 1), (3, 0), (1, 0)])
def test_another_set_in_the_folder_is_refused(tmp_path: Path, num_melodies: int, seed: int) -> None:
    make_melodies(tmp_path, 2)
    with pytest.raises(ValueError, match="remove the folder") as error:
        make_melodies(tmp_path, num_melodies, seed)
    assert "\n" not in str(error.value)
    assert len(find_audio_files(tmp_path)) == 2


def test_strange_audio_and_damaged_records_are_refused(tmp_path: Path) -> None:
    (tmp_path / "melody_0000.wav").write_bytes(b"of an older version")
    with pytest.raises(ValueError, match=r"not of this demo set \(melody_0000.wav\)"):
        make_melodies(tmp_path, 1)
    (tmp_path / "melodies.json").write_bytes(b"{\n\xff")
    with pytest.raises(ValueError, match="remove the folder") as error:
        make_melodies(tmp_path, 1)
    assert "\n" not in str(error.value)


def test_all_kinds_are_sampled_alike() -> None:
    melodies = [sample_melody(0, i) for i in range(600)]
    assert len(set(melodies)) == 600
    for values, kinds in (
        ([melody.piece.key for melody in melodies], 3),
        ([melody.timbre for melody in melodies], len(TIMBRES)),
        ([melody.accents for melody in melodies], len(ACCENTS)),
        ([melody.gain for melody in melodies], len(GAINS)),
    ):
        counts = np.bincount(values, minlength=kinds)
        expected = 600 / kinds
        # Chi squared of at most 4 degrees of freedom: above 18.5 once in a thousand.
        assert ((counts - expected) ** 2 / expected).sum() < 18.5
    assert pytest.approx(GRAMMAR.bits + np.log2(3 * 2 * 2)) == BITS_A_PIECE


@pytest.mark.parametrize("timbre", range(len(TIMBRES)))
def test_notes_have_their_frequency_and_fill_their_slot(timbre: int) -> None:
    assert to_hertz(57) == 220
    for midi in (45, 60, 74):
        sound = note(timbre, midi)
        assert sound.shape == (NOTE_SAMPLES,) and np.abs(sound).max() == 1
        assert sound[0] == 0 and abs(sound[-1]) < 0.01
        spectrum = np.abs(np.fft.rfft(sound, 16 * SAMPLE_RATE))
        spectrum[: round(16 * 0.7 * to_hertz(midi))] = 0
        spectrum[round(16 * 1.4 * to_hertz(midi)) :] = 0  # the fundamental need not be loudest
        assert np.argmax(spectrum) / 16 == pytest.approx(to_hertz(midi), rel=0.006)


def test_equal_bars_are_equal_samples_and_beats_are_accented() -> None:
    piece = Piece(0, (0,) * 32)
    sound = synthesise(Melody(piece, timbre=1, accents=0, gain=0))[0].reshape(8, 4, NOTE_SAMPLES)
    assert (sound == sound[0]).all()
    levels = 20 * torch.log10(sound[0].abs().amax(dim=1))
    assert levels.tolist() == pytest.approx([-4, -8, -8, -8], abs=1e-3)
    assert NOTE_DURATION * 50 == 10  # codec frames
