from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from audiolm.audio import read_audio, write_wav
from audiolm.codec import EncodecCodec
from audiolm.datasets.checks.check import check_clips
from audiolm.datasets.checks.rules import Rule, Rules
from audiolm.datasets.clip import Clip
from audiolm.evaluation.speech import scores
from audiolm.evaluation.speech.recogniser import (
    SpeechRecogniser,
    spoken_words,
    word_error_rate,
    word_errors,
)
from audiolm.evaluation.speech.scores import Rates, Row
from audiolm.evaluation.speech.sentences import TRAINING, VALIDATION, find_sentences, find_stores
from audiolm.evaluation.speech.table import table as markdown
from audiolm.model.checkpoint import load_checkpoint
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.tokens import prepare_store

from ...untrained import save_untrained
from ..conftest import RunScript

SPEECH = Path(__file__).resolve().parents[4] / "shared" / "audio" / "speech"
TOOL = "tools/evaluate_speech"
needs_recogniser = pytest.mark.skipif(
    find_spec("pocketsphinx") is None or not SPEECH.is_dir(),
    reason="no pocketsphinx, or no real speech beside the checkout",
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "I'm sorry, that's not valid.  Please try again!",
            "i'm sorry that's not valid please try again",
        ),
        ("press * or # now", "press star or pound now"),
        ("folder 5 of 17, 20 and 42", "folder five of seventeen twenty and forty two"),
        ("dial 500, 1234 or 07", "dial five zero zero one two three four or zero seven"),
        ("3D audio", "three d audio"),
        ("an open source PBX, at 3 P.M.", "an open source p b x at three p m"),
        ("p. b. x.", "p b x"),  # as pocketsphinx writes letters
        ('... a polite "don\'t call" menu', "a polite don't call menu"),
        ("Call-Forward: o'clock, the parties' names", "call forward o'clock the parties names"),
        ("don\u2019t", "don't"),
        ("After the tone. (simple tone sound plays)", "after the tone"),
        ('IAX (note: does not say "2")', "i a x"),
        ("[ascending tones]", ""),
        ("<beep ascending>", ""),
        (" -- ' ... ", ""),
    ],
)
def test_words_as_they_are_spoken(text: str, words: str) -> None:
    assert " ".join(spoken_words(text)) == words
    assert spoken_words(words) == words.split()  # what was recognised is left as it is


@pytest.mark.parametrize(
    ("wanted", "recognised", "errors"),
    [
        ("", "", 0),
        ("a b c", "a b c", 0),
        ("a b c", "", 3),
        ("", "a b", 2),
        ("a b c", "a x c", 1),
        ("a b c", "a c", 1),
        ("a b c", "a b b c", 1),
        ("a b c d", "b c d a", 2),
        ("please enter your number", "these enter number now", 3),
        ("one two", "three four five six", 4),
    ],
)
def test_word_errors_by_hand(wanted: str, recognised: str, errors: int) -> None:
    assert word_errors(wanted.split(), recognised.split()) == errors
    assert word_errors(recognised.split(), wanted.split()) == errors


def test_word_errors_agree_with_torchmetrics() -> None:
    text = pytest.importorskip("torchmetrics.text")
    generator = torch.Generator().manual_seed(0)

    def sentence(shortest: int) -> list[str]:
        count = int(torch.randint(shortest, 9, (), generator=generator))
        return ["abcd"[i] for i in torch.randint(0, 4, (count,), generator=generator)]

    pairs = [(sentence(1), sentence(0)) for _ in range(50)]
    wanted, recognised = ([" ".join(one) for one in side] for side in zip(*pairs, strict=True))
    rate = float(text.WordErrorRate()(recognised, wanted))
    assert word_error_rate(pairs) == pytest.approx(rate, abs=1e-6)


def test_the_rate_is_of_all_words_together() -> None:
    pairs = [(["a"], ["x"]), (["a", "b", "c"], ["a", "b", "c"])]
    assert word_error_rate(pairs) == 1 / 4  # and not the mean of 1 and 0
    with pytest.raises(ValueError, match="no words"):
        word_error_rate([([], ["a"])])


def test_without_the_recogniser_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)  # its import then fails
    with pytest.raises(ValueError, match="pip install pocketsphinx"):
        SpeechRecogniser()


@needs_recogniser
def test_a_recording_is_understood_alike_at_any_gain_and_after_any_other() -> None:
    clip, rate = read_audio(SPEECH / "auth-thankyou.flac", channels=1)
    other, _ = read_audio(SPEECH / "all-circuits-busy-now.flac", channels=1)
    recogniser = SpeechRecogniser()
    assert recogniser.words(clip, rate) == ["thank", "you"]
    assert recogniser.words(other, rate) == ["all", "circuits", "are", "busy", "now"]
    assert recogniser.words(0.01 * clip, rate) == ["thank", "you"]
    for nothing in (torch.zeros(1, rate), torch.zeros(1, 5)):
        assert word_errors([], recogniser.words(nothing, rate)) <= 1


