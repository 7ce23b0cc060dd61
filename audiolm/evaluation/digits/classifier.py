"""A small classifier of spoken digits: does a codec keep what was said?

It is trained on real digits (Free Spoken Digit Dataset, `{digit}_{speaker}_{take}.wav`), none of
which went through a codec, and listens below 3.6 kHz only: the digits were recorded at 8 kHz, so
what a codec of a higher rate invents above says nothing about them.

B batch, N audio samples at `RATE`, T frames of features, M mel bands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torchaudio
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from audiolm.audio import find_audio_files, read_audio, resample
from audiolm.files import replacing

RATE = 8000
"""Hz at which the classifier listens."""
LENGTH = RATE
"""Samples that it takes: one second, which holds all but 4 of the set's 1,500 digits whole."""
TRAINING_TAKES = range(10, 50)
VALIDATION_TAKES = range(0, 10)

_BANDS = (80.0, 3600.0)  # Hz: above lies the edge of the recordings' own low-pass
_RANGE = 10.0  # nats: power down to 43 dB below a clip's loudest band counts
_WIDE_RATE = 16000  # Hz to which half of the training clips are resampled, and back


class Digit(NamedTuple):
    """One recording of a digit."""

    path: Path
    label: int
    waveform: Tensor  # (1, n) at the file's own rate
    sample_rate: int  # Hz


def load_digits(folder: Path | str, takes: Sequence[int]) -> list[Digit]:
    """The digits of all speakers whose take is one of ``takes``, sorted by name.

    Raises:
        ValueError: ``folder`` holds none.
        OSError, AudioError: a file cannot be read.
    """
    digits = []
    for path in find_audio_files(folder):
        match = re.fullmatch(r"(\d)_[^_]+_(\d+)", path.stem)
        if match and int(match[2]) in takes:
            digits.append(Digit(path, int(match[1]), *read_audio(path, channels=1)))
    if not digits:
        raise ValueError(f"{folder}: holds no takes {takes} of digits, DIGIT_SPEAKER_TAKE.wav")
    return digits


class DigitClassifier(nn.Module):
    """Log-mel features, four convolutions over time, mean and maximum over time, one layer."""

    def __init__(self, num_classes: int = 10, width: int = 96, num_mels: int = 32) -> None:
        super().__init__()
        self.mel = torchaudio.transforms.MelSpectrogram(
            RATE, 256, hop_length=80, f_min=_BANDS[0], f_max=_BANDS[1], n_mels=num_mels
        )
        layers: list[nn.Module] = []
        size = num_mels
        for stride in (1, 2, 1, 2):
            layers += [
                nn.Conv1d(size, width, 5, stride=stride, padding=2),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.Dropout(0.1),
            ]
            size = width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(2 * width, num_classes)

    def features(self, waveform: Tensor) -> Tensor:
        """Waveforms (B, N) to features (B, M, T) in [-1, 1], the same at any gain."""
        power = torch.log(self.mel(waveform) + 1e-10)
        peak = power.amax(dim=(1, 2), keepdim=True)
        return 2 * ((power - peak) / _RANGE).clamp(-1, 0) + 1

    def forward(self, waveform: Tensor) -> Tensor:
        """Waveforms (B, N) to logits (B, classes)."""
        x = self.layers(self.features(waveform))
        logits: Tensor = self.head(torch.cat([x.mean(dim=2), x.amax(dim=2)], dim=1))
        return logits


def recognise(classifier: DigitClassifier, waveforms: Sequence[Tensor], sample_rate: int) -> Tensor:
    """The class of each of the clips (1, n_i) at ``sample_rate`` Hz: classes (B,), int64."""
    batch = _batch(waveforms, sample_rate)
    with torch.inference_mode():
        return torch.cat([classifier.eval()(part).argmax(dim=1) for part in torch.split(batch, 50)])


