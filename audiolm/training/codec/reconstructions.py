"""Listen to a codec while it trains: validation segments beside their originals.

C audio channels, N audio samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from audiolm.audio import write_wav
from audiolm.codec.distances import si_snr
from audiolm.spectrogram import plot_spectrogram
from audiolm.training.codec.data import WaveformData
from audiolm.training.codec.module import CodecTraining
from audiolm.training.loggers.wandb import log_audio


class ReconstructionCallback(pl.Callback):
    """After each validation writes validation segments as the codec decodes them, and logs them.

    As step_00001000_0.wav with a spectrogram, beside original_0.wav. In W&B the clips are the media
    `reconstructions`, each original before its copy, and their spectrograms
    `reconstructions_spectrogram`; the captions tell step and SI-SNR.

    Args:
        folder: where the files go.
        num_samples: segments; 0 turns this off.
    """

    def __init__(self, folder: str | Path, num_samples: int = 4) -> None:
        if num_samples < 0:
            raise ValueError(
                f"callbacks.reconstructions.num_samples={num_samples} must be 0 or more"
            )
        self.folder = Path(folder)
        self.num_samples = num_samples

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, CodecTraining)
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, WaveformData)
        count = min(self.num_samples, len(data.valid_segments))
        if not count or not trainer.is_global_zero:
            return
        step = trainer.global_step
        every = max(1, len(data.valid_segments) // count)  # of all kinds, as files are sorted
        segments = [data.valid_segments[i * every] for i in range(count)]
        originals = torch.stack(segments).to(module.device)
        decoded, _ = module.reconstruct(originals, module.settings["n_q"])
        pictures, captions, clips = [], [], []
        for i, (original, copy) in enumerate(zip(originals.cpu(), decoded.cpu(), strict=True)):
            first = self.folder / f"original_{i}"
            codes = "" if module.quantizes else ", without codes yet"
            ratio = float(si_snr(copy, original).mean())
            caption = f"step {step}, {ratio:.1f} dB SI-SNR{codes}"
            pairs: list[tuple[Path, Any, str]] = [
                (self.folder / f"step_{step:08d}_{i}", copy, caption)
            ]
            # The picture comes last: without it a kill came between the two.
            if not first.with_suffix(".png").exists():
                pairs.insert(0, (first, original, "original"))
            for stem, waveform, title in pairs:
                write_wav(stem.with_suffix(".wav"), waveform, module.settings["sample_rate"])
                picture = stem.with_suffix(".png")
                plot_spectrogram(picture, waveform, module.settings["sample_rate"], title)
            clips += [original, copy]
            captions += [f"original {i}", caption]
            pictures += [first.with_suffix(".png"), pairs[-1][0].with_suffix(".png")]
        log_audio(
            trainer.loggers,
            "reconstructions",
            clips,
            module.settings["sample_rate"],
            captions,
            pictures,
            step,
        )
