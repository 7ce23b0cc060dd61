from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from audiolm.codec import load_codec, load_local, save_local


def test_saved_and_loaded_it_is_the_same(make_tiny_codec, tmp_path: Path) -> None:
    x = torch.randn(1, 1, 500)
    for settings in (
        {},
        {"norm": "none"},
        {"norm": "time_group_norm", "segment": 0.3, "bins": 512},
    ):
        codec = make_tiny_codec(**settings)
        folder = tmp_path / codec.fingerprint / "deep"
        file = codec.save(folder, "mine")
        assert file == folder / "mine.safetensors"
        for path in (file, file.with_suffix(".json"), file.with_suffix(""), folder, str(folder)):
            again = load_local(path)
            assert again.fingerprint == codec.fingerprint
            assert torch.equal(again.encode(x), codec.encode(x))
        assert again.identity()["name"] == "mine" and again.identity()["kind"] == "local"
        json.dumps(again.identity())
        again.save(folder, "mine")  # over the first
        assert sorted(p.name for p in folder.iterdir()) == ["mine.json", "mine.safetensors"]


def test_first_codebooks_by_number(make_tiny_codec, tmp_path: Path) -> None:
    codec = make_tiny_codec()
    file = codec.save(tmp_path)
    x = torch.randn(1, 1, 500)
    for k in (1, 2, 3, 4):
        assert torch.equal(load_local(file, k).encode(x), codec.encode(x)[:, :k])


def test_half_precision_weights_load_to_one_fingerprint(make_tiny_codec, tmp_path: Path) -> None:
    codec = make_tiny_codec()
    half = {k: v.half() for k, v in codec.weights.items()}
    (tmp_path / "half.json").write_text(json.dumps(codec.settings))
    safetensors.torch.save_file(half, tmp_path / "half.safetensors")
    first = load_local(tmp_path)
    assert load_local(first.save(tmp_path / "full")).fingerprint == first.fingerprint


def test_weights_of_a_trained_model_are_saved_without_its_buffers(
    make_tiny_codec, package_model, tmp_path: Path
) -> None:
    codec = make_tiny_codec()
    save_local(codec.settings, package_model(codec).state_dict(), tmp_path / "v1.5")
    assert (tmp_path / "v1.5.json").is_file()
    assert load_local(tmp_path / "v1.5").fingerprint == codec.fingerprint
    keys = safetensors.torch.load_file(tmp_path / "v1.5.safetensors").keys()
    assert not any(k.endswith(("inited", "cluster_size", "embed_avg")) for k in keys)


def _pair(codec, folder: Path, change=lambda s, w: None) -> Path:  # type: ignore[no-untyped-def]
    settings, weights = dict(codec.settings), dict(codec.weights)
    change(settings, weights)
    folder.mkdir(exist_ok=True)
    (folder / "c.json").write_text(json.dumps(settings))
    safetensors.torch.save_file(weights, folder / "c.safetensors")
    return folder / "c"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s, w: w.pop("encoder.model.0.conv.conv.bias"), ["lack encoder.model.0.conv"]),
        (lambda s, w: w.update(more=torch.ones(1)), ["unexpected more"]),
        (lambda s, w: s.update(dimension=9), ["(32, 8, 7)", "ask for (32, 9, 7)"]),
        (lambda s, w: s.update(n_q=5), ["lack quantizer.vq.layers.4"]),
        (lambda s, w: s.update(bins=33), ["bins=33"]),
        (lambda s, w: s.pop("bins"), ["bins missing"]),
        (
            lambda s, w: w.update({"quantizer.vq.layers.2._codebook.inited": torch.zeros(1)}),
            ["layers.2", "never initialised"],
        ),
        (
            lambda s, w: w.update({"encoder.model.0.conv.conv.bias": torch.full((4,), torch.nan)}),
            ["encoder.model.0.conv.conv.bias", "NaN"],
        ),
    ],
)
def test_what_does_not_fit_is_one_line(make_tiny_codec, tmp_path, change, words) -> None:
    path = _pair(make_tiny_codec(), tmp_path, change)
    with pytest.raises(ValueError) as error:
        load_local(path)
    message = str(error.value)
    assert "\n" not in message and str(path) in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "change",
    [
        {"n_filters": 4096},
        {"dimension": 16_384, "bins": 2**16},
        {"ratios": [2] * 10, "sample_rate": 8000},
        {"ratios": [1_000_000], "sample_rate": 1_000_000},
        {"n_q": 256, "bins": 2**20},
        {"lstm": 16, "n_filters": 1024},
    ],
)
def test_settings_far_beyond_the_weights_are_refused_before_anything_is_built(
    make_tiny_codec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict
) -> None:
    path = _pair(make_tiny_codec(), tmp_path, lambda s, w: s.update(change))

    def build(settings: object) -> None:
        pytest.fail(f"built: {settings}")

    monkeypatch.setattr("audiolm.codec.weights.build_model", build)
    with pytest.raises(ValueError, match=r"ask for a network of [\d,]{10,} numbers.*not belong"):
        load_local(path)


