"""Listen to what a store's tokens kept: decode some of its clips beside their originals.

    000_original.wav    at most 10 s of a recording, at the codec's rate
    000_decoded.wav     the same span, decoded from the codes in the store
    000.png             waveform and spectrogram of both, the original above
    listen.json         the metrics and the verdict

How far is far? Distances depend on the sound as much as on the codec: decoded well, notes made by
code are 10 dB of mel distance from the original, speech is 4. So each clip brings its own
baseline, the same codes decoded in random order: as loud, of the same sounds, but with nothing
left of what happened when. Tokens that say what happened are clearly nearer than that. Where one
sound is held throughout, order says little, and the waveform itself is the evidence.

Measured with this package's codec with K = 2, 4, 8 and 16 and with another of 8 kHz with K = 2 and
8, on speech, spoken digits, music and the demo's melodies, 4 to 10 clips of 4 s each. Medians:

    tokens                                  distance / shuffled     SI-SNR
    speech                                  0.27 to 0.39            2 to 9 dB
    digits                                  0.47 to 0.62            -2 to 5 dB
    music                                   0.58 to 0.70            -3 to 3 dB
    melodies                                0.75 to 0.86            5 to 9 dB
    codes of another clip                   1.00 to 1.54            -29 to -45 dB
    codebooks in the wrong order            1.02 to 1.50            -27 to -50 dB
    random codes                            1.04 to 1.53            -25 to -48 dB
    codec of random weights                 0.92 to 1.00            -42 dB and below

The thresholds lie in the gaps. How sure is that with few clips? Of 2,000 samples of 3 clips (out of
40, of speech, digits and melodies, K = 2 and 8), right codes passed in 86 % or more and failed in
0.1 % or less, codes of another clip passed in 1.5 % or less; with 8 clips in 96 %, none and none.
For music kept by 2 codebooks of 256 codes, which is a rough copy, "usable for training" means that
they follow it, not that they sound well: hence the files.

C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.image
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from audiolm.audio import AudioError, read_audio, write_wav
from audiolm.codec.distances import mel_distance, si_snr
from audiolm.datasets.clip import SkippedClip
from audiolm.files import one_line, replacing, user_path
from audiolm.spectrogram import plot_spectrogram
from audiolm.tokens.store import TokenStore, check_codec

if TYPE_CHECKING:
    from audiolm.codec import Codec

MOST_SECONDS = 10.0
"""Seconds of a clip that are compared."""
SEARCHED_SECONDS = 30.0
"""Seconds from a clip's start in which they begin, and which are decoded for it."""
SILENCE_DB = -60.0
"""dBFS (rms of 0.1 s) below which nothing is audible; `mel_distance` disregards the same."""
QUIET_DB = -30.0
"""Where a clip is this much below its loudest 0.1 s, there is little to compare yet."""

NEAR, FAR = 0.75, 0.85
"""Distance as a share of that of shuffled codes: up to NEAR tokens follow the recordings."""
CLEAR_DB, NOISE_DB = 3.0, 0.0
"""SI-SNR from which the waveform itself shows it, and up to which it shows nothing."""

MIN_FRAMES = 4
"""Of fewer frames too much lies where it was after shuffling."""

_BLOCK = 0.1  # seconds whose loudness is measured


@dataclass(frozen=True)
class ReconstructedClip:
    """One clip of a store and how far its decoded codes are from the recording.

    start, duration: seconds, from the clip's own start. si_snr: dB. mel_distance: dB; shuffled:
    the same for the codes in random order.
    """

    name: str
    id: str
    path: Path
    start: float
    duration: float
    si_snr: float
    mel_distance: float
    shuffled: float

    @property
    def nearness(self) -> float:
        """0 for the original itself, about 1 for codes that say nothing of it."""
        return self.mel_distance / max(self.shuffled, 1e-9)

    def __str__(self) -> str:
        return (
            f"{self.name}  SI-SNR {self.si_snr:5.1f} dB, mel distance {self.mel_distance:4.1f} dB "
            f"(codes shuffled {self.shuffled:4.1f} dB)  {one_line(Path(self.id))}"
        )


