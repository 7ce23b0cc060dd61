"""Conditional models from the command line: trained, given conditions, and refused wrong ones."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import soundfile

from .conftest import RunScript

WORDS = ("oh", "no", "so")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings with all kinds of columns, and room for runs."""
    root = tmp_path_factory.mktemp("conditions")
    (root / "set").mkdir()
    rng = np.random.default_rng(0)
    lines = []
    for i in range(18):
        word, speaker = WORDS[i % 3], "ada" if i % 2 else "ben"
        tone = np.sin(2 * np.pi * (40 + 30 * (i % 3)) * np.arange(240 + 20 * i) / 800)
        sound = 0.3 * tone + 0.01 * rng.normal(size=len(tone))
        soundfile.write(root / "set" / f"{word}_{speaker}_{i}.wav", sound, 800)
        vector = json.dumps([i % 3, i % 2, 1])
        lines.append(
            json.dumps(
                {
                    "file_name": f"{word}_{speaker}_{i}.wav",
                    "text": f"{word.upper()}, {word}",
                    "speaker": speaker,
                    "label": word,
                    "embedding": vector,
                }
            )
        )
    (root / "set" / "metadata.jsonl").write_text("\n".join(lines))
    return root


@pytest.fixture
def train(workplace: Path, run_script: RunScript, local: list[str], workspace: Path) -> object:
    def train(name: str, *settings: str) -> str:
        """An override that names the checkpoint of a model, trained once for all tests here."""
        folder = workspace / name
        if not folder.exists():
            made = run_script(
                "train",
                *local,
                *data_of(workspace),
                *settings,
                f"hydra.run.dir={folder}",
            )
            assert made.code == 0, made.err
        return f"ckpt_path={folder}/checkpoints/last.ckpt"

    return train


def data_of(workspace: Path) -> list[str]:
    """Overrides for that folder, encoded once."""
    return [
        f"data.path={workspace / 'set'}",
        f"data.store={workspace / 'store'}",
        "prepare.num_checks=0",
        "callbacks.samples.num_samples=0",
    ]


LABELS = ("conditioning=label", "conditioning.labels=[label,speaker]")
ALL = ("conditioning=text", "conditioning.labels=[speaker]", "conditioning.vector=embedding")


def metrics(folder: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(folder, "sample_000.json").read_text())
    return found


def test_labels_are_given_by_name(train, run_script: RunScript) -> None:  # type: ignore[no-untyped-def]
    checkpoint = train("labels", *LABELS)
    given = ["conditioning.label=no", "conditioning.speaker=ada"]
    for name, more in (("a", given), ("b", given), ("c", ["conditioning.label=so"]), ("d", [])):
        made = run_script("generate", checkpoint, "num_samples=1", f"out={name}", *more)
        assert made.code == 0, made.err
    assert metrics("a")["conditioning"] == {"label": "no", "speaker": "ada"}
    sounds = [Path(name, "sample_000.wav").read_bytes() for name in "abcd"]
    assert sounds[0] == sounds[1] and len(set(sounds)) == 3
    guided = ["sampling.guidance=3.0", "num_samples=2", "best_of=3", "out=g"]
    made = run_script("generate", checkpoint, *given, *guided)
    assert made.code == 0 and "wrote 2 samples" in made.out, made.err
    about = metrics("g")
    assert about["best_of"] == 3 and isinstance(about["nats_per_code"], float)
    assert "longest_silence" in about and "longest_loop" in about and "ended" in about
    assert [json.loads(Path(f"g/sample_00{i}.json").read_text())["seed"] // 3 for i in (0, 1)] == [
        0,
        1,
    ]