def test_damaged_files_are_one_line(make_tiny_codec, tmp_path: Path) -> None:
    file = make_tiny_codec().save(tmp_path)
    whole = file.read_bytes()
    for content in (whole[:-100], whole[:4], b"", b"hello, this is text"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="not a whole safetensors file") as error:
            load_local(file)
        assert "\n" not in str(error.value)
    file.write_bytes(whole)
    for text in ("{", "[1]", "\xff", "[" * 100_000):
        (tmp_path / "codec.json").write_text(text, encoding="latin-1")
        with pytest.raises(ValueError, match=r"codec\.json"):
            load_local(file)
    (tmp_path / "codec.json").write_text("{}")
    header = json.dumps({"x" * 100_000: "y" * 100_000}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match=r"codec\.safetensors") as error:
        load_local(file)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_settings_of_another_save_are_noticed(make_tiny_codec, tmp_path: Path) -> None:
    file = make_tiny_codec().save(tmp_path)
    settings = json.loads((tmp_path / "codec.json").read_text())
    (tmp_path / "codec.json").write_text(json.dumps({**settings, "sample_rate": 1600}))
    with pytest.raises(ValueError, match=r"fingerprint is \w{16}, was \w{16}"):
        load_local(file)


def test_absent_files_are_named(make_tiny_codec, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"x\.safetensors: no such file"):
        load_local(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="holds no codec"):
        load_local(tmp_path)
    codec = make_tiny_codec()
    codec.save(tmp_path, "a")
    codec.save(tmp_path, "b")
    with pytest.raises(ValueError, match=r"several codecs \(a, b\)"):
        load_local(tmp_path)


def test_a_record_finds_its_codec_again(make_tiny_codec, tmp_path: Path) -> None:
    codec = make_tiny_codec(num_codebooks=2)
    identity = codec.identity()
    make_tiny_codec(seed=1).save(tmp_path / "run", "a_other")
    codec.save(tmp_path / "run", "b_renamed")
    (tmp_path / "run" / "c.json").write_text("{}")
    (tmp_path / "run" / "c.safetensors").write_text("not one")
    found = load_codec(identity, [tmp_path / "absent", tmp_path / "run"])
    assert found.fingerprint == codec.fingerprint and found.num_codebooks == 2
    x = torch.randn(1, 1, 300)
    assert torch.equal(found.encode(x), codec.encode(x))


def test_another_codec_is_refused_with_both_fingerprints(make_tiny_codec, tmp_path: Path) -> None:
    codec, other = make_tiny_codec(), make_tiny_codec(seed=1)
    other.save(tmp_path)
    with pytest.raises(ValueError) as error:
        load_codec(codec.identity(), [tmp_path])
    message = str(error.value)
    assert codec.fingerprint in message and other.fingerprint in message and "\n" not in message
    with pytest.raises(FileNotFoundError, match=f"{codec.fingerprint} is not in no folder"):
        load_codec(codec.identity(), [])
    with pytest.raises(ValueError, match="identity without 'kind'"):
        load_codec({}, [tmp_path])


def test_others_may_read_what_they_may_read_of_any_file(make_tiny_codec, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    usual = (tmp_path / "plain").stat().st_mode
    file = make_tiny_codec().save(tmp_path / "run", "codec")
    assert file.stat().st_mode == file.with_suffix(".json").stat().st_mode == usual
