"""A published model through the scripts: imported, sampled, fine-tuned, evaluated, exported."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audiolm.model.checkpoint import read_checkpoint

from ..importing.conftest import SAVE, hf_musicgen
from .conftest import RunScript

SAMPLED = ["num_samples=1", "duration=0.1", "sampling.guidance=3"]


@pytest.fixture
def captioned(workplace: Path) -> list[str]:
    """A folder of recordings with captions, of a thing that can be learnt; and small settings."""
    folder = workplace / "recordings"
    folder.mkdir()
    with (folder / "metadata.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file_name", "caption"])
        for i in range(8):
            rows.writerow([f"{i}.wav", ("calm piano", "loud drums")[i % 2]])
            sound = np.sin(np.arange(480) * (0.3, 0.9)[i % 2] + i) * (0.1, 0.6)[i % 2]
            soundfile.write(folder / f"{i}.wav", sound, 800)
    return [
        "experiment=smoke",
        "data=folder",
        f"data.path={folder}",
        "data.batch_size=4",
        "data.valid_fraction=0.25",
        "trainer.max_steps=3",
        "optim.warmup_steps=1",
        "callbacks.samples.duration=0.1",
        "conditioning.sequence=caption",
        "logger=csv",
    ]


@pytest.mark.parametrize("stereo", [False, True])
def test_import_generate_and_fine_tune(
    workplace: Path, captioned: list[str], run_script: RunScript, stereo: bool
) -> None:
    SAVE["transformers"](hf_musicgen(stereo), workplace / "theirs")
    result = run_script(
        "import_model", "path=theirs", "out=ours", "context_seconds=0.2", "base_model=ann/music"
    )
    assert result.code == 0, result.err
    assert "license   cc-by-nc-4.0 of the weights: not for commercial use" in result.out
    assert f"{8 if stereo else 4} codebooks of 32 codes, 800 Hz" in result.out
    card = Path("ours/README.md").read_text()
    assert "license: cc-by-nc-4.0" in card and "base_model: ann/music" in card
    shutil.rmtree("theirs")  # nothing of it is needed

    result = run_script("generate", "ckpt_path=ours", "out=a", *SAMPLED, "conditioning.text=piano")
    assert result.code == 0, result.err
    sound, rate = soundfile.read("a/sample_000.wav")
    assert rate == 800 and sound.shape == ((80, 2) if stereo else (80,))
    run_script("generate", "ckpt_path=ours", "out=b", *SAMPLED, "conditioning.text=drums")
    run_script("generate", "ckpt_path=ours", "out=c", *SAMPLED)
    made = {Path(f"{name}/sample_000.wav").read_bytes() for name in "abc"}
    assert len(made) == 3  # what is said changes what is heard

    result = run_script("train", *captioned, "init_from=ours", "hydra.run.dir=run")
    assert result.code == 0, result.err
    assert "caption (at most 128 vectors of 12 numbers)" in result.out
    settings = read_checkpoint("run/checkpoints/last.ckpt")["hyper_parameters"]
    assert settings["origin"] == {"license": "cc-by-nc-4.0", "base_model": "ann/music"}
    assert settings["conditioning"]["sequence"] == "caption"
    assert settings["pattern"] == ([0, 0, 1, 1, 2, 2, 3, 3] if stereo else "delay")
    shutil.rmtree("ours")  # the run has the codec and the text encoder
    result = run_script(
        "generate", "ckpt_path=run", "out=d", *SAMPLED, "conditioning.caption='calm piano'"
    )
    assert result.code == 0, result.err
    result = run_script("export", "ckpt_path=run", "out=shared", "num_samples=1", "duration=0.1")
    assert result.code == 0, result.err
    assert {path.name for path in Path("shared/text_encoder").iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json")
    }
    assert json.loads(Path("shared/config.json").read_text())["license"] == "cc-by-nc-4.0"


def test_training_goes_down_and_is_resumed(
    workplace: Path, captioned: list[str], run_script: RunScript
) -> None:
    SAVE["audiocraft"](hf_musicgen(), workplace / "theirs")
    result = run_script("import_model", "path=theirs", "out=ours")
    assert result.code == 0, result.err
    few = [word for word in captioned if not word.startswith("trainer.max_steps")]
    few += ["init_from=ours", "hydra.run.dir=run", "optim.lr=3e-3", "trainer.log_every_n_steps=1"]
    result = run_script("train", *few, "trainer.max_steps=20")
    assert result.code == 0, result.err
    shutil.rmtree("ours")
    result = run_script("train", *few, "trainer.max_steps=40", "ckpt_path=last")
    assert result.code == 0, result.err
    with Path("run/metrics.csv").open() as file:
        losses = [row["train/nats_per_code"] for row in csv.DictReader(file)]
    found = [float(loss) for loss in losses if loss]
    assert len(found) >= 40
    assert np.mean(found[-5:]) < np.mean(found[:5]) - 0.5
    result = run_script(
        "evaluate", "ckpt_path=run", "data=folder", "data.path=recordings", "num_samples=0"
    )
    assert result.code == 0, result.err
    rows = json.loads(Path("run/evaluation.json").read_text())["nats_per_code"]
    assert "without_conditions" in rows[0]


def test_wrong_input_is_said_in_a_line(workplace: Path, run_script: RunScript) -> None:
    SAVE["transformers"](hf_musicgen(), workplace / "theirs")
    for arguments, message in (
        (["path=nothing", "out=ours"], "path=nothing: no such folder"),
        (["path=theirs", "out=theirs"], "out=theirs is there; give a new folder"),
        (["path=theirs", "out=ours", "dtype=int8"], "dtype=int8 is unknown"),
        (["path=theirs", "out=ours", "context_seconds=0"], "context_seconds=0.* must be a number"),
        (["path=hf://ann/nothing", "out=ours"], "hf://ann/nothing is not in"),
    ):
        result = run_script("import_model", *arguments)
        assert result.code == 2 and len(result.err.strip().splitlines()) == 1, result.err
        assert re.search(message, result.err), result.err
        assert not Path("ours").exists()