def train_classifier(
    waveforms: Sequence[Tensor],
    labels: Sequence[int],
    sample_rate: int,
    *,
    num_classes: int = 10,
    epochs: int = 36,
    seed: int = 0,
) -> DigitClassifier:
    """A classifier trained on clips (1, n_i) at ``sample_rate`` Hz; the same for the same seed.

    Clips are varied by speed, gain, noise, shift, resampling and band limits, never by a codec:
    what a codec does to speech must not be something that the classifier has learned to forgive.
    """
    narrow = _batch(waveforms, sample_rate)
    wide = _batch([resample(w, sample_rate, _WIDE_RATE) for w in waveforms], _WIDE_RATE)
    targets = torch.tensor(labels)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        classifier = DigitClassifier(num_classes).train()
        optimizer = torch.optim.AdamW(classifier.parameters(), lr=2e-3, weight_decay=0.01)
        batches = -(-len(targets) // 32)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, epochs * batches)
        for _ in range(epochs):
            for chosen in torch.randperm(len(targets)).chunk(batches):
                clips = torch.where(torch.rand(len(chosen), 1) < 0.5, narrow[chosen], wide[chosen])
                logits = classifier(_vary(clips))
                loss = nn.functional.cross_entropy(logits, targets[chosen], label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
    return classifier.eval()


def load_classifier(folder: Path | str, cache: Path | str) -> DigitClassifier:
    """The classifier of the digits in ``folder``, trained on first use and kept in ``cache``.

    Raises:
        ValueError, OSError: as `load_digits`, or ``cache`` cannot be written.
    """
    digits = load_digits(folder, TRAINING_TAKES)
    # Whatever it depends on: a change of this file trains anew.
    key = hashlib.sha256(Path(__file__).read_bytes())
    for digit in digits:
        key.update(digit.path.name.encode() + digit.waveform.numpy().tobytes())
    file = Path(cache) / f"digits_{key.hexdigest()[:16]}.safetensors"
    if not file.is_file():
        rate = digits[0].sample_rate
        waveforms = [resample(digit.waveform, digit.sample_rate, rate) for digit in digits]
        trained = train_classifier(waveforms, [digit.label for digit in digits], rate)
        with replacing(file) as temporary:
            save_file(trained.state_dict(), temporary)
    classifier = DigitClassifier()
    classifier.load_state_dict(load_file(file))
    return classifier.eval()


def _batch(waveforms: Sequence[Tensor], sample_rate: int) -> Tensor:
    """Clips (1, n_i) as (B, LENGTH), in the middle of it; of longer ones the loudest second."""
    batch = torch.zeros(len(waveforms), LENGTH)
    for row, waveform in zip(batch, waveforms, strict=True):
        clip = resample(waveform, sample_rate, RATE)[0]
        if len(clip) > LENGTH:
            energy = torch.cat([torch.zeros(1), clip.square().cumsum(0)])
            start = int((energy[LENGTH:] - energy[:-LENGTH]).argmax())
            clip = clip[start : start + LENGTH]
        start = (LENGTH - len(clip)) // 2
        row[start : start + len(clip)] = clip
    return batch


def _vary(clips: Tensor) -> Tensor:
    """Clips (B, N) slower or faster, shifted by up to 0.1 s, band limited, louder or softer, noisy.

    The speed is one for the batch. Noise is from hardly there to as loud as the speech.
    """
    count, length = clips.shape
    speed = float(torch.empty(()).uniform_(0.87, 1.15))
    clips = nn.functional.interpolate(clips[:, None], scale_factor=speed, mode="linear")[:, 0]
    clips = nn.functional.pad(clips, (0, max(0, length - clips.shape[1])))[:, :length]
    shifts = torch.randint(-RATE // 10, RATE // 10 + 1, (count, 1))
    clips = clips.gather(1, (torch.arange(length) - shifts) % length)
    # Slopes of some 100 Hz, as of a filter of few taps.
    frequency = torch.fft.rfftfreq(length, 1 / RATE)
    low = 400 * torch.rand(count, 1)
    high = 2800 + 1200 * torch.rand(count, 1)
    gains = torch.sigmoid((frequency - low) / 30) * torch.sigmoid((high - frequency) / 30)
    clips = torch.fft.irfft(torch.fft.rfft(clips) * gains, length)
    clips = clips * 10 ** (torch.empty(count, 1).uniform_(-20, 6) / 20)
    level = clips.square().mean(dim=1, keepdim=True).sqrt()
    noise = 10 ** (torch.empty(count, 1).uniform_(-45, 0) / 20)
    return clips + level * noise * torch.randn_like(clips)
