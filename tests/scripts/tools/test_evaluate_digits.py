from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.audio import write_wav
from audiolm.evaluation import conditioned
from audiolm.evaluation.digits import classifier, scores
from audiolm.evaluation.digits.scores import DigitEvaluation, DigitScores, Quartiles
from audiolm.evaluation.digits.table import table as markdown
from audiolm.generation import Sampling
from audiolm.model.checkpoint import build_model
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.synthesis import job

from ...untrained import save_untrained
from ..conftest import RunScript

TOOL = "tools/evaluate_digits"
SPEAKERS = ["ann", "ben", "eve"]


def test_speakers_are_taken_in_turn() -> None:
    conditions = scores.speakers_in_turn(SPEAKERS, 4)
    assert len(conditions) == 40
    assert [one["label"] for one in conditions[:5]] == ["0", "0", "0", "0", "1"]
    assert [one["speaker"] for one in conditions[:5]] == ["ann", "ben", "eve", "ann", "ann"]


def test_confusion_and_accuracy_by_hand() -> None:
    counts = scores.confusion([0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 0, 0], 3)
    assert counts == [[1, 1, 0], [0, 1, 0], [2, 0, 1]]
    assert scores.accuracy(counts) == 3 / 6


def test_durations_in_all_and_by_digit() -> None:
    conditions = scores.speakers_in_turn(SPEAKERS, 3)
    seconds = [float(one["label"]) + i % 3 for i, one in enumerate(conditions)]  # d, d + 1, d + 2
    whole, by_digit = scores.durations(conditions, seconds)
    assert by_digit[4] == Quartiles(4.5, 5.0, 5.5)
    assert whole.median == 5.5 and len(by_digit) == 10
    assert scores.quartiles([3.0]) == Quartiles(3.0, 3.0, 3.0)


def test_the_table_holds_samples_against_reconstructions() -> None:
    def row(right: int, median: float, ended: int | None = None) -> DigitEvaluation:
        digits = [[right if i == j else 0 for j in range(10)] for i in range(10)]
        digits[1][9] = 10 - right
        found = DigitScores(right / 10, 0.9, digits, [[9, 1], [1, 9]])
        return DigitEvaluation(
            found, Quartiles(0.3, median, 0.5), [Quartiles(0, median, 1)] * 10, ended
        )

    rows = {"real": row(10, 0.40), "reconstructed": row(8, 0.40), "guidance 2": row(6, 0.44, 97)}
    table = markdown(rows, ["ann", "ben"])
    assert "| real | 100.0% | 90.0% | 125.0% | 100.0% | 0.40 (0.30 to 0.50) | 100.0% |  |" in table
    assert (
        "| guidance 2 | 60.0% | 90.0% | 75.0% | 100.0% | 0.44 (0.30 to 0.50) | 110.0% | 97" in table
    )
    assert "- guidance 2: 1 as 9 (4), ann as ben (1), ben as ann (1)" in table


def tone(digit: int, speaker: int, take: int) -> torch.Tensor:
    time = torch.arange(1600 + 80 * take) / 8000
    return 0.5 * torch.sin(2 * torch.pi * (300 + 250 * digit + 60 * speaker) * time)[None]


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tones named as the digits are; the classifiers are trained on them for one epoch."""
    for digit in range(10):
        for speaker, name in enumerate(SPEAKERS):
            for take in (0, 10):
                path = tmp_path / "digits" / f"{digit}_{name}_{take}.wav"
                write_wav(path, tone(digit, speaker, take), 8000)
    quick = partial(classifier.train_classifier, epochs=1)
    monkeypatch.setattr(classifier, "train_classifier", quick)
    monkeypatch.setattr(scores, "train_classifier", quick)
    return tmp_path / "digits"


@pytest.fixture
def checkpoint(make_tiny_codec: Any, tmp_path: Path) -> Path:
    """Of an untrained model conditioned on the digit and the speaker."""
    codec = make_tiny_codec(sample_rate=600)  # 50 frames a second
    codec.save(tmp_path / "codec")
    vocabulary = ConditionVocabulary({"label": list("0123456789"), "speaker": SPEAKERS})
    path = tmp_path / "checkpoints" / "last.ckpt"
    save_untrained(path, codec.identity(), vocabulary, 20)
    return path


def test_an_end_behind_the_first_window_is_one(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, codec = conditioned.load_conditioned(checkpoint, ["label"])
    end = codec.codebook_size

    def one_that_ends(
        model: Any, pattern: Any, frames: int, context: int, seeds: Any, *_: Any, **__: Any
    ) -> Any:
        codes = torch.zeros(len(seeds), codec.num_codebooks, frames, dtype=torch.long)
        codes[0, :, context + 3 :] = end  # the first sample takes more than a window, and ends
        yield codes

    monkeypatch.setattr(job, "stream", one_that_ends)
    conditions = [{"label": "3", "speaker": "ann"}] * 2
    samples = conditioned.generate_samples(trained, codec, conditions, Sampling())
    assert samples[0].ended and samples[0].codes.shape[1] == trained.context_frames + 3
    assert not samples[1].ended


def test_command_line(
    checkpoint: Path, digits: Path, tmp_path: Path, run_script: RunScript
) -> None:
    command = [str(checkpoint), str(digits), "--cache", str(tmp_path / "cache")]
    done = run_script(TOOL, *command, "--samples", "2", "--guidance", "1", "2")
    assert done.code == 0 and "| guidance 2 |" in done.out
    out = checkpoint.parent / "digits_evaluation"
    result = json.loads((out / "evaluation.json").read_text())
    assert list(result["rows"]) == ["real", "reconstructed", "guidance 1", "guidance 2"]
    assert result["speakers"] == SPEAKERS
    real, sampled = result["rows"]["real"], result["rows"]["guidance 1"]
    assert [sum(row) for row in real["scores"]["digits"]] == [3] * 10  # validation takes alone
    assert [sum(row) for row in sampled["scores"]["digits"]] == [2] * 10
    assert real["duration"] == [0.2, 0.25, 0.3]  # of all takes, 0.2 s and 0.3 s long
    assert real["ended"] is None and 0 <= sampled["ended"] <= 20
    assert len(list((out / "guidance_1").glob("*.wav"))) == 20
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2  # trained once

    for wrong in (
        [str(tmp_path / "none.ckpt"), str(digits)],
        [str(checkpoint), str(tmp_path / "codec")],
        [*command, "--samples", "0"],
        [*command, "--temperature", "0"],
    ):
        done = run_script(TOOL, *wrong)
        assert done.code == 2 and len(done.err.strip().splitlines()) == 1


def test_a_model_of_other_conditions_is_refused(
    checkpoint: Path, digits: Path, run_script: RunScript
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    words = ConditionVocabulary({"genre": ["jazz"]})
    content["hyper_parameters"]["conditioning"] = words.settings()
    settings = content["hyper_parameters"]
    model, _ = build_model(settings["model"], "delay", settings["codec"], 20, words)
    content["state_dict"] = {f"model.{name}": w for name, w in model.state_dict().items()}
    torch.save(content, checkpoint)
    done = run_script(TOOL, str(checkpoint), str(digits))
    assert "is conditioned on genre, but label, speaker is needed" in done.err
