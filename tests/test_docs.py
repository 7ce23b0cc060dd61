"""The pages of docs/: their Python runs, and prints and draws what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import examples, run_page

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
OWN_TEST = {"python.md"}  # needs a trained model
WITH_CODE = [page for page in PAGES if page.name not in OWN_TEST and any(examples(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)
    for picture in tmp_path.glob("*.png"):
        assert f"](images/{picture.name})" in page.read_text(encoding="utf-8")
        assert (page.parent / "images" / picture.name).is_file()


@pytest.mark.parametrize("text, message", [("1\n", None), ("2\n", "line 3.*prints")])
def test_output_is_compared(tmp_path: Path, text: str, message: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n```python\nprint(1)\n```\n\n```text\n{text}```\n", encoding="utf-8")
    if message is None:
        run_page(page)
    else:
        with pytest.raises(AssertionError, match=message):
            run_page(page)
