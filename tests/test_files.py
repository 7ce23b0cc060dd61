from __future__ import annotations

from pathlib import Path

import pytest

from audiolm.files import replacing


def test_replacing_removes_its_temporary_file_on_any_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("new")
        raise KeyboardInterrupt
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.txt", "old")]
    with replacing(path) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_text("new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.txt", "new")]


def test_a_full_disk_is_an_error_with_a_path(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_text("old")
    for error in (OSError(28, "No space left on device"), OSError("9 requested and 3 written")):
        message = r"kept\.json could not be written \(.*free some space"
        with pytest.raises(OSError, match=message), replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise error
    with pytest.raises(FileNotFoundError), replacing(path) as temporary:
        (tmp_path / "nowhere").read_text()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]