def test_the_command_that_training_ends_with_samples_as_the_run_did(
    workplace: Path, run_script: RunScript, local: list[str], workspace: Path
) -> None:
    made = run_script(
        "train",
        *local,
        *data_of(workspace),
        *ALL,
        "callbacks.best_checkpoint=null",
        "sampling.guidance=2",
        "sampling.temperature=[0.5,0.6,0.7,0.8]",
        f"hydra.run.dir={workplace / 'with spaces'}",
    )
    assert made.code == 0 and "best      validation loss" in made.out, made.err
    assert not (workplace / "with spaces" / "checkpoints" / "best.ckpt").exists()
    (line,) = (line for line in made.out.splitlines() if line.startswith("next "))
    python, script, *words = shlex.split(line.removeprefix("next"))
    assert (python, script) == ("python", "scripts/generate.py")
    again = run_script("generate", *words, "num_samples=1", "out=next")
    assert again.code == 0, again.err
    about = metrics("next")
    assert about["conditioning"]["text"] in {f"{word.upper()}, {word}" for word in WORDS}
    assert about["conditioning"]["speaker"] in ("ada", "ben")
    assert about["sampling"]["temperature"] == [0.5, 0.6, 0.7, 0.8]
    assert about["sampling"]["guidance"] == 2 and about["sampling"]["top_k"] == 250


def test_text_label_and_vector_together(train, run_script: RunScript) -> None:  # type: ignore[no-untyped-def]
    checkpoint = train("all", *ALL)
    np.save("vector.npy", np.ones(3))
    for out, vector in (("a", "[1, 1, 1]"), ("b", "vector.npy"), ("c", "[2, 0, 1]")):
        made = run_script(
            "generate",
            checkpoint,
            "num_samples=1",
            f"out={out}",
            "conditioning.text=Oh?ö, (no)=5",
            "conditioning.speaker=ben",
            f"conditioning.embedding={vector}",
        )
        assert made.code == 0, made.err
        assert "skipped in the text, as no text in training had them: ?ö()=5" in made.out
    sounds = [Path(name, "sample_000.wav").read_bytes() for name in "abc"]
    assert sounds[0] == sounds[1] != sounds[2]


@pytest.mark.parametrize(
    ("model", "settings", "parts"),
    [
        ("labels", ["conditioning.label=yes"], ["label=yes", "choose no, oh, so"]),
        ("labels", ["conditioning.label=soo"], ["did you mean so?"]),
        ("labels", ["conditioning.speeker=ada"], ["speeker", "mean speaker?", "label, speaker"]),
        ("labels", ["conditioning.label="], ["conditioning.label is empty"]),
        ("labels", ["conditioning.label='tis"], ["label='tis is not a label of this model"]),
        ("labels", ['conditioning.label="so"'], ['label="so" is not a label', "mean so?"]),
        ("labels", ["conditioning.label=${so}"], ["label=${so} is not a label"]),
        ("all", ["conditioning.text="], ["conditioning.text is empty"]),
        ("all", ["conditioning.text=123"], ["text='123' holds no character of the training"]),
        ("all", ["conditioning.text=" + "oh " * 90], ["269 characters", "had 6; divide it"]),
        ("all", ["conditioning.embedding=[1,2]"], ["embedding has 2 numbers", "wants 3"]),
        (
            "all",
            ["conditioning.embedding=loud"],
            ["embedding='loud' is not a list of finite numbers"],
        ),
        ("all", ["conditioning.embedding=none.npy"], ["none.npy"]),
        ("undropped", ["conditioning.label=oh", "sampling.guidance=2"], ["guidance=2 needs"]),
        ("undropped", [], ["conditioning.label is not given", "conditioning.drop=0"]),
        ("plain", ["conditioning.label=oh"], ["label: ", "without conditions"]),
        ("plain", ["sampling.guidance=2"], ["guidance=2 is for a model", "this one was not"]),
        ("plain", ["best_of=0"], ["best_of=0 must be a whole number from 1"]),
        ("plain", ["best_of=2", "stream=true"], ["best_of=2 chooses among whole samples"]),
        ("plain", ["sampling.temperature=[1,2]"], ["holds 2 numbers, the model has 4 codebooks"]),
    ],
    ids=str,
)
def test_what_a_model_cannot_be_conditioned_on(  # type: ignore[no-untyped-def]
    model: str, settings: list[str], parts: list[str], train, run_script: RunScript
) -> None:
    kinds = {
        "labels": LABELS,
        "all": ALL,
        "undropped": ("conditioning=label", "conditioning.drop=0"),
        "plain": (),
    }
    refused = run_script("generate", train(model, *kinds[model]), *settings)
    assert refused.code == 2 and refused.err.count("error: ") == 1, refused.err
    assert "Traceback" not in refused.err
    for part in parts:
        assert part in refused.err


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (
            ["conditioning.labels=[label,mood]"],
            ["no clip has the condition mood in", "speaker, text"],
        ),
        (["conditioning.labels=[label,label]"], ["a column twice"]),
        (["conditioning.text=[text]"], ["must be a list of names", "one name each"]),
        (["sampling.guidance=3", "callbacks.samples.num_samples=1"], ["guidance=3 is for a model"]),
        (
            ["sampling.temperature=[1,2]", "callbacks.samples.num_samples=1"],
            ["holds 2 numbers, the model has 4 codebooks"],
        ),
        (["history_noise=0.7"], ["history_noise=0.7 must be a number from 0 to 0.5"]),
        (["conditioning=label", "conditioning.drop=1"], ["conditioning.drop=1 must be"]),
        (["conditioning=vector"], ["conditioning.vector is not set"]),
        (["conditioning=vector", "conditioning.vector=speaker"], ["speaker='", "not a list of"]),
        (["conditioning=text", "context=0.1"], ["as short as context=0.1"]),
        (["conditioning=lable"], ["conditioning=lable is unknown, did you mean label?"]),
    ],
    ids=str,
)
def test_what_a_training_cannot_be_conditioned_on(
    settings: list[str],
    parts: list[str],
    workplace: Path,
    run_script: RunScript,
    local: list[str],
    workspace: Path,
) -> None:
    refused = run_script("train", *local, *data_of(workspace), *settings, "hydra.run.dir=run")
    assert refused.code == 2 and refused.err.count("error: ") == 1, refused.err
    assert "Traceback" not in refused.err
    for part in parts:
        assert part in refused.err