@dataclass(frozen=True)
class ReconstructionReport:
    """What `listen` found. not_compared: clips whose recording is not there to compare with."""

    folder: Path
    clips: tuple[ReconstructedClip, ...]
    not_compared: tuple[SkippedClip, ...]

    @property
    def si_snr(self) -> float:
        """Median over the clips, dB; NaN where there are none."""
        return _median([clip.si_snr for clip in self.clips])

    @property
    def mel_distance(self) -> float:
        """Median over the clips, dB."""
        return _median([clip.mel_distance for clip in self.clips])

    @property
    def nearness(self) -> float:
        """Median over the clips."""
        return _median([clip.nearness for clip in self.clips])

    @property
    def usable(self) -> bool | None:
        """Whether the tokens follow the recordings; None where that cannot be said."""
        if self.nearness <= NEAR or self.si_snr >= CLEAR_DB:
            return True
        if self.nearness >= FAR and self.si_snr <= NOISE_DB:
            return False
        return None

    def verdict(self) -> str:
        """One line that says whether the tokens are usable for training, and why."""
        if not self.clips:
            why = f": {self.not_compared[0]}" if self.not_compared else ""
            return f"cannot tell whether the tokens are usable for training{why}"
        kept = (
            f"decoded, they are {self.nearness:.0%} as far from the recordings as the same tokens "
            f"shuffled (mel distance {self.mel_distance:.1f} dB), SI-SNR {self.si_snr:.1f} dB"
        )
        if self.usable:
            return f"the tokens are usable for training: {kept}"
        if self.usable is None:
            return (
                f"the tokens may be usable for training: {kept}; listen first, and try more "
                "codebooks or another codec if the copies are poor"
            )
        return (
            f"the tokens are NOT usable for training: {kept}; use another codec, or more codebooks"
        )

    def lines(self) -> list[str]:
        """To print: each clip, what could not be compared, and the verdict; none for no clips."""
        if not self.clips and not self.not_compared:
            return []
        return [
            f"listen    {self.folder}",
            *(f"  {clip}" for clip in self.clips),
            *(f"  not compared: {bad}" for bad in self.not_compared),
            self.verdict(),
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, Any]:
        """The content of listen.json; metrics that there are not are null."""
        medians = {
            "si_snr": self.si_snr,
            "mel_distance": self.mel_distance,
            "nearness": self.nearness,
        }
        return {
            "verdict": self.verdict(),
            "usable": self.usable,
            "medians": {name: _or_none(value) for name, value in medians.items()},
            "thresholds": {
                "near": NEAR,
                "far": FAR,
                "clear_si_snr": CLEAR_DB,
                "noise_si_snr": NOISE_DB,
            },
            "clips": [
                asdict(clip) | {"path": str(clip.path), "nearness": clip.nearness}
                for clip in self.clips
            ],
            "not_compared": [
                {"path": str(bad.path), "reason": bad.reason} for bad in self.not_compared
            ],
        }


def listen(
    store: TokenStore,
    codec: Codec,
    folder: str | Path,
    num_checks: int,
    seed: int = 0,
    show_progress: bool = True,
) -> ReconstructionReport:
    """Decode `num_checks` clips of a store into `folder`, beside their originals.

    The clips are one from each of so many equal groups of the store's clips, chosen with `seed`
    from the longer half of the group. What is compared of each begins where it is loud enough to,
    within its first 30 s. A recording that is gone, has changed or is silent there is named and not
    compared. 0 checks do nothing. What an earlier call left in `folder` is replaced.

    Raises ValueError for a negative number and where another codec made the store, OSError where
    the folder cannot be written.
    """
    if num_checks < 0:
        raise ValueError(f"num_checks={num_checks} must be 0 or more")
    check_codec(store, codec.identity())
    folder = user_path(folder)
    clips: list[ReconstructedClip] = []
    not_compared: list[SkippedClip] = []
    if num_checks == 0:
        return ReconstructionReport(folder, (), ())
    _remove_old(folder)
    chosen = choose_clips(store.frames, num_checks, seed)
    for number, clip in enumerate(
        tqdm(chosen, "listening", unit="clip", leave=False, disable=not show_progress)
    ):
        try:
            clips.append(_reconstruct(store, codec, clip, folder / f"{number:03d}", seed))
        except AudioError as error:
            not_compared.append(SkippedClip(error.path, error.reason))
    result = ReconstructionReport(folder, tuple(clips), tuple(not_compared))
    with replacing(folder / "listen.json") as temporary:
        # ASCII: names of files need not be valid Unicode.
        temporary.write_text(json.dumps(result.as_dict(), indent=1) + "\n", encoding="ascii")
    return result


