"""What is damaged or of another kind is refused in one line; nothing half-written is left."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from audiolm.importing import import_model, write_imported

from .conftest import as_json, hf_musicgen, save_audiocraft, save_transformers


@pytest.fixture(scope="module")
def model() -> Any:
    return hf_musicgen()


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, {"format": "pt"})


def package(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "state_dict.bin"
    data = torch.load(file, weights_only=True)
    change(data)
    torch.save(data, file)


def config(folder: Path, **changes: Any) -> None:
    def change(data: dict[str, Any]) -> None:
        described = yaml.safe_load(data["xp.cfg"])
        for key, value in changes.items():
            section, name = key.split("__")
            described[section][name] = value
        data["xp.cfg"] = yaml.safe_dump(described)

    package(folder, change)


class Runs:
    """A pickle that would write a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


NORM = "decoder.model.decoder.layer_norm.bias"
QUERY = "decoder.model.decoder.layers.1.self_attn.q_proj.weight"
TRANSFORMERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda f: tensors(f, lambda w: w.pop(NORM)), f"lacks {NORM}"),
    "unknown": (
        lambda f: tensors(f, lambda w: w.update({"decoder.more": torch.ones(1)})),
        "has decoder.more, which this version does not know",
    ),
    "another shape": (
        lambda f: tensors(f, lambda w: w.update({QUERY: torch.ones(3, 4)})),
        rf"{QUERY} is \(3, 4\), the config asks for \(16, 16\)",
    ),
    "not finite": (
        lambda f: tensors(f, lambda w: w[NORM].fill_(float("nan"))),
        f"{NORM} holds NaN or infinity",
    ),
    "cut short": (
        lambda f: (f / "model.safetensors").write_bytes(b"1234"),
        "not a whole safetensors file",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "holds no model.safetensors"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: no such file"),
    "damaged config": (lambda f: (f / "config.json").write_text("{"), "not JSON"),
    "another kind": (
        lambda f: as_json(f / "config.json", model_type="musicgen_melody"),
        "type musicgen_melody; imported are those of type musicgen",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json: no such file"),
    "relu": (
        lambda f: as_json(f / "config.json", decoder={"activation_function": "relu"}),
        "activation_function=relu, MusicGen has gelu",
    ),
}
AUDIOCRAFT: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (
        lambda f: package(f, lambda p: p["best_state"].pop("out_norm.bias")),
        f"lacks {NORM}",
    ),
    "unknown": (
        lambda f: package(f, lambda p: p["best_state"].update(more=torch.ones(1))),
        "has more, which this version does not know",
    ),
    "no tensor": (
        lambda f: package(f, lambda p: p["best_state"].update(more=3)),
        "has a int as more, not a tensor",
    ),
    "another shape": (
        lambda f: package(f, lambda p: p["best_state"].update({"emb.0.weight": torch.ones(2)})),
        r"embed_tokens.0.weight is \(2,\), the config asks for \(33, 16\)",
    ),
    "no weights": (lambda f: package(f, lambda p: p.pop("best_state")), "has no best_state"),
    "no config": (lambda f: package(f, lambda p: p.pop("xp.cfg")), "has no xp.cfg"),
    "not YAML": (lambda f: package(f, lambda p: p.update({"xp.cfg": "a: [b"})), "not YAML"),
    "objects in YAML": (
        lambda f: package(f, lambda p: p.update({"xp.cfg": "!!python/object/apply:os.getcwd []"})),
        "xp.cfg is not YAML",
    ),
    "post-norm": (
        lambda f: config(f, transformer_lm__norm_first=False),
        "transformer_lm.norm_first=False in xp.cfg, imported are models with True",
    ),
    "prepended": (
        lambda f: config(f, fuser__prepend=["self_wav"]),
        r"fuser.prepend=\['self_wav'\] in xp.cfg",
    ),
    "no heads": (
        lambda f: config(f, transformer_lm__num_heads="many"),
        "num_heads='many' in xp.cfg must be a whole number",
    ),
    "circle": (
        lambda f: config(f, transformer_lm__card="${transformer_lm.card}"),
        "points at itself",
    ),
    "damaged": (
        lambda f: (f / "state_dict.bin").write_bytes(b"PK no"),
        "is damaged, or holds more than tensors",
    ),
    "no codec": (
        lambda f: (f / "compression_state_dict.bin").unlink(),
        "compression_state_dict.bin: no such file; pass codec_path=DIR",
    ),
    "named codec": (
        lambda f: torch.save(
            {"pretrained": "facebook/encodec_32khz", "exported": True},
            f / "compression_state_dict.bin",
        ),
        "only names its codec, facebook/encodec_32khz; download that and pass codec_path=DIR",
    ),
    "no T5": (
        lambda f: (f / "text_encoder").rename(f / "elsewhere"),
        "text_encoder: no such file; pass text_encoder_path=DIR",
    ),
    "another T5": (
        lambda f: as_json(f / "text_encoder" / "config.json", d_model=768),
        "d_model=768; this model was trained with a T5 of 12",
    ),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(model: Any, tmp_path: Path, name: str) -> None:
    change, message = TRANSFORMERS[name]
    check(save_transformers(model, tmp_path / "from"), change, message)


@pytest.mark.parametrize("name", AUDIOCRAFT)
def test_audiocraft(model: Any, tmp_path: Path, name: str) -> None:
    change, message = AUDIOCRAFT[name]
    check(save_audiocraft(model, tmp_path / "from"), change, message)


def check(folder: Path, change: Callable[[Path], Any], message: str) -> None:
    import_model(folder)  # as it is
    change(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        import_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["state_dict.bin", "compression_state_dict.bin"])
def test_a_pickle_that_would_run_code_is_not_run(model: Any, tmp_path: Path, file: str) -> None:
    folder = save_audiocraft(model, tmp_path / "from")
    for save in (
        lambda data: torch.save(data, folder / file),
        lambda data: (folder / file).write_bytes(pickle.dumps(data)),
    ):
        save({"best_state": {}, "xp.cfg": Runs(tmp_path / "it ran")})
        with pytest.raises(ValueError, match="Python objects could run code, and are not loaded"):
            import_model(folder)
        assert not (tmp_path / "it ran").exists()


def test_another_codec_is_refused(model: Any, tmp_path: Path) -> None:
    from .conftest import hf_codec

    folder = save_transformers(model, tmp_path / "from")
    hf_codec(codebook_size=64).save_pretrained(tmp_path / "codec")
    with pytest.raises(ValueError, match="4 codebooks of 32 codes, the codec has 3 of 64"):
        import_model(folder, codec_path=tmp_path / "codec")


def test_several_files_and_a_table_of_positions_are_read(model: Any, tmp_path: Path) -> None:
    folder = save_transformers(model, tmp_path / "from")
    whole = import_model(folder)
    table = {"decoder.model.decoder.embed_positions.weights": torch.zeros(64, 16)}
    tensors(folder, lambda w: w.update(table))
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    (folder / "model.safetensors").unlink()
    index = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({name: weights[name] for name in part}, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text("{}")
    as_json(folder / "model.safetensors.index.json", weight_map=index)
    again = import_model(folder)
    assert whole.weights.keys() == again.weights.keys()
    assert all(torch.equal(whole.weights[name], again.weights[name]) for name in whole.weights)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002"):
        import_model(folder)


def test_nothing_half_written_is_left(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = import_model(save_transformers(model, tmp_path / "from"))
    monkeypatch.setattr(type(imported.codec), "save", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_imported(imported, tmp_path / "to")
    assert [path.name for path in tmp_path.iterdir()] == ["from"]


def test_licence_and_base_model_are_kept(model: Any, tmp_path: Path) -> None:
    from audiolm.model.folder import read_config

    folder = save_transformers(model, tmp_path / "from")
    write_imported(import_model(folder, base_model="facebook/musicgen-small"), tmp_path / "to")
    config = read_config(tmp_path / "to")
    assert config["license"] == "cc-by-nc-4.0"
    assert config["base_model"] == "facebook/musicgen-small"
    assert (config["sampling"]["top_k"], config["sampling"]["guidance"]) == (250, 3.0)
    write_imported(import_model(folder, base_model="facebook/musicgen-small"), tmp_path / "again")
    for file in ("config.json", "model.safetensors", "codec.json", "codec.safetensors"):
        assert (tmp_path / "to" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