def test_columns_may_have_any_name(  # type: ignore[no-untyped-def]
    workplace: Path, run_script: RunScript, local: list[str], workspace: Path
) -> None:
    folder = workplace / "named"
    folder.mkdir()
    rows = ["file_name,speaker id,a.b"]
    for i in range(8):
        soundfile.write(folder / f"{i}.wav", np.random.default_rng(i).normal(0, 0.1, 400), 800)
        rows.append(f"{i}.wav,s {i % 2},x=${{y}}")
    (folder / "metadata.csv").write_text("\n".join(rows))
    settings = ["conditioning.labels=['speaker id','a.b']", "prepare.num_checks=0"]
    made = run_script("train", *local, f"data.path={folder}", *settings, "hydra.run.dir=run")
    assert made.code == 0, made.err
    given = ["conditioning.speaker id=s 1", "conditioning.a.b=x=${y}", "num_samples=1", "out=o"]
    made = run_script("generate", "ckpt_path=run/checkpoints/last.ckpt", *given)
    assert made.code == 0, made.err
    assert metrics("o")["conditioning"] == {"speaker id": "s 1", "a.b": "x=${y}"}


def test_evaluation_wants_the_models_columns(train, run_script: RunScript) -> None:  # type: ignore[no-untyped-def]
    checkpoint = train("labels", *LABELS)
    folder = Path("unlabelled")
    folder.mkdir()
    for i in range(12):
        soundfile.write(folder / f"{i}.wav", np.random.default_rng(i).normal(0, 0.1, 400), 800)
    data = ["data=folder", f"data.path={folder}", "data.valid_fraction=0.5", "num_samples=0"]
    refused = run_script("evaluate", checkpoint, *data)
    assert refused.code == 2 and "no clip has the condition label in" in refused.err


def test_a_conditional_run_goes_on(
    workplace: Path, run_script: RunScript, local: list[str], workspace: Path
) -> None:
    """Its words are read anew from the store; others than the run's are refused."""
    settings = [*local, *data_of(workspace), *ALL]
    assert run_script("train", *settings, "hydra.run.dir=whole").code == 0
    assert run_script("train", *settings, "hydra.run.dir=half", "trainer.max_steps=2").code == 0
    more = ["hydra.run.dir=half", "ckpt_path=last"]
    resumed = run_script("train", *settings, *more, "trainer.max_steps=8")
    assert resumed.code == 0, resumed.err
    more.append("trainer.max_steps=9")
    other = run_script("train", *settings, *more, "conditioning.drop=0.5")
    assert other.code == 2 and "conditioning.drop=0.1, this run has 0.5" in other.err
    other = run_script("train", *settings, *more, "conditioning.labels=[label]")
    assert other.code == 2 and "conditioning.labels=['speaker']" in other.err
