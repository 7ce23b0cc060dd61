"""Names on the hub: read from its cache without a network, and without its package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from audiolm.hub import FILES, HubName, hub_cache, hub_folder, model_of_snapshot
from audiolm.run_folder import RunFolder, find_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in the hub's layout, in which files are links, with one model; and no network."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    home = tmp_path / "hub" / "models--ann--voice"
    (home / "blobs").mkdir(parents=True)
    (home / "blobs" / "b").write_text("{}")
    (home / "snapshots" / COMMIT).mkdir(parents=True)
    (home / "snapshots" / COMMIT / "config.json").symlink_to("../../blobs/b")
    for branch in ("main", "pr/1"):
        (home / "refs" / branch).parent.mkdir(parents=True, exist_ok=True)
        (home / "refs" / branch).write_text(COMMIT)
    return home / "snapshots" / COMMIT


@pytest.mark.parametrize("revision", ["", "@main", "@pr/1", f"@{COMMIT}"])
@pytest.mark.parametrize("installed", [True, False])
def test_the_cache_is_read(
    cache: Path, monkeypatch: pytest.MonkeyPatch, revision: str, installed: bool
) -> None:
    if not installed:
        monkeypatch.delenv("HF_HUB_OFFLINE")  # without the package there is no network either
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *a: None if name == "huggingface_hub" else find_spec(name, *a),
        )
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert hub_folder(f"hf://ann/voice{revision}") == cache
    assert find_checkpoint(f"hf://ann/voice{revision}") == cache / "model.safetensors"


def test_what_is_made_with_a_model_of_the_hub_goes_to_runs(cache: Path) -> None:
    run = RunFolder.of(find_checkpoint("hf://ann/voice"))
    assert run.path == Path("runs/hub/ann--voice")
    assert model_of_snapshot(cache.parent.parent) is None


@pytest.mark.parametrize("name", ["hf://ann/other", "hf://ann/voice@v2"])
def test_what_is_not_there_is_a_line_with_the_reason(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(FileNotFoundError, match=f"{name} is not in .*HF_HUB_OFFLINE is set"):
        hub_folder(name)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if "hub" in n else find_spec(n, *a)
    )
    with pytest.raises(FileNotFoundError, match=r"huggingface_hub is not installed.*\[hub\]"):
        hub_folder(name)


def test_a_download_asks_for_data_alone_and_falls_back_to_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    asked: list[Any] = []

    def download(repository: str, **more: Any) -> str:
        asked.append((repository, more))
        return str(cache)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert hub_folder("hf://ann/voice@v1") == cache
    assert asked == [
        ("ann/voice", {"revision": "v1", "cache_dir": hub_cache(), "allow_patterns": list(FILES)})
    ]

    def fail(*_: Any, **__: Any) -> str:
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    assert hub_folder("hf://ann/voice") == cache
    with pytest.raises(FileNotFoundError, match="was not downloaded: no network; or"):
        hub_folder("hf://ann/other")


@pytest.mark.parametrize(
    "name",
    ["hf://", "hf://ann", "hf://ann/voice/x", "hf://ann/..", "hf://a b/c", "hf://a/b@../../x"],
)
def test_other_names_are_refused(cache: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name on the hub; give one such as hf://OWNER"):
        find_checkpoint(name)


def test_names() -> None:
    assert HubName.parse("ann/voice") == HubName("ann", "voice", None)
    assert str(HubName.parse("hf://ann/voice@v1")) == "hf://ann/voice@v1"
    assert HubName.parse("hf://ann/voice@v1").repository == "ann/voice"


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HOME": "/d"}, "/d/.cache/huggingface/hub"),
    ],
)
def test_where_the_cache_is(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: str
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert hub_cache() == Path(expected)
