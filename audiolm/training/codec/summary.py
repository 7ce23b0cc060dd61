"""What a codec's training is going to do, said before the first step."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer

from audiolm.files import counted
from audiolm.training.codec.data import WaveformData
from audiolm.training.codec.module import CodecTraining


def describe_codec_plan(
    module: CodecTraining, data: WaveformData, trainer: Trainer, fitted: bool
) -> str:
    """The plan as lines to print; `fitted`: a run is resumed whose codebooks are fitted."""
    settings, rate = module.settings, data.waveforms.sample_rate
    hop = int(module.model.encoder.hop_length)
    parameters = sum(p.numel() for p in module.model.parameters())
    bits = settings["n_q"] * (settings["bins"] - 1).bit_length() * rate / hop / 1000

    def amount(spans: Any) -> str:
        return f"{counted(len(spans), 'recording')}, {spans['frames'].sum() / rate / 3600:.2f} h"

    start = f"from step {round(module.quantization['start'] * trainer.max_steps):,} on"
    if fitted:
        start = "already"
    share = module.quantization["freeze_encoder"]
    if share < 1:
        start += f", decoder alone from step {round(share * trainer.max_steps):,} on"
    lines = [
        "plan",
        f"  codec       {parameters:,} parameters, {rate} Hz, {rate / hop:g} frames/s, "
        f"{settings['n_q']} codebooks of {settings['bins']} codes: {bits:g} kbit/s",
        f"  train       {amount(data.train_spans)}",
        f"  validation  {amount(data.valid_spans)}",
        f"  decoded     {data.waveforms.path}, {data.waveforms.size / 1e6:,.0f} MB; delete it, and "
        f"others there, once trained",
        f"  step        {data.batch_size} segments of {data.train_segments.length / rate:.2f} s",
        f"  run         {counted(trainer.max_steps, 'step')}, quantized {start}",
    ]
    return "\n".join(lines)
