"""Generate audio with a trained model: python scripts/generate.py [ckpt_path=FILE] [key=value]"""

from __future__ import annotations

import json
import math
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from tqdm import tqdm

from audiolm.audio import read_audio, replacing, write_wav
from audiolm.codec import EncodecCodec, load_codec
from audiolm.generation import stream
from audiolm.generation.checkpoint import TrainedModel, load_checkpoint
from audiolm.spectrogram import draw_spectrogram
from command_line import RUNS, best_checkpoint, newest_run, start


def main(cfg: DictConfig) -> None:
    path = find_checkpoint(cfg.ckpt_path)
    trained = load_checkpoint(path)
    device = choose_device(cfg.device)
    trained.model.to(device)
    codec = load_codec(trained.codec, codec_folders(path), cfg.codec_repository).to(device)
    num_frames = frames_of_duration(cfg.duration, codec)
    prompt = encode_prompt(cfg, codec, trained.context_frames)
    if cfg.num_samples < 1:
        raise ValueError(f"num_samples={cfg.num_samples} must be at least 1")
    out = out_folder(cfg, path)
    out.mkdir(parents=True, exist_ok=True)
    seeds = [cfg.seed + i for i in range(cfg.num_samples)]
    sampling: Any = OmegaConf.to_container(cfg.sampling, resolve=True)

    started = time.perf_counter()
    codes = draw(trained, num_frames, codec.frame_rate, seeds, prompt, sampling)
    waveforms = codec.decode(codes, round(cfg.duration * codec.sample_rate)).cpu()
    seconds = time.perf_counter() - started
    speed = {
        "frames_per_second": len(seeds) * num_frames / seconds,
        "realtime_factor": len(seeds) * cfg.duration / seconds,
    }
    for i, (seed, waveform) in enumerate(zip(seeds, waveforms, strict=True)):
        about = {
            "checkpoint": str(path),
            "step": trained.step,
            "seed": seed,
            "duration": cfg.duration,
            "prompt": cfg.prompt,
            "prompt_seconds": 0.0 if prompt is None else prompt.shape[1] / codec.frame_rate,
            "sampling": sampling,
            "codec": trained.codec,
            **speed,
        }
        write_sample(out / f"sample_{i:03d}", waveform, codec.sample_rate, about)
    print(
        f"wrote {len(seeds)} samples of {cfg.duration:g} s to {out} at "
        f"{speed['frames_per_second']:.0f} frames/s, {speed['realtime_factor']:.2f} times real time"
    )
    print("next: listen to them, or go on with a recording: prompt=FILE prompt_duration=2")


def find_checkpoint(ckpt_path: str | None) -> Path:
    """The file named, or the best one of the newest run."""
    if ckpt_path not in (None, "last"):
        return Path(ckpt_path)
    run = newest_run()
    if run is None:
        raise FileNotFoundError(
            f"no run with a checkpoint in {RUNS.resolve()}; run scripts/train.py first, or pass "
            f"ckpt_path=FILE"
        )
    return best_checkpoint(run)


def codec_folders(checkpoint: Path) -> list[Path]:
    """Where a run carries its local codec: the run's folder, or beside a checkpoint sent alone."""
    folder = checkpoint.resolve().parent
    return [f for f in (folder.parent / "codec", folder / "codec", folder) if f.is_dir()]


def choose_device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device={device} is unknown; choose auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda: torch sees no GPU here; pass device=cpu")
    return torch.device(device)


def frames_of_duration(duration: float, codec: EncodecCodec) -> int:
    if not 1 / codec.sample_rate <= duration < math.inf:
        raise ValueError(f"duration={duration} s must be above 0, and not endless")
    frames: int = math.ceil(duration * codec.frame_rate)
    return frames


def encode_prompt(cfg: DictConfig, codec: EncodecCodec, context_frames: int) -> Tensor | None:
    """Codes (K, P) of the prompt, whole frames only: the last, padded one would be a seam."""
    if cfg.prompt is None:
        return None
    if cfg.prompt_duration is not None and not cfg.prompt_duration > 0:
        raise ValueError(f"prompt_duration={cfg.prompt_duration} s must be above 0")
    waveform, _ = read_audio(
        cfg.prompt, codec.sample_rate, codec.channels, duration=cfg.prompt_duration
    )
    frames = waveform.shape[1] // codec.hop_length
    if frames < 1:
        raise ValueError(
            f"the prompt {cfg.prompt} has {waveform.shape[1]} samples, less than one frame of "
            f"{codec.hop_length}; take a longer one"
        )
    seconds, context = frames / codec.frame_rate, context_frames / codec.frame_rate
    if frames > context_frames or seconds > cfg.duration:
        raise ValueError(
            f"the prompt of {seconds:.2f} s must be no longer than the model's context of "
            f"{context:.2f} s and than duration={cfg.duration:g}, which includes it; pass "
            f"prompt_duration={min(context, cfg.duration) / 2:.2g}"
        )
    return codec.encode(waveform[None, :, : frames * codec.hop_length])[0]


def out_folder(cfg: DictConfig, checkpoint: Path) -> Path:
    if cfg.out is not None:
        return Path(cfg.out)
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return run_folder(checkpoint) / "generated" / now


def run_folder(checkpoint: Path) -> Path:
    """The run's folder; for a checkpoint that was sent alone, the one that it lies in."""
    folder = checkpoint.parent
    return folder.parent if folder.name == "checkpoints" else folder


def draw(
    trained: TrainedModel,
    num_frames: int,
    frame_rate: float,
    seeds: list[int],
    prompt: Tensor | None,
    sampling: dict[str, Any],
) -> Tensor:
    """Codes (B, K, T), with a bar of frames; its factor of real time counts all samples."""
    drawn = stream(
        trained.model,
        trained.pattern,
        num_frames,
        trained.context_frames,
        seeds,
        prompt,
        **sampling,
    )
    chunks = []
    with tqdm(total=num_frames, unit="frame", desc=f"{len(seeds)} samples") as bar:
        for chunk in drawn:
            chunks.append(chunk)
            bar.update(chunk.shape[2])
            seconds = max(bar.format_dict["elapsed"], 1e-3)
            realtime = len(seeds) * bar.n / frame_rate / seconds
            bar.set_postfix_str(f"{realtime:.1f} x real time", refresh=False)
    return torch.cat(chunks, dim=2)


def write_sample(stem: Path, waveform: Tensor, sample_rate: int, about: dict[str, Any]) -> None:
    """stem.wav, stem.png with its spectrogram, and stem.json."""
    about["gain"] = write_wav(stem.with_suffix(".wav"), waveform, sample_rate)
    title = f"step {about['step']}, seed {about['seed']}"
    draw_spectrogram(stem.with_suffix(".png"), waveform, sample_rate, title)
    with replacing(stem.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    start("generate", main)
