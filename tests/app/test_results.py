"""The cards of results."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import torch
from markupsafe import Markup

from audiolm.app.results import Card, card_of_sound, cards_html, file_address, style


def test_names_are_harmless() -> None:
    hostile = "<script>alert('&\"')</script>"
    html = cards_html(
        [Card(hostile, hostile, hostile, Markup("<svg/>"), hostile, ((hostile, hostile),))]
    )
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    Tags().feed(html)
    assert "script" not in tags and tags.count("audio") == 1
    assert html.count("&lt;script&gt;") == 6


def test_a_sound_without_a_file_is_inside_the_page() -> None:
    cards = [card_of_sound("a", "b", torch.zeros(1, 800) + 0.1, 800) for _ in range(2)]
    assert all(card.source.startswith("data:audio/flac;base64,") for card in cards)
    html = cards_html(cards)
    ids = re.findall(r' id="([^"]+)"', html)
    assert ids and len(set(ids)) == len(ids)  # of two figures in one page
    assert "settings" not in html and cards_html([]) == ""


def test_an_address_of_any_file(tmp_path: Path) -> None:
    address = file_address(tmp_path / "a b?#%.wav")
    assert address.endswith("/a%20b%3F%23%25.wav")


def test_the_colours_are_the_report_s() -> None:
    css = style()
    report = (files("audiolm.report") / "templates" / "style.css").read_text()
    for name in ("paper", "card", "ink", "soft", "grid", "accent", *(f"c{i}" for i in range(10))):
        colours = re.findall(rf"--{name}: (#\w+);", report)
        assert re.findall(rf"--{name}: (#\w+);", css) == colours and len(colours) == 2
