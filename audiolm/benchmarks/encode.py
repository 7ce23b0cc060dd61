"""Section `encode`: hours of audio encoded in an hour, beside a plain loop of the encodec package.

The plain loop reads a file (soundfile), resamples it (soxr) and encodes it, one after the other, as
the package's README shows, with the package's own model of the same weights. It resamples as this
package does so that codes can be compared; the package's own `convert_audio` takes a filter that
leaves aliases, and other codes.

B batch, C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import soundfile
import soxr
import torch
from encodec.model import EncodecModel
from encodec.utils import convert_audio
from torch import Tensor, nn

from audiolm.audio import convert_channels, read_audio
from audiolm.benchmarks.limits import FP32, limits
from audiolm.benchmarks.material import Recordings, long_clips, short_clips
from audiolm.benchmarks.report import Section
from audiolm.benchmarks.rounds import Candidate, interleave
from audiolm.codec import EncodecCodec, build_model
from audiolm.codec.weights import load_weights
from audiolm.datasets.checks.check import check_clips
from audiolm.datasets.checks.rules import Rule, Rules
from audiolm.datasets.clip import Clip
from audiolm.tokens.encoding.prepare import prepare_store
from audiolm.tokens.store import TokenStore

UNIT = "hours/hour"
EVERYTHING = Rules(
    max_dropped=1.0,
    silent=Rule("off", -70.0),
    too_short=Rule("off", 0.1),
    duplicate=Rule("report"),
)
"""The check as it always runs, with nothing skipped, so that all candidates do the same work."""


@dataclass(frozen=True)
class EncodeSettings:
    """short_seconds: of audio in short clips that a sample encodes. lengths: seconds of the long
    clips of each kind. long_seconds: of audio in all clips of one kind.
    num_workers, check_workers: processes that decode, as in `prepare`."""

    short_seconds: float = 60.0
    lengths: Sequence[float] = (10.0, 60.0)
    long_seconds: float = 120.0
    num_workers: int = 0
    check_workers: int = 0


def encode_section(
    settings: EncodeSettings,
    codec: EncodecCodec,
    audio: Path | None,
    rounds: int,
    show_progress: bool = True,
) -> Section:
    """Encode short and long clips from `audio`, or from melodies made by code.

    Raises ValueError for lengths out of range, for a codec whose codes lie on another grid than the
    package's, and where `audio` does not hold enough; RuntimeError where a candidate did not do all
    of the work.
    """
    if codec.settings["segment"] is not None:
        raise ValueError(
            "the encode section compares codes with those of the encodec package, which lie on "
            "another grid for a codec with segments; choose another codec"
        )
    with TemporaryDirectory(prefix="audiolm-benchmark-") as temporary:
        folder = Path(temporary)
        recordings = [short_clips(audio, folder / "short", settings.short_seconds)]
        for length in settings.lengths:
            into = folder / f"long_{length:g}"
            recordings.append(long_clips(audio, into, length, settings.long_seconds))
        kinds = [_Kind(kind, codec) for kind in recordings]
        cost = encoder_gflop(kinds[0].package, codec)
        candidates = limits()
        for kind in kinds:
            candidates += kind.candidates(settings, folder / "work", cost)
        found = interleave(candidates, rounds, "encode", show_progress)
        facts: dict[str, Any] = {
            "codec": f"{codec.identity()['name']}, {codec.sample_rate} Hz, "
            f"{codec.num_codebooks} codebooks of {codec.codebook_size} codes",
            "encoder": f"{cost:.3g} GFLOP a second of audio",
        }
        for kind in kinds:
            facts |= kind.facts()
        return Section("encode", found, facts)


class _Kind:
    """Recordings of one kind, the ways to encode them, and the codes (K, T) that each way gave."""

    def __init__(self, recordings: Recordings, codec: EncodecCodec) -> None:
        self.recordings = recordings
        self.codec = codec
        self.package = package_model(codec)
        self.codes: dict[str, list[Tensor]] = {}
        # Numbered, so that they are in this order in a store.
        self.clips = [Clip(f"{i:06d}", path) for i, path in enumerate(recordings.paths)]
        self.waveforms = [
            read_audio(path, codec.sample_rate, codec.channels)[0] for path in recordings.paths
        ]

    def candidates(self, settings: EncodeSettings, folder: Path, gflop: float) -> list[Candidate]:
        name, hours = self.recordings.name, self.recordings.seconds
        loop = f"{name}: encodec, a plain loop"
        report = check_clips(
            self.clips, folder / "checked", EVERYTHING, num_workers=0, show_progress=False
        )

        def prepare(check: bool) -> None:
            """As scripts/prepare.py does, from nothing."""
            shutil.rmtree(folder / "store", ignore_errors=True)
            checked = report
            if check:
                shutil.rmtree(folder / "fresh", ignore_errors=True)
                checked = check_clips(
                    self.clips,
                    folder / "fresh",
                    EVERYTHING,
                    num_workers=settings.check_workers,
                    show_progress=False,
                )
            prepare_store(
                checked,
                self.codec,
                folder / "store",
                num_workers=settings.num_workers,
                show_progress=False,
            )
            store = TokenStore(folder / "store")
            self.codes["store"] = [
                torch.from_numpy(store.codes(i).astype("int64")) for i in range(len(store))
            ]

        def plain() -> None:
            self.codes["loop"] = [self._plain_codes(p, _resampled) for p in self.recordings.paths]

        def batch() -> None:
            self.codes["batch"] = [c.cpu() for c in self.codec.encode_batch(self.waveforms)]

        def timed(what: str, run: Callable[[], None], against: str | None) -> Candidate:
            return Candidate(what, run, hours, UNIT, against, FP32, gflop)

        return [
            timed(loop, plain, None),
            timed(f"{name}: check and encode", lambda: prepare(check=True), loop),
            timed(f"{name}: encode", lambda: prepare(check=False), loop),
            timed(f"{name}: the codec alone", batch, loop),
        ]

    def facts(self) -> dict[str, Any]:
        name, loop = self.recordings.name, self.codes["loop"]
        resampled = [self._plain_codes(p, _convert_audio) for p in self.recordings.paths]
        return {
            f"{name}, codes the same as the loop's": _same(self.codes["store"], loop, self.codec),
            f"{name}, the codec alone": _same(self.codes["batch"], loop, self.codec),
            f"{name}, the loop with encodec's convert_audio": _same(resampled, loop, self.codec),
        }

    @torch.inference_mode()
    def _plain_codes(self, path: Path, convert: Callable[..., Tensor]) -> Tensor:
        """(K, T), as the package's README gets them."""
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        waveform = convert(samples, rate, self.codec)
        frames = self.package.encode(waveform[None].to(self.codec.device))
        return torch.cat([codes for codes, _ in frames], dim=-1)[0].cpu()