def choose_clips(frames: NDArray[np.int64], count: int, seed: int) -> list[int]:
    """Indices of `count` clips of these lengths, or of all where there are no more, in order.

    Of very short clips there is little to compare, so each group of the collection gives one that
    is at least as long as half of its clips are.
    """
    rng = np.random.default_rng(seed)
    count = min(count, len(frames))
    ends = [len(frames) * i // count for i in range(count + 1)] if count else []
    chosen = []
    for first, last in pairwise(ends):
        group = frames[first:last]
        long = np.flatnonzero(group >= np.median(group))
        chosen.append(first + int(rng.choice(long)))
    return chosen


def _reconstruct(
    store: TokenStore, codec: Codec, clip: int, stem: Path, seed: int
) -> ReconstructedClip:
    """Compare one clip and write its files; AudioError where there is nothing to compare with."""
    record = store.record(clip)
    path = Path(record["path"])
    total = int(store.frames[clip])
    original = _read(path, record, total, codec)
    first, last = _audible(original, path, codec)
    if last - first < MIN_FRAMES:
        raise AudioError(path, f"too short to compare: {last - first} frames, not {MIN_FRAMES}")
    # From the clip's start: what a decoder carries along, it has carried from there.
    codes = torch.from_numpy(store.read(clip, 0, last).astype(np.int64))
    order = torch.randperm(last - first, generator=torch.Generator().manual_seed(seed))
    begin, end = first * codec.hop_length, min(last * codec.hop_length, original.shape[1])
    original = original[:, begin:end]
    decoded = codec.decode(codes[None])[0].cpu()[:, begin:end]
    shuffled = codec.decode(codes[None, :, first + order])[0].cpu()[:, : end - begin]

    rate = codec.sample_rate
    clip_result = ReconstructedClip(
        name=stem.name,
        id=record["id"],
        path=path,
        start=begin / rate,
        duration=(end - begin) / rate,
        si_snr=float(si_snr(decoded.flatten(), original.flatten())),
        mel_distance=float(mel_distance(decoded[None], original[None], rate)),
        shuffled=float(mel_distance(shuffled[None], original[None], rate)),
    )
    # One gain for both, so that they are compared as they are.
    peak = max(1.0, float(decoded.abs().max()), float(original.abs().max()))
    write_wav(stem.with_name(f"{stem.name}_original.wav"), original / peak, rate)
    write_wav(stem.with_name(f"{stem.name}_decoded.wav"), decoded / peak, rate)
    caption = (
        f"decoded, SI-SNR {clip_result.si_snr:.1f} dB, "
        f"mel distance {clip_result.mel_distance:.1f} dB"
    )
    _plot_pair(
        stem.with_suffix(".png"),
        ((original, one_line(Path(clip_result.id))), (decoded, caption)),
        rate,
    )
    return clip_result


def _read(path: Path, record: dict[str, Any], total: int, codec: Codec) -> Tensor:
    """The recording (C, N) of a clip of `total` frames, the part that is searched."""
    start = float(record.get("start") or 0.0)
    end = record.get("end")
    duration = SEARCHED_SECONDS if end is None else min(SEARCHED_SECONDS, end - start)
    try:
        original, _ = read_audio(path, codec.sample_rate, codec.channels, start, duration)
    except AudioError:
        raise
    except (OSError, ValueError) as error:
        raise AudioError(path, " ".join(str(error).split())) from error
    wanted = min(total, math.ceil(SEARCHED_SECONDS * codec.frame_rate))
    found = math.ceil(original.shape[1] / codec.hop_length)
    if abs(found - wanted) > 1:
        seconds, then = (n / codec.frame_rate for n in (found, wanted))
        raise AudioError(
            path, f"changed since it was encoded: lasts {seconds:.1f} s, lasted {then:.1f} s then"
        )
    return original[:, : wanted * codec.hop_length]


def _audible(original: Tensor, path: Path, codec: Codec) -> tuple[int, int]:
    """From which frame to which the recording (C, N) is audible. Raises AudioError for silence."""
    block = max(1, round(_BLOCK * codec.sample_rate))
    loudness = (
        torch.stack([part.square().mean() for part in torch.split(original, block, dim=1)]).log10()
        * 10
    )
    peak = float(loudness.max())
    if not peak >= SILENCE_DB:
        seconds = original.shape[1] / codec.sample_rate
        raise AudioError(path, f"silent in its first {seconds:.1f} s: nothing to compare")
    audible = loudness >= max(SILENCE_DB, peak + QUIET_DB)
    first = int(audible.int().argmax()) * block // codec.hop_length
    frames = math.ceil(original.shape[1] / codec.hop_length)
    return first, min(frames, first + math.ceil(MOST_SECONDS * codec.frame_rate))


def _plot_pair(path: Path, clips: Sequence[tuple[Tensor, str]], sample_rate: int) -> None:
    """The pictures of two waveforms (C, N) with their titles, one above the other."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "one.png"
        images = []
        for waveform, title in clips:
            plot_spectrogram(picture, waveform, sample_rate, title)
            images.append(matplotlib.image.imread(picture))
    with replacing(path) as temporary:
        matplotlib.image.imsave(temporary, np.concatenate(images), format="png")


def _remove_old(folder: Path) -> None:
    """Remove what an earlier call wrote, which may have had more clips."""
    for kind in ("_original.wav", "_decoded.wav", ".png"):
        for path in folder.glob(f"[0-9][0-9][0-9]{kind}"):
            path.unlink()


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
