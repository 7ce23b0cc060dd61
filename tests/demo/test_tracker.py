"""The pitch tracker: names every note of the set, also when much is lost, and nothing in noise."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from audiolm.audio import resample
from audiolm.codec import load_local
from audiolm.demo.melodies import (
    NOTE_SAMPLES,
    SAMPLE_RATE,
    TIMBRES,
    note,
    sample_melody,
    synthesise,
)
from audiolm.demo.tracker import HIGHEST, LOWEST, track_pitches

TRIAL_CODEC = Path(__file__).parents[3] / "shared" / "codec" / "trial_8khz.safetensors"
MELODIES = [sample_melody(1, i) for i in range(15)]


def with_noise(waveform: Tensor, snr: float) -> Tensor:
    noise = torch.randn(waveform.shape, generator=torch.Generator().manual_seed(0))
    return waveform + noise * (waveform.square().mean() * 10 ** (-snr / 10)).sqrt()


def named(pitches: list[int | None], truth: tuple[int, ...]) -> float:
    assert len(pitches) == len(truth)
    return sum(a == b for a, b in zip(pitches, truth, strict=True)) / len(truth)


@pytest.mark.parametrize("timbre", range(len(TIMBRES)))
def test_names_every_semitone_in_and_out_of_the_scales(timbre: int) -> None:
    """From the lowest note of the set to the highest: all keys together leave semitones out."""
    semitones = range(45, 75)
    waveform = torch.cat([torch.tensor(note(timbre, midi)) for midi in semitones])
    assert track_pitches(0.3 * waveform, SAMPLE_RATE) == [*semitones]


def test_names_every_note_of_clean_pieces_at_any_rate() -> None:
    assert {melody.timbre for melody in MELODIES} == set(range(len(TIMBRES)))
    for melody in MELODIES:
        waveform = synthesise(melody)
        for rate in (SAMPLE_RATE, 8000, 24000):
            found = track_pitches(resample(waveform, SAMPLE_RATE, rate), rate)
            assert found == list(melody.piece.pitches)


@pytest.mark.parametrize("snr", [15, 10])
def test_names_notes_in_noise(snr: float) -> None:
    for melody in MELODIES:
        found = track_pitches(with_noise(synthesise(melody), snr), SAMPLE_RATE)
        assert named(found, melody.piece.pitches) == 1


def test_names_notes_without_their_treble() -> None:
    for melody in MELODIES:
        dull = resample(resample(synthesise(melody), SAMPLE_RATE, 2000), 2000, SAMPLE_RATE)
        assert named(track_pitches(dull, SAMPLE_RATE), melody.piece.pitches) == 1


@pytest.mark.skipif(not TRIAL_CODEC.exists(), reason="needs shared/codec beside the checkout")
def test_names_notes_after_a_codec_for_speech() -> None:
    codec = load_local(TRIAL_CODEC, num_codebooks=4)
    shares = []
    for melody in MELODIES:
        waveform = resample(synthesise(melody), SAMPLE_RATE, codec.sample_rate)
        decoded = codec.decode(codec.encode(waveform[None]), waveform.shape[1])[0]
        shares.append(named(track_pitches(decoded, codec.sample_rate), melody.piece.pitches))
    assert sum(shares) / len(shares) > 0.97


@pytest.mark.parametrize("midi", [LOWEST, 50, 73, HIGHEST])
@pytest.mark.parametrize("cents", [-35, 0, 35])
def test_names_the_nearest_semitone(midi: int, cents: int) -> None:
    hertz = 440 * 2 ** ((midi - 69 + cents / 100) / 12)
    tone = 0.1 * torch.sin(2 * torch.pi * hertz * torch.arange(NOTE_SAMPLES) / SAMPLE_RATE)
    assert track_pitches(tone, SAMPLE_RATE) == [midi]


def test_finds_no_pitch_in_silence_and_noise() -> None:
    assert track_pitches(torch.zeros(1, SAMPLE_RATE), SAMPLE_RATE) == [None] * 5
    noise = torch.randn(20 * SAMPLE_RATE, generator=torch.Generator().manual_seed(0))
    assert track_pitches(0.1 * noise, SAMPLE_RATE) == [None] * 100
    faint = 0.001 * synthesise(MELODIES[0])
    assert track_pitches(faint, SAMPLE_RATE) == [None] * 32


def test_counts_whole_slots_only() -> None:
    for seconds, slots in ((0.0, 0), (0.199, 0), (0.2, 1), (5.0, 25), (5.19, 25)):
        assert len(track_pitches(torch.zeros(round(seconds * SAMPLE_RATE)), SAMPLE_RATE)) == slots
    assert len(track_pitches(torch.zeros(5 * 11025), 11025)) == 25


def test_refuses_what_it_cannot_track() -> None:
    for waveform, rate, message in (
        (torch.zeros(2, 8000), 8000, r"shape \(2, 8000\)"),
        (torch.full((8000,), torch.nan), 8000, "NaN"),
        (torch.zeros(8000), 4000, "4000 Hz"),
    ):
        with pytest.raises(ValueError, match=message):
            track_pitches(waveform, rate)
