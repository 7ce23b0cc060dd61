"""Every command that the README prints runs, in its order, and its settings exist."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from audiolm.codec import EncodecCodec, build_model, pretrained
from audiolm.codec.pretrained import PRETRAINED

from .conftest import ROOT, RunScript
from .test_configs import compose

README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = {  # what turns a command into one of the same kind that takes seconds
    "train": ["experiment=smoke", "model.embed_dim=32", "model.num_layers=2", "model.num_heads=2"],
    "train_codec": [
        "codec_model.n_filters=4",
        "trainer.max_steps=4",
        "trainer.val_check_interval=2",
        "quantization.init_segments=16",
        "data.segment=0.64",
        "logger=csv",
    ],
}

RECIPE = [  # the same for a command with an experiment of its own
    "codec.num_codebooks=2",
    "model.embed_dim=32",
    "model.num_layers=2",
    "model.num_heads=2",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "callbacks.samples.num_samples=1",
    "callbacks.samples.duration=0.5",
    "prepare.num_checks=0",
    "optim.warmup_steps=1",
    "logger=csv",
]


def commands() -> list[list[str]]:
    """The scripts' command lines in the shell blocks, without comments and set-up."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", README, flags=re.S):
        for line in block.splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words[:1] == ["python"] and words[1].startswith("scripts/"):
                    found.append(words[1:])
    return found


def test_the_set_up_is_two_commands() -> None:
    setup = re.search(r"<!-- setup -->(.*?)<!-- /setup -->", README, flags=re.S)
    assert setup is not None
    lines = [line for line in setup[1].splitlines() if line and not line.startswith("```")]
    assert len(lines) == 2
    assert "pip install -e . && python scripts/train.py" in lines[0]
    assert "pip install -e '.[dev]' && pytest" in lines[1]


def test_every_setting_in_the_table_exists() -> None:
    rows = re.findall(r"^\| `([a-z][^`]*=[^`]*)` \|", README, flags=re.M)
    assert len(rows) >= 8
    for row in rows:
        for override in row.split():
            key, _, values = override.partition("=")
            for value in values.split("\\|"):
                compose("train", f"{key}={value}")


@pytest.fixture
def fake_encodec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_tiny_codec: Callable[..., EncodecCodec]
) -> None:
    """EnCodec's 24 kHz weights, in its own format but random, where a download would put them."""
    model = PRETRAINED["encodec_24khz"]
    torch.manual_seed(0)
    state = build_model(model.settings).state_dict()
    for name in state:
        if name.endswith("_codebook.embed"):
            state[name] = torch.randn_like(state[name])
        elif name.endswith("_codebook.inited"):
            state[name] = torch.ones_like(state[name])
    file = tmp_path / "hub" / "checkpoints" / model.file
    file.parent.mkdir(parents=True)
    torch.save(state, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    monkeypatch.setitem(pretrained.PRETRAINED, "encodec_24khz", model._replace(sha256=digest))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))


@pytest.fixture
def labelled_recordings(tmp_path: Path) -> Path:
    """Recordings named as those of the Free Spoken Digit Dataset, and with texts."""
    folder = tmp_path / "labelled"
    folder.mkdir()
    rng = np.random.default_rng(0)
    lines = ["file_name,text"]
    for i in range(24):
        name = f"{i % 8}_{'theo' if i % 2 else 'ann'}_{i}.wav"
        soundfile.write(folder / name, rng.normal(0, 0.1, 8000), 8000)
        lines.append(f"{name},There are no matches for those keywords and I am sorry {i % 8}.")
    (folder / "metadata.csv").write_text("\n".join(lines))
    return folder


def test_every_command_runs(
    workplace: Path,
    run_script: RunScript,
    recordings: Path,
    labelled_recordings: Path,
    fake_encodec: None,
) -> None:
    ran = commands()
    assert [words[0] for words in ran].count("scripts/train.py") >= 2
    assert {words[0] for words in ran} >= {"scripts/generate.py", "scripts/evaluate.py"}
    a_file = sorted(recordings.glob("*/*.wav"))[0]
    recipe = None  # that the commands from here on belong to
    for words in ran:
        script = Path(words[0]).stem
        recipe = next((w for w in words if w.startswith("experiment=")), recipe)
        folder = recordings if recipe is None else labelled_recordings
        arguments = [
            word.replace("=DIR", f"={folder}").replace("=FILE", f"={a_file}") for word in words[1:]
        ]
        if script == "train" and recipe in words:
            arguments += RECIPE
        elif script in ("train", "train_codec"):  # the same command at the size of a test
            kept = [a for a in arguments if not a.startswith(("model=", "context=", "trainer."))]
            arguments = [*SMALL[script], *kept]
            if script == "train" and not any(a.startswith("data=") for a in kept):
                arguments.append("data.num_melodies=12")
        elif script == "generate":  # prompts and durations that fit a context of one second
            short = {"duration": "2", "prompt_duration": "0.5", "num_samples": "1"}
            arguments = [
                f"{a.split('=')[0]}={short[a.split('=')[0]]}" if a.split("=")[0] in short else a
                for a in arguments
            ]
        result = run_script(script, *arguments)
        assert result.code == 0, (words, result.err)
