"""The model card: hubs read it, its figures are those of the evaluation, and its code runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from audiolm.cli.compose import compose
from audiolm.cli.overrides import quote_path, take_conditions
from audiolm.export.export import export_model
from audiolm.export.settings import Export
from audiolm.generation import Sampling
from audiolm.run_folder import find_checkpoint

from .conftest import EVALUATION

EXPORT = Export(
    num_samples=2,
    duration=0.3,
    conditions={"said": "ab"},
    license="cc-by-4.0",
    sampling=Sampling(temperature=[0.5, 0.6, 0.7, 0.8], top_k=None, guidance=2.0),
)


@pytest.fixture
def folder(run: Path, tmp_path: Path) -> Path:
    export_model(find_checkpoint(run), tmp_path / "out", EXPORT)
    return tmp_path / "out"


def metadata(card: str) -> dict[str, object]:
    found = yaml.safe_load(card.split("---\n")[1])
    assert isinstance(found, dict)
    return found


def test_hubs_read_its_metadata(folder: Path) -> None:
    text = (folder / "README.md").read_text("utf-8")
    found = metadata(text)
    assert found["license"] == "cc-by-4.0" and found["library_name"] == "audiolm"
    assert found["pipeline_tag"] == "text-to-audio" and "base_model" not in found
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(text).data
    assert data.license == "cc-by-4.0" and data.library_name == "audiolm"
    values = {r.metric_type: r.metric_value for r in data.eval_results}
    assert values == {"nats_per_code": 2.5, "bits_per_second": 123.0}


def test_its_figures_are_those_of_the_evaluation(folder: Path) -> None:
    text = (folder / "README.md").read_text("utf-8")
    written = json.loads((folder / "evaluation.json").read_text())
    assert written["nats_per_code"] == EVALUATION["nats_per_code"]
    for words, value in (
        ("nats per code, less is better", "2.5"),
        ("nats per code, unigram", "3"),
        ("nats per code, uniform", "3.46"),
        ("Fréchet distance, codec latents, of generated clips", "4.5"),
    ):
        assert f"| {words} | {value} |" in text
    assert "40 clips, 0.4 h; 3 more" in text
    assert "bo\\|b" in text  # a name may hold what tables are made of


def test_its_commands_and_its_python_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (folder / "README.md").read_text("utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)\n```", text, flags=re.S)
    assert [language for language, _ in blocks] == ["sh", "python", "sh"]
    for _, command in (block for block in blocks if block[0] == "sh"):
        words = shlex.split(command)
        script = Path(words[1]).stem
        conditions, others = take_conditions(words[2:]) if script == "generate" else ({}, words[2:])
        cfg = compose(script, [quote_path(word) for word in others])
        if script == "generate":
            assert cfg.ckpt_path == "DIR" and conditions["said"] == "ab"
            assert list(cfg.sampling.temperature) == [0.5, 0.6, 0.7, 0.8]
            assert cfg.sampling.top_k is None and cfg.sampling.guidance == 2.0
    monkeypatch.chdir(tmp_path)
    exec(blocks[1][1].replace('"DIR"', '"out"'), {})
    # What the card says to run is what the first of its samples was made by.
    assert Path("sample.wav").read_bytes() == (folder / "samples/sample_000.wav").read_bytes()


def test_a_model_on_the_hub_is_named_by_it(run: Path, tmp_path: Path) -> None:
    export = Export(num_samples=1, duration=0.3, conditions={"said": "a"}, repository="ann/voice")
    export_model(find_checkpoint(run), tmp_path / "out", export)
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "# voice\n" in text and "DIR" not in text
    assert "ckpt_path=hf://ann/voice " in text and 'audiolm.load("hf://ann/voice")' in text
    assert 'src="https://huggingface.co/ann/voice/resolve/main/samples/sample_000.wav"' in text
    assert metadata(text)["license"] == "unknown" and "ask before you do" in text
