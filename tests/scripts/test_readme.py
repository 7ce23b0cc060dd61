"""README is short and true: its commands, and those of the pages in docs/, run in their order."""

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
from .test_reference import reference_table

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

SCRIPTS = ("train", "generate", "evaluate", "prepare", "train_codec", "report", "export")

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


PAGES = [  # those of a line run in one folder, after each other
    [
        "README.md",
        "docs/training.md",
        "docs/generation.md",
        "docs/evaluation.md",
        "docs/finetuning.md",
    ],
    ["docs/data.md", "docs/codec.md", "docs/conditioning.md"],
]


def commands(page: str) -> list[list[str]]:
    """The scripts' command lines in the shell blocks, without comments and set-up."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text("utf-8"), flags=re.S):
        for line in block.splitlines():
            for part in line.split("&&"):
                words = shlex.split(part, comments=True)
                if words[:1] == ["python"] and words[1].startswith("scripts/"):
                    found.append(words[1:])
    return found


def test_no_page_is_forgotten() -> None:
    listed = [page for pages in PAGES for page in pages]
    listed.append("docs/app.md")  # its commands serve until they are stopped: see test_app.py
    for page in (ROOT / "docs").glob("*.md"):
        name = page.relative_to(ROOT).as_posix()
        assert name in listed or not commands(name)


def test_the_set_up_is_two_commands() -> None:
    setup = re.search(r"<!-- setup -->(.*?)<!-- /setup -->", README, flags=re.S)
    assert setup is not None
    lines = [line for line in setup[1].splitlines() if line and not line.startswith("```")]
    assert len(lines) == 2
    assert "pip install -e . && python scripts/train.py" in lines[0]
    assert "pip install -e '.[dev]' && pytest" in lines[1]


def test_it_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 120] == []


def test_no_sentence_is_long() -> None:
    prose = re.sub(
        r"```.*?```|<!--.*?-->|^\|.*?$|^#.*?$|!\[.*?\)", "\n\n", README, flags=re.S | re.M
    )
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    blocks = re.split(r"\n\s*\n|\n- ", prose)
    sentences = [s for block in blocks for s in re.split(r"(?<=[.:?!])\s", block)]
    assert len(sentences) > 40
    assert [s for s in sentences if len(s.split()) > 30] == []


def test_the_demo_scores_are_those_of_the_reference_table() -> None:
    reference = {row.name: row.reference for row in reference_table()}
    (loss,) = re.findall(r"^best +validation loss ([\d.]+)", README, flags=re.M)
    assert float(loss) == round(reference["validation/nats_per_code"], 3)
    for score in ("legal notes", "legal transitions"):
        samples, ceiling = re.findall(rf"^  {score} +([\d.]+) +([\d.]+)", README, flags=re.M)[0]
        name = score.replace(" ", "_")
        assert float(samples) == round(reference[f"samples/{name}"], 2)
        assert float(ceiling) == reference[f"ceiling/{name}"]
    for what, seconds in re.findall(r"(set and codes|training|samples and scores) (\d+) s", README):
        assert float(seconds) == reference[f"seconds/{what}"]


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


@pytest.mark.parametrize("pages", PAGES, ids=lambda pages: pages[0])
def test_every_command_runs(
    pages: list[str],
    workplace: Path,
    run_script: RunScript,
    recordings: Path,
    labelled_recordings: Path,
    fake_encodec: None,
) -> None:
    known = commands("README.md") if "README.md" not in pages else []
    ran = []
    for words in [words for page in pages for words in commands(page)]:
        if words not in known:
            known.append(words)
            ran.append(words)
    a_file = sorted(recordings.glob("*/*.wav"))[0]
    recipe = None  # that the commands from here on belong to
    for words in ran:
        script = Path(words[0]).stem
        recipe = next((w for w in words if w.startswith("experiment=")), recipe)
        labelled = recipe is not None or any(w.startswith("data.pattern=") for w in words)
        folder = labelled_recordings if labelled else recordings
        arguments = [
            word.replace("=DIR", f"={folder}").replace("=FILE", f"={a_file}") for word in words[1:]
        ]
        if script == "train" and recipe in words:
            arguments += RECIPE
        elif script in ("train", "train_codec"):  # the same command at the size of a test
            kept = [a for a in arguments if not a.startswith(("model=", "context=", "trainer."))]
            flags = [a for a in kept if a.startswith("-")]  # all overrides stand together
            arguments = [*flags, *SMALL[script], *(a for a in kept if a not in flags)]
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


def test_the_commands_are_those_of_all_scripts() -> None:
    scripts = [words[0] for pages in PAGES for page in pages for words in commands(page)]
    assert set(scripts) >= {f"scripts/{name}.py" for name in SCRIPTS}
    assert [words[0] for words in commands("README.md")].count("scripts/train.py") >= 2
