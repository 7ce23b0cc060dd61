"""Pushing uploads the folder's data alone, and what goes wrong is a line that says how to go on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from audiolm.export.push import check_pushable, push_folder
from audiolm.hub import FILES


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The calls that would have gone to the hub."""
    hub = pytest.importorskip("huggingface_hub")
    calls: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(
            hub.HfApi, name, lambda self, *a, _name=name, **k: calls.append((_name, {**k, "a": a}))
        )
    return calls


def test_the_folder_goes_up(uploads: list[tuple[str, dict[str, Any]]], tmp_path: Path) -> None:
    assert push_folder(tmp_path, "ann/voice", private=True) == "https://huggingface.co/ann/voice"
    (_, made), (_, sent) = uploads
    assert made == {"a": ("ann/voice",), "private": True, "exist_ok": True}
    assert sent["repo_id"] == "ann/voice" and sent["folder_path"] == tmp_path
    assert sent["allow_patterns"] == list(FILES)


def test_what_the_hub_says_no_to_is_a_line(
    uploads: list[tuple[str, dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("403\nForbidden")

    monkeypatch.setattr(hub.HfApi, "upload_folder", fail)
    with pytest.raises(OSError, match=r"not pushed to ann/voice: 403 Forbidden; .*ckpt_path=.*"):
        push_folder(tmp_path, "ann/voice")


@pytest.mark.parametrize(
    "repository, message",
    [("voice", "is not a name on the hub"), ("ann/voice@v1", "names a revision")],
)
def test_names(
    uploads: list[tuple[str, dict[str, Any]]], repository: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        push_folder(tmp_path, repository)
    assert not uploads


def test_without_the_package_or_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "get_token", lambda: None)
    with pytest.raises(ValueError, match="nobody is logged in to the hub; run hf auth login"):
        check_pushable("ann/voice")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the package huggingface_hub; run pip install"):
        check_pushable("ann/voice")
