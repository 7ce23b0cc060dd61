"""The pages of docs/: their Python runs, their links lead somewhere, their settings exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from audiolm.datasets.checks.rules import FAULTS, Rules

from .pages import examples, run_page

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
WITH_LINKS = [*ROOT.glob("*.md"), ROOT / "data" / "README.md", *PAGES]
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


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    missing = []
    for target in re.findall(r"(?:\]\(|(?:href|src)=\")([^)\"\s]+)[)\"]", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, heading = target.partition("#")
        linked = page if not file else (page.parent / file).resolve()
        if not linked.exists() or (heading and heading not in headings(linked)):
            missing.append(target)
    assert not missing


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in plain}


def settings() -> dict[str, set[str]]:
    """By group of configs/ (or "" for the scripts' own), the keys of all its files, dotted."""
    found: dict[str, set[str]] = {"": set()}
    for file in (ROOT / "configs").rglob("*.yaml"):
        group = file.relative_to(ROOT / "configs").parts[0] if file.parent.name != "configs" else ""
        content = OmegaConf.to_container(OmegaConf.load(file))
        assert isinstance(content, dict)
        found.setdefault(group, set()).update(dotted(content))
    return found


def dotted(content: dict[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in content.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_setting_exists(page: Path) -> None:
    known = settings()
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^python scripts/(?!tools).*$", text, flags=re.M)
    code = [*re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)), *lines]
    wrong = []
    for word in {word.strip("'") for piece in code for word in piece.split()}:
        key, _, value = word.partition("=")
        group, _, rest = key.partition(".")
        if not re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)*", key) or value in ("", "True"):
            continue  # an option of another program, a placeholder, or Python
        if group in ("hydra", "conditioning") or key in known[""]:
            continue  # conditions are columns of the data
        choices = re.split(r"\\\||,", value)  # of a table's cell, or of a multirun
        files = [ROOT / "configs" / group / f"{choice}.yaml" for choice in choices]
        exists = rest in known.get(group, ()) if rest else all(file.is_file() for file in files)
        if not exists:
            wrong.append(word)
    assert not wrong


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading of a page, without its own first row."""
    section = (
        page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    )
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_what_is_skipped_is_what_the_rules_say() -> None:
    words = {"drop": "skipped", "report": "reported", "off": "off"}
    rules = Rules()
    expected = [(name, "skipped, always", None) for name in FAULTS] + [
        (name, words[rules[name].action], rules[name].threshold) for name in rules.names()
    ]
    rows = table(ROOT / "docs" / "skipped.md", "Rules of the check")
    stated = [(name, action, float(limit) if limit else None) for name, action, limit, _ in rows]
    assert stated == expected
    assert all(what for *_, what in rows)
    assert f"rules.max_dropped={rules.max_dropped:g}" in (ROOT / "docs" / "skipped.md").read_text()
