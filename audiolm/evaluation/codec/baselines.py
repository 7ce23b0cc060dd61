"""What a codec is held against: Opus, codec2, and the recordings themselves, whole and below 4 kHz.

N audio samples.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import audiolm.codec.distances
from audiolm.audio import read_audio, resample, write_wav
from audiolm.evaluation.codec import alignment, spectral_shape
from audiolm.evaluation.codec import metrics as measuring
from audiolm.evaluation.codec.alignment import find_delay, shifted
from audiolm.evaluation.codec.metrics import Clips, Measures, Metrics, Row
from audiolm.evaluation.digits import classifier
from audiolm.evaluation.speech import recogniser
from audiolm.files import replacing

OPUS_KBPS = 6.0
CODEC2_KBPS = 3.2
CODEC2_RATE = 8000  # Hz, the only one it knows

NARROW_RATE = 8000
"""Hz; half of it is the limit."""


def unchanged(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """The clip (1, N) as it is; no kbit/s."""
    return clip, 0.0


def below_4_khz(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """The clip (1, N) without what is above 4 kHz; no kbit/s."""
    narrow = resample(clip, sample_rate, NARROW_RATE)
    return resample(narrow, NARROW_RATE, sample_rate), 0.0


def through_opus(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """Encode a clip (1, N) with Opus and decode it; also the kbit/s used, without the container."""
    source, coded, decoded = folder / "in.wav", folder / "coded.opus", folder / "out.wav"
    gain = write_wav(source, clip, sample_rate)
    output = _call("opusenc", "--bitrate", f"{OPUS_KBPS:g}", str(source), str(coded))
    used = re.search(r"Bitrate: ([\d.]+) kbit/s \(without overhead\)", output)
    if used is None:
        raise ValueError(f"opusenc did not tell its bit rate; it said {output[-200:]!r}")
    _call("opusdec", "--quiet", "--float", "--rate", "48000", str(coded), str(decoded))
    waveform, rate = read_audio(decoded, channels=1)
    return resample(waveform, rate, sample_rate) / gain, float(used[1])


def through_codec2(clip: Tensor, sample_rate: int, folder: Path) -> tuple[Tensor, float]:
    """Encode a clip (1, N) with codec2 and decode it; also the kbit/s, which never vary."""
    source, coded, decoded = folder / "in.raw", folder / "coded.bin", folder / "out.raw"
    mode = f"{1000 * CODEC2_KBPS:g}"
    # It drops a frame that is not full and is late by more than one: without silence at the end
    # the clip's last sounds would be missing.
    narrow = torch.cat([resample(clip, sample_rate, CODEC2_RATE), torch.zeros(1, 800)], dim=1)
    samples = (narrow[0].numpy() * 32768).round().clip(-32768, 32767).astype("<i2")
    source.write_bytes(samples.tobytes())
    _call("c2enc", mode, str(source), str(coded))
    _call("c2dec", mode, str(coded), str(decoded))
    back = torch.from_numpy(np.frombuffer(decoded.read_bytes(), "<i2").astype(np.float32) / 32768)
    return resample(back[None], CODEC2_RATE, sample_rate), CODEC2_KBPS


Through = Callable[[Tensor, int, Path], tuple[Tensor, float]]

BASELINES: dict[str, tuple[Through, tuple[str, ...]]] = {
    "recordings": (unchanged, ()),
    "recordings below 4 kHz": (below_4_khz, ()),
    "Opus": (through_opus, ("opusenc", "opusdec")),
    "codec2": (through_codec2, ("c2enc", "c2dec")),
}
"""Name: how it is done, and the programs that it needs."""


def evaluate_baseline(name: str, kinds: Mapping[str, Clips], metrics: Metrics) -> Row:
    """Encode and decode every clip with the baseline, align, and measure."""
    through, _ = BASELINES[name]
    decoded: dict[str, Clips] = {}
    bits = seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for kind, clips in kinds.items():
            decoded[kind] = []
            for clip in clips:
                waveform, kbps = through(clip, metrics.sample_rate, Path(folder))
                decoded[kind].append(waveform)
                bits += kbps * clip.shape[1]
                seconds += clip.shape[1]
    pairs = [pair for k in kinds for pair in zip(kinds[k], decoded[k], strict=True)]
    delay = find_delay(pairs, metrics.sample_rate)
    measures = {
        kind: metrics.measure(
            kind,
            clips,
            [shifted(d, delay, c.shape[1]) for c, d in zip(clips, decoded[kind], strict=True)],
        )
        for kind, clips in kinds.items()
    }
    return Row(name, bits / seconds, measures)


def _call(*command: str) -> str:
    """Run a program; return what it said on standard error."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise ValueError(f"{' '.join(command)} failed: {done.stderr.strip()[-200:]}")
    return done.stderr


def load_baselines(kinds: Mapping[str, Clips], metrics: Metrics, cache: Path) -> list[Row]:
    """Rows of the baselines whose programs are there, measured on first use and kept in ``cache``.

    A row is measured anew when the clips, or the code that measures, are others.
    """
    rows = []
    for name, (_, programs) in BASELINES.items():
        missing = [program for program in programs if shutil.which(program) is None]
        if missing:
            print(f"skipped {name}: {', '.join(missing)} not found", file=sys.stderr)
            continue
        key = hashlib.sha256(f"{name} {metrics.sample_rate} {find_spec('pystoi') is None}".encode())
        for source in (
            __file__,
            alignment.__file__,
            audiolm.codec.distances.__file__,
            classifier.__file__,
            measuring.__file__,
            recogniser.__file__,
            spectral_shape.__file__,
        ):
            key.update(Path(source).read_bytes())
        for kind, clips in kinds.items():
            key.update(kind.encode())
            key.update(metrics.words[kind].key.encode() if kind in metrics.words else b"")
            for clip in clips:
                key.update(clip.numpy().tobytes())
        file = cache / f"{name.replace(' ', '_')}_{key.hexdigest()[:16]}.json"
        if not file.is_file():
            row = evaluate_baseline(name, kinds, metrics)
            with replacing(file) as temporary:
                temporary.write_text(json.dumps(asdict(row), indent=1), encoding="utf-8")
        kept = json.loads(file.read_text(encoding="utf-8"))
        measures = {kind: Measures(**values) for kind, values in kept["kinds"].items()}
        rows.append(Row(kept["name"], kept["kbps"], measures))
    return rows
