"""A model's folder: what was written is read, to the bit; anything else is refused in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from audiolm.files import new_folder, sha256_of
from audiolm.model.checkpoint import build_model, load_checkpoint, weights_to_use
from audiolm.model.condition_vocabulary import ConditionVocabulary
from audiolm.model.folder import read_config, write_model_folder
from audiolm.run_folder import find_checkpoint
from tests.model.test_checkpoint_kinds import CODEC, MODEL, STRANGE

SETTINGS: dict[str, Any] = {
    "model": {**MODEL, "end_token": True},
    "pattern": "delay",
    "context_frames": 6,
    "codec": CODEC,
    "conditioning": {"labels": {"label": ["a", "b"]}, "text": None},
    "origin": {"license": "cc-by-nc-4.0", "base_model": "someone/something"},
    "optim": {"lr": 1.0},  # of the training, and left out
}


def write(folder: Path, **more: Any) -> dict[str, torch.Tensor]:
    """A folder of random weights, which are returned."""
    torch.manual_seed(0)
    vocabulary = ConditionVocabulary.from_settings(SETTINGS["conditioning"])
    model, _ = build_model(SETTINGS["model"], "delay", CODEC, 6, vocabulary)
    weights = model.state_dict()
    write_model_folder(folder, SETTINGS, weights, step=12, **more)
    return weights


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    weights = write(tmp_path / "m", sampling={"top_k": 3})
    for named in (tmp_path / "m", tmp_path / "m" / "config.json"):
        trained = load_checkpoint(find_checkpoint(named))
        assert trained.step == 12 and trained.context_frames == 6
        assert trained.vocabulary is not None and trained.vocabulary.labels == {"label": ["a", "b"]}
        read = trained.model.state_dict()
        assert read.keys() == weights.keys()
        assert all(torch.equal(read[name], weight) for name, weight in weights.items())
    config = read_config(tmp_path / "m")
    assert config["license"] == "cc-by-nc-4.0" and config["base_model"] == "someone/something"
    assert config["sampling"] == {"top_k": 3} and "optim" not in config


def test_the_same_model_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_the_size_is_the_weights_rounded(tmp_path: Path, dtype: str) -> None:
    weights = write(tmp_path / "m", dtype=dtype)
    stored = load_file(tmp_path / "m" / "model.safetensors")
    read = load_checkpoint(find_checkpoint(tmp_path / "m")).model.state_dict()
    for name, weight in weights.items():
        assert str(stored[name].dtype) == f"torch.{dtype}" and read[name].dtype == torch.float32
        assert torch.equal(read[name], weight.to(stored[name].dtype).float())
    assert any(not torch.equal(read[name], weight) for name, weight in weights.items())


def test_a_weight_that_the_dtype_cannot_hold_is_refused(tmp_path: Path) -> None:
    weights = {"a": torch.tensor([1e6])}
    with pytest.raises(ValueError, match="a has values that are not finite in float16"):
        write_model_folder(tmp_path / "m", SETTINGS, weights, step=1, dtype="float16")
    with pytest.raises(ValueError, match="dtype=half is unknown; choose one of float32"):
        write_model_folder(tmp_path / "m", SETTINGS, weights, step=1, dtype="half")


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the weights of a folder, whose config goes with them."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["weights"]["sha256"] = sha256_of(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


KEY = "heads.weight"


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: w.pop(KEY), f"lacks {KEY} "),
        (lambda w: w.update(other=torch.zeros(1)), "does not know, other "),
        (lambda w: w.update({KEY: torch.zeros(2, 3)}), rf"{KEY} is \(2, 3\), the settings ask for"),
    ],
)
def test_a_key_missing_unknown_or_of_another_shape_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    write(tmp_path / "m")
    rewrite(tmp_path / "m", change)
    with pytest.raises(ValueError, match=message) as caught:
        load_checkpoint(find_checkpoint(tmp_path / "m"))
    assert "\n" not in str(caught.value)


def test_damage_to_the_weights_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    whole = path.read_bytes()
    for damaged, message in (
        (whole[:-8], "not a whole safetensors file"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "damaged, or not of the config.json beside it"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            load_checkpoint(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors: no such file; copy"):
        load_checkpoint(path)


def test_a_config_of_another_kind_is_a_line(tmp_path: Path) -> None:
    write(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    refused = 0
    for key in [*config, "unknown"]:
        for strange in STRANGE:
            if isinstance(strange, torch.Tensor):
                continue
            path.write_text(json.dumps({**config, key: strange}))
            try:
                load_checkpoint(path)
            except ValueError as error:
                refused += 1
                assert "\n" not in str(error) and str(tmp_path) in str(error), (key, strange)
        path.write_text(json.dumps({k: v for k, v in config.items() if k != key}))
        if key in config:
            with pytest.raises(ValueError, match=key):
                load_checkpoint(path)
    assert refused > len(config) * 6
    for text in ("{", "[]", "3", "{}", '{"model_type": "musicgen"}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"not JSON|not of a model of audiolm"):
            load_checkpoint(path)


@pytest.mark.parametrize("found", [2, 0])
def test_another_format_is_refused_with_both(tmp_path: Path, found: int) -> None:
    write(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "audiolm_format": found}))
    with pytest.raises(ValueError, match=f"has format {found}, this version reads 1; use"):
        load_checkpoint(path)


def test_averages_are_the_weights_to_use() -> None:
    own, average = torch.zeros(1), torch.ones(1)
    checkpoint: dict[str, Any] = {"state_dict": {"model.a": own, "b": own}}
    assert weights_to_use(checkpoint) == {"a": own}
    checkpoint["ema_state_dict"] = {"model.a": average}
    assert weights_to_use(checkpoint) == {"a": average}


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new/deep", "empty"):
        with new_folder(tmp_path / name) as folder:
            (folder / "file").write_text("x")
            assert not (tmp_path / name / "file").exists()
        assert (tmp_path / name / "file").read_text() == "x"
        with pytest.raises(FileExistsError, match="is there already"), new_folder(tmp_path / name):
            raise AssertionError
    with pytest.raises(KeyError), new_folder(tmp_path / "broken") as folder:
        (folder / "file").write_text("x")
        raise KeyError
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "new"]
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["deep"]
