"""The pages in a real browser: nothing is fetched, every player plays, light and dark, wide and
narrow. Skipped where there is no Chromium, or no Playwright to drive it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audiolm.report.page import write_comparison, write_run_page

from .runs import make_run

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")

SIZES = {"wide": (1280, 900), "phone": (390, 844)}
LUMINANCE = """
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => {
      v = v / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
"""
CONTRAST = (
    f"() => {{{LUMINANCE}"
    """
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const ratios = [];
  for (const e of document.querySelectorAll("p, td, dd, dt, h1, h2, figcaption, svg text")) {
    const style = getComputedStyle(e);
    const ink = luminance(e instanceof SVGElement ? style.fill : style.color);
    ratios.push((Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
  }
  return Math.min(...ratios);
}
"""
)
PLAY = """
async (e) => {
  e.muted = true;
  if (e.readyState < 1) await new Promise((done) => e.addEventListener("loadedmetadata", done));
  const ended = new Promise((done) => e.addEventListener("ended", done, { once: true }));
  e.currentTime = Math.max(0, e.duration - 0.2);
  await e.play();
  await ended;
  return e.duration;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The page of a run, and that of two."""
    folder = tmp_path_factory.mktemp("<pages> & 'more'")
    runs = [make_run(folder / "one"), make_run(folder / "two", loss=1.2, seed=1)]
    return [write_run_page(runs[0]), write_comparison(runs, folder / "comparison.html")]


def opened(browser: Any, path: Path, scheme: str, size: str, requests: list[str]) -> Any:
    width, height = SIZES[size]
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: requests.append(f"error: {error}"))
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize("number", [0, 1])
def test_every_player_plays_and_nothing_is_fetched(
    browser: Any, pages: list[Path], number: int
) -> None:
    requests: list[str] = []
    page = opened(browser, pages[number], "light", "wide", requests)
    players = page.query_selector_all("audio")
    assert len(players) == (7, 4)[number]
    for player in players:
        shown = player.evaluate("e => e.closest('figure').querySelector('data').value")
        assert player.evaluate(PLAY) == pytest.approx(float(shown), abs=0.05)
    others = [url for url in requests if not url.startswith("data:")]
    assert others == [pages[number].as_uri()]
    page.context.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("number", [0, 1])
def test_it_can_be_read(
    browser: Any, pages: list[Path], number: int, scheme: str, size: str
) -> None:
    page = opened(browser, pages[number], scheme, size, [])
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= SIZES[size][0], "it has to be scrolled sideways"
    assert page.evaluate(CONTRAST) >= 4.5  # WCAG AA
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    page.context.close()