def package_model(codec: EncodecCodec) -> EncodecModel:
    """The encodec package's own model of the same weights, which stay normalised at each use."""
    model = build_model(codec.settings).eval().requires_grad_(False)
    load_weights(model, codec.weights)
    # The package counts codebooks by bandwidth in kbit/s, and rounds down.
    model.bandwidth = (
        codec.num_codebooks
        * model.quantizer.get_bandwidth_per_quantizer(model.frame_rate)
        * (1 + 1e-6)
    )
    if (
        model.quantizer.get_num_quantizers_for_bandwidth(model.frame_rate, model.bandwidth)
        != codec.num_codebooks
    ):
        raise RuntimeError(f"the encodec package does not use {codec.num_codebooks} codebooks")
    return model.to(codec.device)


def encoder_gflop(model: EncodecModel, codec: EncodecCodec) -> float:
    """Floating point operations, in units of 1e9, to encode a second of audio."""
    total = 0

    def count(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv1d):
            per_output = layer.in_channels // layer.groups * layer.kernel_size[0]
            total += 2 * per_output * output.numel()
        elif isinstance(layer, nn.LSTM):
            steps, batch, _ = inputs[0].shape
            # Of each layer: four gates, from the input and from the state.
            weights = 4 * layer.hidden_size * (layer.input_size + layer.hidden_size)
            total += 2 * steps * batch * layer.num_layers * weights

    hooks = [layer.register_forward_hook(count) for layer in model.encoder.modules()]
    with torch.inference_mode():
        latents = model.encoder(
            torch.zeros(1, codec.channels, codec.sample_rate, device=codec.device)
        )
    for hook in hooks:
        hook.remove()
    # A codebook: the products of each latent with all codes.
    total += 2 * latents.numel() * codec.codebook_size * codec.num_codebooks
    return float(total) / 1e9


def _resampled(samples: Any, rate: int, codec: EncodecCodec) -> Tensor:
    """Samples (N, C) as those that this package makes of them, (codec.channels, N')."""
    waveform = convert_channels(torch.from_numpy(samples.T.copy()), codec.channels)
    if rate == codec.sample_rate:
        return waveform
    resampled = soxr.resample(waveform.numpy().T, rate, codec.sample_rate, quality="HQ")
    return torch.from_numpy(resampled.T.copy())


def _convert_audio(samples: Any, rate: int, codec: EncodecCodec) -> Tensor:
    waveform: Tensor = convert_audio(
        torch.from_numpy(samples.T.copy()), rate, codec.sample_rate, codec.channels
    )
    return waveform


def _same(mine: Sequence[Tensor], theirs: Sequence[Tensor], codec: EncodecCodec) -> str:
    """How many codes are the same, and where those begin that are not.

    Raises RuntimeError where the two are not of the same clips and lengths.
    """
    lengths = [[codes.shape[1] for codes in side] for side in (mine, theirs)]
    if lengths[0] != lengths[1]:
        raise RuntimeError(f"a candidate encoded {lengths[0]} frames, the other {lengths[1]}")
    equal = [a == b for a, b in zip(mine, theirs, strict=True)]
    same = sum(int(e.sum()) for e in equal)
    total = sum(e.numel() for e in equal)
    if same == total:
        return f"100 % of {total:,}"
    # A frame differs from its first codebook on that does; the later ones follow from that.
    first = torch.zeros(codec.num_codebooks, dtype=torch.int64)
    for e in equal:
        frames = ~e.all(dim=0)
        first += torch.bincount((~e[:, frames]).int().argmax(dim=0), minlength=codec.num_codebooks)
    clips = sum(not bool(e.all()) for e in equal)
    return (
        f"{math.floor(1e5 * same / total) / 1e3:.3f} % of {total:,}; {int(first.sum()):,} frames "
        f"of {clips:,} clips differ, first in codebook "
        + ", ".join(f"{k + 1} ({n:,})" for k, n in enumerate(first.tolist()) if n)
    )
