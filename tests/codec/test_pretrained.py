"""The real loading code on files of random weights in the package's own format and full size."""

from __future__ import annotations

import hashlib
import urllib.error
import warnings
from pathlib import Path

import pytest
import torch
from encodec.model import EncodecModel

from audiolm.codec import load_codec, load_pretrained
from audiolm.codec import pretrained as module

BUILD = {
    "encodec_24khz": EncodecModel.encodec_model_24khz,
    "encodec_48khz": EncodecModel.encodec_model_48khz,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, tuple[Path, EncodecModel]]:  # type: ignore[no-untyped-def]
    """Per model a state dict saved as the package's are, and the package's model itself."""
    folder = tmp_path_factory.mktemp("weights")
    made = {}
    for name, build in BUILD.items():
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)
            model = build(pretrained=False).requires_grad_(False)
        for layer in model.quantizer.vq.layers:
            torch.nn.init.normal_(layer._codebook.embed, std=0.05)
            layer._codebook.inited.fill_(1)
        torch.save(model.state_dict(), folder / f"{name}.th")
        made[name] = (folder / f"{name}.th", model)
    return made


@pytest.fixture
def table(files, monkeypatch) -> dict[str, tuple[Path, EncodecModel]]:  # type: ignore[no-untyped-def]
    """The table of known files, with the checksums of ours."""
    for name, (file, _) in files.items():
        prefix = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
        entry = module.PRETRAINED[name]._replace(file=file.name, sha256=prefix)
        monkeypatch.setitem(module.PRETRAINED, name, entry)
    return files


def test_the_table_names_the_packages_files() -> None:
    for name, entry in module.PRETRAINED.items():
        assert entry.file == f"{name}-{entry.sha256}.th"


@pytest.mark.parametrize(("bandwidth", "k"), [(1.5, 2), (6, 8), (24.0, 32)])
def test_24_khz_gives_the_packages_codes(table, bandwidth: float, k: int) -> None:
    file, model = table["encodec_24khz"]
    codec = load_pretrained("encodec_24khz", bandwidth, repository=file.parent)
    assert (codec.sample_rate, codec.channels, codec.frame_rate) == (24_000, 1, 75.0)
    assert (codec.num_codebooks, codec.codebook_size) == (k, 1024)
    model.set_target_bandwidth(bandwidth)
    x = torch.randn(1, 1, 12_345, generator=torch.Generator().manual_seed(0)) * 0.1
    expected = model.encode(x)[0][0]
    codes = codec.encode(x)
    assert codes.shape == expected.shape == (1, k, 39)
    assert (codes == expected).float().mean() > 0.99
    torch.testing.assert_close(
        codec.decode(expected), model.decode([(expected, None)]), rtol=1e-3, atol=1e-5
    )


def test_48_khz_begins_with_the_packages_codes(table) -> None:
    file, model = table["encodec_48khz"]
    codec = load_pretrained("encodec_48khz", 6, repository=str(file.parent))
    assert (codec.sample_rate, codec.channels, codec.frame_rate) == (48_000, 2, 150.0)
    assert (codec.num_codebooks, codec.codebook_size) == (5, 1024)
    model.set_target_bandwidth(6)
    x = torch.randn(1, 2, 72_001, generator=torch.Generator().manual_seed(0)) * 0.1
    codes = codec.encode(x)
    assert codes.shape == (1, 5, 226)  # exact, where the package gives 150 + 77
    expected, scale = model.encode(x)[0]
    assert (codes[:, :4, :149] == expected[..., :149]).float().mean() > 0.99
    assert abs(int(codes[0, 4, 0]) / 2 - 160 - 20 * torch.log10(scale).item()) < 0.26
    assert codec.decode(codes, 72_001).shape == x.shape


def test_a_record_names_it_and_finds_it_again(table) -> None:
    file, _ = table["encodec_24khz"]
    codec = load_pretrained("encodec_24khz", 3, repository=file.parent)
    identity = codec.identity()
    assert identity["kind"] == "pretrained" and identity["bandwidth"] == 3.0
    assert load_codec(identity, [], repository=file.parent).identity() == identity
    with pytest.raises(ValueError, match=rf"fingerprint is {codec.fingerprint}, needed is 00"):
        load_codec({**identity, "fingerprint": "00"}, [], repository=file.parent)


def test_unknown_names_and_bandwidths_list_the_right_ones() -> None:
    with pytest.raises(ValueError, match="encodec_24khz, encodec_48khz"):
        load_pretrained("encodec_16khz", 6)
    with pytest.raises(
        ValueError, match=r"bandwidth=5 kbit/s: encodec_24khz has 1.5, 3, 6, 12, 24"
    ):
        load_pretrained("encodec_24khz", 5)
    with pytest.raises(ValueError, match=r"bandwidth=1\.5 kbit/s: encodec_48khz has 3, 6, 12, 24"):
        load_pretrained("encodec_48khz", 1.5)


def test_a_folder_without_the_file_says_which_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"encodec_24khz-d7cc33bc\.th: no such file"):
        load_pretrained("encodec_24khz", 6, repository=tmp_path)


def test_damaged_and_foreign_files_are_one_line(tmp_path: Path, monkeypatch) -> None:
    entry = module.PRETRAINED["encodec_24khz"]
    file = tmp_path / entry.file

    def expect(words: str) -> None:
        with pytest.raises(ValueError, match=words) as error:
            load_pretrained("encodec_24khz", 6, repository=tmp_path)
        assert "\n" not in str(error.value) and entry.file in str(error.value)

    file.write_bytes(b"not it")
    expect("SHA-256 begins")

    def accept() -> None:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
        monkeypatch.setitem(module.PRETRAINED, "encodec_24khz", entry._replace(sha256=digest))

    for content in (b"not it", b"", b"PK\x03\x04 and no more"):
        file.write_bytes(content)
        accept()
        expect("not a file of weights")
    torch.save({"weights": Path("a/pickle/of/code")}, file)
    accept()
    expect("not a file of weights")
    torch.save([1, 2], file)
    accept()
    expect("holds list")
    torch.save({"encoder": torch.ones(2)}, file)
    accept()
    expect("codec weights lack")


def test_without_a_repository_the_hub_cache_serves(table, tmp_path: Path, monkeypatch) -> None:
    file, _ = table["encodec_24khz"]
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / file.name).write_bytes(file.read_bytes())
    assert load_pretrained("encodec_24khz", 1.5).num_codebooks == 2


def test_first_use_downloads_and_checks(table, tmp_path: Path, monkeypatch) -> None:
    file, _ = table["encodec_24khz"]
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(module, "ROOT_URL", file.parent.as_uri() + "/")
    assert load_pretrained("encodec_24khz", 1.5).num_codebooks == 2
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == [file.name]


def test_a_damaged_download_leaves_nothing_behind(table, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "server").mkdir()
    file, _ = table["encodec_24khz"]
    (tmp_path / "server" / file.name).write_bytes(b"cut off")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(module, "ROOT_URL", (tmp_path / "server").as_uri() + "/")
    with pytest.raises(ValueError, match="download is damaged") as error:
        load_pretrained("encodec_24khz", 1.5)
    assert "\n" not in str(error.value)
    assert list((tmp_path / "hub" / "checkpoints").iterdir()) == []


def test_no_network_says_which_file_to_put_where(tmp_path: Path, monkeypatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "urlopen", unreachable)
    with pytest.raises(FileNotFoundError) as error:
        load_pretrained("encodec_48khz", 6)
    message = str(error.value)
    assert "encodec_48khz-7e698e3e.th" in message and "codec.repository=DIR" in message
    assert "\n" not in message
