"""A page read back: what it says, and that every number in it is that of the file it names."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import soundfile
import yaml

UNSHOWN = ("svg", "style", "script", "title", "code")


@dataclass
class Shown:
    """A number or text of a page, and where the page says that it is from."""

    source: str
    value: str | None
    scale: float
    text: str = ""


@dataclass
class Page(HTMLParser):
    """The elements of a page that tests look at."""

    shown: list[Shown] = field(default_factory=list)
    players: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    text: str = ""
    outside: str = ""
    """The text that names no source."""

    @classmethod
    def read(cls, html: str) -> Page:
        page = cls()
        HTMLParser.__init__(page, convert_charrefs=True)
        page._open: list[str] = []
        page._sourced: list[bool] = []
        page.feed(html)
        page.close()
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if attributes.get("id"):
            self.ids.append(str(attributes["id"]))
        if tag == "audio":
            self.players.append(str(attributes["src"]))
        if tag in ("meta", "link", "br", "wbr", "image", "use", "path"):
            return
        source = attributes.get("data-source")
        if source is not None:
            scale = float(attributes.get("data-scale") or 1)
            self.shown.append(Shown(source, attributes.get("value"), scale))
        self._open.append(tag)
        self._sourced.append(source is not None)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if dict(attrs).get("id"):
            self.ids.append(str(dict(attrs)["id"]))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                self._sourced.pop()
            self._sourced.pop()

    def handle_data(self, data: str) -> None:
        if any(self._sourced):
            self.shown[-1].text += data
        elif not any(tag in UNSHOWN for tag in self._open):
            self.outside += data
        if not any(tag in ("svg", "style", "title") for tag in self._open):
            self.text += data


def look_up(folder: Path, source: str) -> Any:
    """What a file holds at a place, read in the plainest way."""
    name, _, pointer = source.partition("#")
    path = folder / name
    data: Any
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            data = list(csv.DictReader(file))
    elif path.suffix == ".wav":
        info = soundfile.info(path)
        data = {"seconds": info.frames / info.samplerate}
    elif path.suffix == ".yaml":
        data = yaml.safe_load(path.read_text())
    else:
        data = json.loads(path.read_text())
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def check_numbers(page: Page, folder: Path) -> int:
    """Every number shown is the file's, rounded; and no number with decimals is from nowhere.

    Returns how many there are.
    """
    for shown in page.shown:
        there = look_up(folder, shown.source)
        if shown.value is None:
            same = there if isinstance(there, str) else json.dumps(there, ensure_ascii=False)
            assert shown.text == same, shown
            continue
        assert float(shown.value) == float(there), shown
        plain = shown.text.replace(",", "")
        decimals = len(plain.partition(".")[2])
        exact = float(there) / shown.scale
        assert abs(float(plain) - exact) <= 0.5000001 * 10**-decimals, shown
    outside = re.sub(r"\S+\.(json|csv|yaml|wav|html|py|ckpt)\b", "", page.outside)
    assert not re.findall(r"\d+\.\d+", outside), "numbers that name no file"
    return sum(shown.value is not None for shown in page.shown)
