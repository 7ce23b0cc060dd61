"""The adapters of published metrics, with networks of their kinds that are tiny and random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.evaluation import published
from audiolm.evaluation.published import MetricClips, check_published, measure_published


def noise(seconds: float, seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return 0.1 * torch.randn(1, round(8000 * seconds), generator=rng)


KINDS = {
    kind: MetricClips([noise(3.3, seed), noise(2.2, seed + 1)], 8000, ["seven", "Theo, seven!"])
    for seed, kind in ((0, "generated"), (2, "validation"))
}


@pytest.fixture(scope="module")
def clap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLAP of embeddings of 4 numbers that knows two words."""
    pytest.importorskip("transformers")
    import tokenizers
    import transformers as hf

    folder: Path = tmp_path_factory.mktemp("clap")
    words = {"<unk>": 0, "<pad>": 1, "seven": 2, "theo": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    small: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = hf.ClapConfig(
        text_config={**small, "vocab_size": 8, "intermediate_size": 16},
        audio_config={
            "hidden_size": 64,
            "patch_embeds_hidden_size": 8,
            "depths": [1] * 4,
            "num_attention_heads": [1] * 4,
            "projection_dim": 4,
        },
        projection_dim=4,
    )
    torch.manual_seed(0)
    hf.ClapModel(config).save_pretrained(folder)
    fast = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>"
    )
    features = hf.ClapFeatureExtractor(truncation="rand_trunc", padding="repeatpad")
    hf.ClapProcessor(feature_extractor=features, tokenizer=fast).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def recogniser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    import transformers as hf

    folder: Path = tmp_path_factory.mktemp("recogniser")
    letters = {"<pad>": 0, "<unk>": 1, "|": 2, "a": 3, "b": 4}
    (folder / "vocab.json").write_text(json.dumps(letters))
    tokenizer = hf.Wav2Vec2CTCTokenizer(folder / "vocab.json", pad_token="<pad>", unk_token="<unk>")
    hf.Wav2Vec2Processor(hf.Wav2Vec2FeatureExtractor(), tokenizer).save_pretrained(folder)
    config = hf.Wav2Vec2Config(
        vocab_size=5,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8, 8),
        conv_stride=(5, 4),
        conv_kernel=(10, 8),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    hf.Wav2Vec2ForCTC(config).save_pretrained(folder)
    return folder


def test_clap_embeds_sound_and_words(clap: Path) -> None:
    found = measure_published(["fad", "clap"], KINDS, str(clap), "")
    assert found["fad"].keys() == {"generated"} and found["fad"]["generated"] > 0
    assert all(-1 <= found["clap"][kind] <= 1 for kind in KINDS)
    same = measure_published(["fad"], {**KINDS, "generated": KINDS["validation"]}, str(clap), "")
    assert same["fad"]["generated"] == pytest.approx(0, abs=1e-6)
    short = {kind: MetricClips([noise(3, 0)], 8000, ["seven"]) for kind in KINDS}
    with pytest.raises(ValueError, match="3 frames are too few"):
        measure_published(["fad"], short, str(clap), "")


def test_a_recogniser_is_heard(recogniser: Path) -> None:
    found = measure_published(["wer"], KINDS, "", str(recogniser))
    assert found["wer"]["generated"] > 0.5  # it knows no word of it


def test_words_are_compared_without_case_and_punctuation() -> None:
    assert published._plain(" Theo,  SEVEN! it's") == "theo seven it's"


def test_weights_that_cannot_be_had(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name, setting in (("fad", "clap"), ("wer", "recogniser")):
        with pytest.raises(OSError, match=f"published={name}: its weights .*_models.{setting}=DIR"):
            measure_published([name], KINDS, str(tmp_path), str(tmp_path))


def test_what_cannot_be_measured_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="published=pesq is unknown; choose of fad, clap, dnsmos"):
        check_published(["pesq"], True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs transformers; run pip install -e '.\[metrics\]'"):
        check_published(["fad"], True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(ValueError, match="published=wer compares with a clip's conditions"):
        check_published(["fad", "wer"], False)
    check_published([], False)
    check_published(["fad", "clap", "dnsmos", "wer"], True)