ANYTHING = Rules(1.0, silent=Rule("off", -70.0), too_short=Rule("off", 0.1))
TEXTS = {
    "a": "Please hold the line.",
    "b": "please hold the line",  # the same words
    "c": "Goodbye.",  # too short
    "d": "[ascending tones]",
    "e": "You have one new message.",
    "f": "You have one new message!",  # of the validation part, but said in the training part too
    "g": "Nobody can take your call.",
    "h": "This recording is longer than the window of the model.",
    "i": "",
}
SPLITS = {"f": "valid", "g": "valid"}


@pytest.fixture
def codec(make_tiny_codec: Any) -> EncodecCodec:
    made: EncodecCodec = make_tiny_codec(sample_rate=600)  # 50 frames a second
    return made


@pytest.fixture
def checkpoint(codec: EncodecCodec, tmp_path: Path) -> Path:
    """Of an untrained model conditioned on texts, with the store that it names as its own."""
    clips = []
    for i, (name, text) in enumerate(TEXTS.items()):
        path = tmp_path / "audio" / f"{name}.wav"
        waveform = torch.rand(1, 2400 if name == "h" else 600, generator=seeded(i)) - 0.5
        write_wav(path, waveform, 600)
        columns = {"speaker": "ann", "mood": "calm"}
        split = SPLITS.get(name, "train")
        clips.append(Clip(name, path, split=split, text=text or None, columns=columns))
    report = check_clips(clips, tmp_path / "checked", ANYTHING, num_workers=0, show_progress=False)
    prepare_store(report, codec, tmp_path / "store", show_progress=False)
    codec.save(tmp_path / "codec")
    vocabulary = ConditionVocabulary(
        {"speaker": ["ann", "ben"]}, text="text", alphabet=" abcdefghijklmnopqrstuvwxyz.!",
        max_text_len=60, text_layers=1,
    )  # fmt: skip
    path = tmp_path / "checkpoints" / "last.ckpt"
    save_untrained(
        path,
        codec.identity(),
        vocabulary,
        60,
        data={"stores": {str(tmp_path / "store"): 1.0}, "valid_fraction": 0.1},
    )
    return path


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_sentences_are_distinguished_by_the_split(checkpoint: Path) -> None:
    stores, fraction = find_stores(checkpoint, None)
    sentences = find_sentences(stores, load_checkpoint(checkpoint), fraction)
    assert {one.id for one in sentences[TRAINING]} in ({"a", "e"}, {"b", "e"})
    (validation,) = sentences[VALIDATION]
    assert validation.id == "g" and validation.words == ["nobody", "can", "take", "your", "call"]
    assert validation.conditions == {"text": TEXTS["g"], "speaker": "ann"}  # of no other column


class Deaf:
    """Understands the same whatever is said."""

    def __init__(self, language_model: Path | None = None) -> None:
        assert language_model is None or "hold the" in language_model.read_text()

    def words(self, waveform: Tensor, sample_rate: int) -> list[str]:
        assert waveform.shape[0] == 1 and sample_rate == 600
        return ["please", "call"]


def test_command_line(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, run_script: RunScript
) -> None:
    monkeypatch.setattr(scores, "SpeechRecogniser", Deaf)
    out = checkpoint.parent / "out"
    done = run_script(TOOL, str(checkpoint), "--guidance", "1", "2.5", "--out", str(out))
    assert done.code == 0
    result = json.loads((out / "evaluation.json").read_text())
    assert list(result["rows"]) == ["real", "reconstructed", "guidance 1", "guidance 2.5"]
    for row in result["rows"].values():
        # "please hold the line" lacks 3 words, "you have one new message" is 5 wrong ones,
        # of "nobody can take your call" one is understood in its place, or with 3 missing.
        assert list(row["rates"]) == ["general", "collection"]
        for rates in row["rates"].values():
            assert rates["training"] == (3 + 5) / 9 and rates["validation"] == 4 / 5
            assert len(rates["understood"]) == 3
    assert result["rows"]["real"]["ended"] is None
    assert 0 <= result["rows"]["guidance 1"]["ended"] <= 3
    assert result["sampling"]["guidance 2.5"]["guidance"] == 2.5
    assert "| collection | guidance 2.5 | 88.9% | 1.00 | 80.0% | 1.00 |" in done.out
    assert len(list(out.glob("*/*.wav"))) == 4 * 3


def test_what_cannot_be_evaluated_is_answered_in_one_line(
    checkpoint: Path, tmp_path: Path, run_script: RunScript
) -> None:
    silent = tmp_path / "silent.ckpt"
    content = torch.load(checkpoint, weights_only=True)
    content["hyper_parameters"]["data"] = None
    torch.save(content, silent)
    for wrong in (
        [str(tmp_path / "none.ckpt")],
        [str(silent)],
        [str(checkpoint), "--store", str(tmp_path)],
        [str(checkpoint), "--training", "0"],
        [str(checkpoint), "--guidance", "-1"],
    ):
        done = run_script(TOOL, *wrong)
        assert done.code == 2 and len(done.err.strip().splitlines()) == 1


def test_a_table_without_validation_sentences() -> None:
    rates = {"general": Rates(0.5, None, {})}
    rows = {name: Row(rates, 1.0) for name in ("real", "reconstructed")}
    assert "| general | real | 50.0% | 1.00 | - | - | 1 |  |" in markdown(
        rows, {TRAINING: [], VALIDATION: []}
    )
