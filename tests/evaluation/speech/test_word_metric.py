from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from audiolm.audio import write_wav
from audiolm.evaluation.speech import word_metric
from audiolm.evaluation.speech.word_metric import WordMetric, load_word_metrics


class Echo:
    """A recogniser that understands a clip's first sample: that many words "a" are said."""

    def __init__(self, language_model: Path) -> None:
        self.language_model = language_model.read_text()

    def words(self, waveform: Tensor, sample_rate: int) -> list[str]:
        return ["a"] * round(float(waveform[0, 0]) * 10)


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_metric, "SpeechRecogniser", Echo)


def clip(words: int) -> Tensor:
    return torch.full((1, 16), words / 10)


def write_clips(folder: Path, names: list[str]) -> None:
    for name in names:
        write_wav(folder / name, clip(1), 16000)


def test_errors_a_word_of_the_clips_that_have_a_text() -> None:
    metric = WordMetric([["a", "a"], [], ["a", "b"]], [["a", "b"]])
    assert metric.num_words == 4
    assert metric.rate([clip(2), clip(9), clip(2)], 16000) == 1 / 4
    assert metric.rate([clip(0), clip(0), clip(0)], 16000) == 1
    with pytest.raises(ValueError, match="no clip has a text"):
        WordMetric([[], []], [["a"]])


def test_its_key_changes_with_what_the_rate_depends_on() -> None:
    said, collection = [["a", "b"]], [["a", "b"], ["b"]]
    key = WordMetric(said, collection).key
    assert WordMetric(said, collection).key == key
    assert WordMetric([["a"]], collection).key != key != WordMetric(said, said).key


def test_texts_of_kinds(tmp_path: Path) -> None:
    audio = tmp_path / "audio"
    write_clips(audio / "book", ["b.wav", "a.wav"])
    (audio / "book" / "metadata.csv").write_text("file_name,text\na.wav,A b.\nb.wav,C.\n")
    write_clips(audio / "prompts" / "digits", ["1.wav", "2.wav"])
    write_clips(audio / "music", ["m.wav"])
    (audio / "music" / "metadata.csv").write_text("file_name,key\nm.wav,3\n")
    (tmp_path / "all.txt").write_text("A b.\nD e f.\n")
    (tmp_path / "prompts.csv").write_text(
        'file_name,text\ndigits/2.flac,"Two, three"\nelsewhere.flac,Press star\n'
    )
    kinds = ["book", "prompts", "music"]

    metrics = load_word_metrics(audio, kinds, {})
    assert set(metrics) == {"book"}
    assert metrics["book"].said == [["a", "b"], ["c"]]
    assert " d" not in metrics["book"]._recogniser.language_model  # type: ignore[attr-defined]

    texts = {"book": tmp_path / "all.txt", "prompts": tmp_path / "prompts.csv"}
    metrics = load_word_metrics(audio, kinds, texts)
    assert metrics["book"].said == [["a", "b"], ["c"]]
    assert " d e" in metrics["book"]._recogniser.language_model  # type: ignore[attr-defined]
    assert metrics["prompts"].said == [[], ["two", "three"]]
    assert " press star" in metrics["prompts"]._recogniser.language_model  # type: ignore[attr-defined]


def test_tables_that_name_no_clip(tmp_path: Path) -> None:
    write_clips(tmp_path / "book", ["a.wav"])
    (tmp_path / "other.csv").write_text("file_name,text\nb.wav,Be.\n")
    (tmp_path / "wrong.csv").write_text("name,words\na.wav,Be.\n")
    with pytest.raises(ValueError, match="its texts are of none of its 1 clips"):
        load_word_metrics(tmp_path, ["book"], {"book": tmp_path / "other.csv"})
    with pytest.raises(ValueError, match="no columns file_name and text"):
        load_word_metrics(tmp_path, ["book"], {"book": tmp_path / "wrong.csv"})
    with pytest.raises(OSError):
        load_word_metrics(tmp_path, ["book"], {"book": tmp_path / "none.txt"})


def test_a_real_recogniser_takes_the_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pocketsphinx")
    monkeypatch.undo()
    metric = WordMetric([["press", "one"]], [["press", "one"], ["press", "two"]])
    assert metric.rate([torch.zeros(1, 8000)], 16000) == 1
