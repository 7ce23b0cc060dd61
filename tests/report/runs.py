"""Run folders as trainings leave them, made by code in no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from audiolm.audio import write_wav
from audiolm.run_folder import RunFolder

RATE = 8000


def make_run(
    path: Path, loss: float = 1.5, seed: int = 0, sounds: bool = True, **settings: Any
) -> RunFolder:
    """A finished run of 40 steps with everything in its folder, and `loss` as its best one."""
    rng = np.random.default_rng(seed)
    path.mkdir(parents=True)
    _write_metrics(path, loss, rng)
    write_json(path / "plan.json", plan())
    write_json(path / "sessions.json", [session(40)])
    write_json(path / "scores.json", scores(rng))
    write_json(path / "evaluation.json", evaluation(rng))
    (path / ".hydra").mkdir()
    config = {"name": "demo", "seed": 3, "optim": {"lr": 0.001}, "trainer": {"max_steps": 40}}
    (path / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config | settings))
    (path / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(["optim.lr=0.001"]))
    for name in (
        "samples/step_00000020_sample_000",
        "samples/step_00000020_sample_001",
        "samples/step_00000040_sample_000",
        "samples/step_00000040_sample_001",
        "listen/000_original",
        "listen/000_decoded",
        "evaluation/sample_000",
    ):
        if sounds:
            write_sound(path / f"{name}.wav", rng)
    write_json(path / "listen" / "listen.json", listened())
    return RunFolder(path)


def write_json(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="ascii")


def write_sound(path: Path, rng: np.random.Generator, seconds: float = 1.25) -> None:
    import torch

    noise = rng.normal(0, 0.1, (1, round(seconds * RATE)))
    write_wav(path, torch.from_numpy(noise).float(), RATE)


def _write_metrics(path: Path, loss: float, rng: np.random.Generator) -> None:
    lines = [
        "step,train/nats_per_code,optim/grad_norm,optim/lr,train/codes_per_second,"
        "valid/nats_per_code,valid/bits_per_second,valid/nats_per_code_k0,valid/nats_per_code_k1"
    ]
    for step in range(40):
        nats = loss + 3 * np.exp(-step / 8) + 0.1 * rng.random()
        lines.append(f"{step},{nats:.9g},{rng.random():.9g},{0.001 * step:.9g},{9000 + step},,,,")
        if step % 10 == 9:
            valid = loss + (39 - step) / 20
            lines.append(
                f"{step},,,,,{valid:.9g},{valid * 144.27:.9g},{valid - 0.3:.9g},{valid + 0.3:.9g}"
            )
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")


def plan() -> dict[str, Any]:
    nats = {"unigram": 4.1234, "uniform": 5.5451774}
    return {
        "parameters": 123456,
        "pattern": "delay",
        "max_steps": 40,
        "windows_per_step": 8,
        "context_seconds": 6.4,
        "precision": "32-true",
        "threads": 1,
        "codec": {
            "name": "tiny",
            "fingerprint": "00ff",
            "num_codebooks": 2,
            "codebook_size": 256,
            "frame_rate": 50.0,
            "bits_per_second": 800.0,
        },
        "baselines": {
            name: {
                "nats_per_code": mean,
                "bits_per_second": mean * 144.27,
                "nats_per_code_by_codebook": [mean - 0.2, mean + 0.2],
            }
            for name, mean in nats.items()
        },
        "data": {
            "stores": [
                {
                    "path": "data/tokens/demo",
                    "share": 1.0,
                    "splits": {
                        "train": {"clips": 9, "hours": 0.123, "codes": 4321},
                        "valid": {"clips": 2, "hours": 0.0456, "codes": 987},
                        "test": {"clips": 0, "hours": 0.0, "codes": 0},
                    },
                }
            ],
            "longer_than_context": 3,
            "lengths": {"edges_seconds": [0.0, 1.0, 2.0], "clips": [4, 7]},
            "conditions": None,
        },
        "changed_settings": {"optim.lr": {"value": 0.001, "default": 0.002}},
        "generate": ["sampling.temperature=0.6"],
        "sample_conditions": [
            {"label": "seven <7>", "text": "a sentence of 1.5 words & more"},
            {"label": "eight"},
        ],
        "check": {
            "totals": {"clips": 12, "hours": 0.1789},
            "kept": {"clips": 11, "hours": 0.1686},
            "skipped": 1,
            "rules": {
                "silent": {"action": "drop", "clips": 1, "hours": 0.0103, "share": 0.0576},
                "clipped": {"action": "report", "clips": 0, "hours": 0.0, "share": 0.0},
            },
            "findings": {"silent": [{"path": "a/quiet.wav", "reason": "silent throughout"}]},
        },
    }


def session(step: int | None, **changed: Any) -> dict[str, Any]:
    """A session of a training; step None: it has not ended."""
    ended = {"time": "2026-01-02T03:08:24+00:00", "seconds": 200.25, "error": None}
    return {
        "started": "2026-01-02T03:04:05+00:00",
        "resumed_from": None,
        "command": ["python", "scripts/train.py", "optim.lr=0.001", "data.path=my data"],
        "machine": {"cpu": "A <Fast> CPU", "cores": 2, "gpu": None, "packages": {"torch": "2.9"}},
        "code": {"commit": "abc123", "changed_files": 0},
        "ended": None if step is None else {**ended, "step": step, "interrupted": False},
        **changed,
    }


def scores(rng: np.random.Generator) -> dict[str, Any]:
    names = ("legal_notes", "legal_transitions", "longest_loop")
    return {kind: {name: rng.random() for name in names} for kind in ("samples", "ceiling")}


def evaluation(rng: np.random.Generator) -> dict[str, Any]:
    kinds = ("generated", "validation", "training")
    bins = [{"confidence": c, "right": c, "codes": 100} for c in (0.25, 0.75)]

    def each() -> dict[str, Any]:
        return {kind: rng.random() for kind in kinds}

    row = {"model": 1.5, "bigram": 3.2109, "unigram": 4.1234, "uniform": 5.5451774}
    return {
        "checkpoint": "checkpoints/best.ckpt",
        "step": 40,
        "nats_per_code": [{"codebook": k, **row} for k in (0, 1, "mean")],
        "calibration": {"codebooks": [bins, bins], "all": bins},
        "bits_per_second": 216.4,
        "codec_bits_per_second": 800.0,
        "baselines_bits_per_second": {"bigram": 463.2, "unigram": 594.9, "uniform": 800.0},
        "validation_codes": 987,
        "sample_conditions": [{"speaker": "theo"}],
        "clips": {
            "frechet": {
                name: {"generated": 1.2345, "training": 1.0987, "training_sets": [1.0, 1.2]}
                for name in ("latents", "log_mel")
            },
            "silence": each() | {"limit": 0.5},
            "loop": each() | {"limit": 0.5},
            "seconds": {
                kind: {"lower_quartile": 1.1, "median": 1.25, "upper_quartile": 1.4}
                for kind in kinds
            },
            "perplexity": {kind: [12.5, 33.25] for kind in kinds},
            "clip_seconds": {kind: [1.0, 1.25, 1.5] for kind in kinds},
        },
        "memorisation": {
            name: {
                kind: [{"seconds": 0.24, "of_seconds": 1.25, "clip": "one.wav"}]
                for kind in kinds[:2]
            }
            for name in ("all_codebooks", "codebook_0")
        },
    }


def listened() -> dict[str, Any]:
    distances = {"si_snr": 5.1234, "mel_distance": 7.891, "shuffled": 10.456}
    return {
        "verdict": "the tokens are usable for training: SI-SNR 5.1 dB",
        "clips": [{"name": "000", "id": "melody <1>.wav", **distances}],
    }
