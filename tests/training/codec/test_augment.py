from __future__ import annotations

import numpy as np
import pytest

from audiolm.training.codec.augment import (
    AUGMENT,
    add_noise,
    add_room,
    change_speed,
    check_augment,
    source_length,
    tilt_spectrum,
)

RATE = 16000


def tone(hertz: float, length: int = 8000) -> np.ndarray:
    return np.sin(2 * np.pi * hertz / RATE * np.arange(length), dtype=np.float32)[None]


def level(samples: np.ndarray) -> float:
    return float(np.sqrt(np.square(samples).mean()))


def peak(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples[0] * np.hanning(samples.shape[1])))
    return int(spectrum.argmax()) * RATE / samples.shape[1]


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.07])
def test_speed_moves_pitch_and_keeps_the_length(factor: float) -> None:
    changed = change_speed(tone(1000, source_length(8000, factor)), RATE, factor, 8000)
    assert changed.shape == (1, 8000) and changed.dtype == np.float32
    assert peak(changed) == pytest.approx(1000 * factor, abs=4)
    assert not change_speed(tone(1000, 800), RATE, factor, 8000)[:, 1000:].any()


def test_tilt_keeps_the_level_and_turns_the_spectrum() -> None:
    noise = np.random.default_rng(0).standard_normal((2, 8000), np.float32)
    for coefficient in (0.5, -0.5):
        tilted = tilt_spectrum(noise, coefficient)
        assert level(tilted) == pytest.approx(level(noise), rel=1e-4)
        power = np.square(np.abs(np.fft.rfft(tilted))).mean(0)
        low, high = power[:1000].mean(), power[-1000:].mean()
        assert (low > 4 * high) if coefficient > 0 else (high > 4 * low)


def test_noise_lies_20_to_40_db_below_the_recording() -> None:
    silence = np.zeros((1, 8000), np.float32)
    levels = [
        20 * np.log10(level(add_noise(silence, 0.1, np.random.default_rng(i))) / 0.1)
        for i in range(60)
    ]
    assert -40.5 < min(levels) < -36 and -24 < max(levels) < -19.5


def test_a_room_dies_away_and_keeps_the_level() -> None:
    click = np.zeros((1, 16000), np.float32)
    click[0, 100] = 1.0
    wet = add_room(click, RATE, np.random.default_rng(0))
    assert level(wet) == pytest.approx(level(click), rel=1e-4)
    assert not wet[0, :99].round(5).any() and np.abs(wet[0]).argmax() == 100
    assert level(wet[:, 200:1000]) > 10 * level(wet[:, 8000:])


@pytest.mark.parametrize(
    "given, message",
    [
        ({"pitch": 0.1}, "augment.pitch is unknown; the keys are speed, tilt, noise, room"),
        ({"speed": 0.7}, "augment.speed=0.7 must be a number from 0 to 0.5"),
        ({"noise": -1}, "augment.noise=-1 must be a number from 0 to 1"),
        ({"room": True}, "augment.room=True"),
        ({"tilt": float("nan")}, "augment.tilt=nan"),
    ],
)
def test_refused(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_augment(given)


def test_nothing_is_varied_unasked() -> None:
    assert check_augment(None) == AUGMENT and not any(AUGMENT.values())
