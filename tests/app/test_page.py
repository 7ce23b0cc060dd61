"""The app in a real browser. Skipped where there is no Gradio, Chromium, or Playwright."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

from audiolm.app.results import file_address
from audiolm.app.workshop import Workshop
from audiolm.audio import write_wav
from audiolm.cli.app_page import check_gradio
from audiolm.cli.errors import user_line
from audiolm.codec.load import load_bundled
from audiolm.synthesis.request import SAMPLING
from audiolm.synthesis.synthesizer import Synthesizer

from ..report.test_browser import CHROMIUM, LUMINANCE, PLAY, SIZES
from ..scripts.conftest import RunScript, run_script
from .conftest import VOCABULARY, make_run_folder

pytest.importorskip("gradio")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
__all__ = ["run_script"]

TIMEOUT = 90_000  # milliseconds that anything may take, on a busy machine
FLAGS = [
    "--no-sandbox",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
# Of the text in a component's own background, the least.
CONTRAST = (
    f"() => {{{LUMINANCE}"
    """
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const e of document.querySelectorAll("label span, .audiolm span, figcaption, svg text, p")) {
    if (!e.getClientRects().length || !e.textContent.trim()) continue;
    const style = getComputedStyle(e);
    const ink = luminance(e.closest("svg") ? style.fill : style.color);
    const paper = luminance(behind(e));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push([ratio, e.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
}
"""
)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    folder = tmp_path_factory.mktemp(".runs & 'more'")  # of a name that Gradio would hide
    checkpoints = [make_run_folder(folder / n, load_bundled(4), seed=len(n)) for n in ("a", "bb")]
    return Workshop(
        Synthesizer.load(checkpoints[0]),
        Synthesizer.load,
        {"bb": checkpoints[1]},
        sampling=SAMPLING,
    )


@pytest.fixture(scope="module")
def address(workshop: Workshop) -> Iterator[str]:
    check_gradio()
    from audiolm.app.page import App

    first = {"num_samples": 2, "duration": 1.2, "seed": 7}
    app = App(workshop, first, lambda error: user_line(error, "app"))
    address = app.serve("127.0.0.1", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        again = App(workshop, first, lambda error: user_line(error, "app"))
        with pytest.raises(OSError, match=f"host=127.0.0.1 port={port} cannot be served on"):
            again.serve("127.0.0.1", port)
    yield address
    app.blocks.close(verbose=False)


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


OpenPage = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[OpenPage]:
    """`open_page(scheme="light", size="wide")`; a request to elsewhere or a fault in it fails."""
    contexts, bad = [], []

    def opened(scheme: str = "light", size: str = "wide") -> Any:
        width, height = SIZES[size]
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: bad.append(f"error: {error}"))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("#generate")
        return page

    requests: list[str] = []
    yield opened
    for context in contexts:
        context.close()
    mine = (address, "data:", "blob:")
    assert [url for url in requests if not url.startswith(mine)] == [] and requests
    assert bad == []


def fill(page: Any, label: str, value: str) -> None:
    page.get_by_label(label, exact=False).first.fill(value)
    page.keyboard.press("Tab")


def wait_for_results(page: Any) -> None:
    """Until there are some; a message instead fails."""
    found = page.wait_for_selector("#results audio, .toast-body")
    assert found.evaluate("e => e.tagName") == "AUDIO", found.inner_text()


def message(page: Any) -> str:
    """What is said of an error, which is closed."""
    body = page.wait_for_selector(".toast-body")
    text = str(body.inner_text())
    body.query_selector("button.toast-close, button[aria-label='Close']").click()
    page.wait_for_selector(".toast-body", state="detached")
    return text


def test_a_sample_is_that_of_generate_py_and_plays(
    open_page: OpenPage, workshop: Workshop, run_script: RunScript, tmp_path: Path
) -> None:
    page = open_page()
    hostile = VOCABULARY.labels["label"][1]
    page.get_by_label("label", exact=False).first.click()
    page.get_by_role("option", name=hostile).click()
    fill(page, "text", "oh so")
    page.get_by_text("Sampling", exact=True).click()
    fill(page, "temperature", "1.1")
    page.click("#generate")
    wait_for_results(page)
    assert hostile in page.inner_text("#results figcaption")
    ran = run_script(
        "generate", f"ckpt_path={workshop.checkpoint}", f"out={tmp_path / 'out'}",
        "num_samples=2", "duration=1.2", "seed=7", "sampling.temperature=1.1",
        f"conditioning.label={hostile}", "conditioning.text=oh so",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    theirs = sorted((tmp_path / "out").glob("*.wav"))
    cards = page.query_selector_all("#results figure")
    assert len(cards) == len(theirs) == 2
    for i, (card, their) in enumerate(zip(cards, theirs, strict=True)):
        caption = card.query_selector("figcaption").inner_text()
        assert caption.startswith(f"seed {7 + i} · ")
        length = card.query_selector("audio").evaluate(PLAY)
        assert f" {length:.2f} s" in caption
        with page.expect_download() as download:
            card.query_selector("a:has-text('WAV')").click()
        assert Path(download.value.path()).read_bytes() == their.read_bytes()


def test_only_samples_are_served(open_page: OpenPage, workshop: Workshop, address: str) -> None:
    page = open_page()
    for path in (workshop.checkpoint, workshop.checkpoint.parents[1] / "codec", Path(__file__)):
        assert page.request.get(address + file_address(path)).status == 403
    sample = workshop.synthesizer.generate(duration=0.5, end=False).save(
        workshop.folders()[0] / "one" / "sample_000.wav"
    )
    assert page.request.get(address + file_address(sample)).body() == sample.read_bytes()


def test_the_last_twenty_stay_and_the_seed_is_kept(open_page: OpenPage) -> None:
    page = open_page()
    fill(page, "num_samples", "8")
    fill(page, "duration", "0.1")
    for seed in (0, 100, 200):
        fill(page, "seed", str(seed))
        page.click("#generate")
        page.wait_for_selector(f"#results figcaption:has-text('seed {seed} ·')")
    captions = [each.inner_text() for each in page.query_selector_all("#results figcaption")]
    assert len(captions) == 20 and captions[0].startswith("seed 200 ")
    assert captions[-1].startswith("seed 3 ")
    assert page.get_by_label("seed", exact=False).first.input_value() == "200"
    page.get_by_text("another seed").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('label')].find(e => e.innerText.startsWith('seed'))"
        ".querySelector('input').value != '200'"
    )


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="no ffmpeg")
def test_it_sounds_while_it_is_generated(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_text("Sampling", exact=True).click()
    page.get_by_label("end", exact=True).uncheck()
    fill(page, "duration", "3")
    page.get_by_label("play the first sample", exact=False).check()
    page.wait_for_selector("#live")
    page.click("#generate")
    page.wait_for_function("() => document.querySelector('#live audio')?.currentTime > 0.3")
    wait_for_results(page)
    page.wait_for_function("() => document.querySelector('#live audio').duration > 2.8")


def test_stop_and_turns(
    open_page: OpenPage, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    generate = Workshop.generate

    def noted(self: Workshop, who: str, *given: Any) -> Any:
        order.append(f"begin {who}")
        try:
            return (yield from generate(self, who, *given))
        finally:
            order.append(f"end {who}")

    monkeypatch.setattr(Workshop, "generate", noted)
    first, second = open_page(), open_page()
    for page in (first, second):
        page.get_by_text("Sampling", exact=True).click()
        page.get_by_label("end", exact=True).uncheck()
    fill(first, "duration", "140")
    first.click("#generate")
    first.wait_for_selector("#status:has-text('frames')")
    second.click("#generate")
    second.wait_for_selector("#status:has-text('queue')")
    assert len(order) == 1 and second.query_selector("#results audio") is None
    before = list(workshop.folders()[0].glob("*"))
    first.click("#stop")
    first.wait_for_selector("text=nothing was kept")
    wait_for_results(second)
    assert [each.split()[0] for each in order] == ["begin", "end"] * 2
    assert order[0].split()[1] == order[1].split()[1] != order[2].split()[1]
    assert len(list(workshop.folders()[0].glob("*"))) == len(before) + 1  # the second's alone
    first.click("#stop")
    first.wait_for_selector("text=there is nothing of yours to stop")


def test_what_is_wrong_is_a_line(
    open_page: OpenPage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = open_page()
    fill(page, "duration", "-3")
    page.click("#generate")
    assert "duration=-3 must be a number above 0" in message(page)
    fill(page, "duration", "1")
    fill(page, "text", "<i>xx</i>")
    page.click("#generate")
    assert "conditioning.text='<i>xx</i>' holds no character of the training" in message(page)
    fill(page, "text", "")
    page.get_by_text("Continue a recording").click()
    (tmp_path / "bad <i>.wav").write_bytes(b"no sound" * 99)
    page.set_input_files("input[type=file] >> nth=0", tmp_path / "bad <i>.wav")
    page.wait_for_timeout(1500)
    page.click("#generate")
    assert "not audio" in message(page)
    assert page.query_selector("#results audio") is None
    assert "Traceback" not in capfd.readouterr().err


def test_a_recording_is_continued_and_goes_through_the_codec(
    open_page: OpenPage, tmp_path: Path, workshop: Workshop
) -> None:
    noise = 0.1 * torch.randn(1, 32000, generator=torch.Generator().manual_seed(0))
    write_wav(tmp_path / "noise.wav", noise, 32000)
    page = open_page()
    page.get_by_text("Continue a recording").click()
    page.set_input_files("input[type=file] >> nth=0", tmp_path / "noise.wav")
    page.wait_for_timeout(1500)
    fill(page, "prompt_duration", "0.5")
    page.click("#generate")
    page.wait_for_selector("#results figcaption:has-text('continues 0.5 s of a recording')")
    page.get_by_role("tab", name="Codec").click()
    page.set_input_files("input[type=file] >> nth=-1", tmp_path / "noise.wav")
    page.wait_for_timeout(1500)
    page.click("#codec")
    page.wait_for_selector("#codebooks figcaption:has-text('4 codebooks')")
    players = page.query_selector_all("#codebooks audio")
    assert len(players) == 5
    assert all(player.evaluate(PLAY) == pytest.approx(1.0, abs=0.05) for player in players)
    page.get_by_role("tab", name="Compare").click()
    page.click("#compare")
    page.wait_for_selector("#pairs audio")
    captions = [each.inner_text() for each in page.query_selector_all("#pairs figcaption")]
    assert [each.split(" · ")[:2] for each in captions] == [
        ["this", "seed 7"], ["bb", "seed 7"], ["this", "seed 8"], ["bb", "seed 8"],
    ]  # fmt: skip


def test_what_the_microphone_records_is_continued(
    open_page: OpenPage,
    workshop: Workshop,
    run_script: RunScript,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = tmp_path / "recorded.wav"
    generate = Workshop.generate

    def noted(self: Workshop, who: str, values: dict[str, Any], *given: Any) -> Any:
        shutil.copyfile(values["prompt"], recorded)
        return (yield from generate(self, who, values, *given))

    monkeypatch.setattr(Workshop, "generate", noted)
    page = open_page()
    page.get_by_text("Continue a recording").click()
    page.locator("button[aria-label='Record audio']:visible").first.click()
    page.locator("button.record-button:visible").click()  # of Chromium's stand-in, which beeps
    page.wait_for_selector("button.stop-button:visible")
    page.wait_for_timeout(1500)
    with page.expect_response(lambda response: "/upload" in response.url):
        page.locator("button.stop-button:visible").click()
    page.wait_for_timeout(500)
    fill(page, "prompt_duration", "0.5")
    page.click("#generate")
    wait_for_results(page)
    assert "continues 0.5 s of a recording" in page.inner_text("#results figcaption")
    sound, rate = soundfile.read(recorded, dtype="int16")
    assert rate >= 44_100 and len(sound) > rate / 2
    ran = run_script(
        "generate", f"ckpt_path={workshop.checkpoint}", f"out={tmp_path / 'out'}", "num_samples=2",
        "duration=1.2", "seed=7", f"prompt={recorded}", "prompt_duration=0.5",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    with page.expect_download() as download:
        page.locator("#results a:has-text('WAV')").first.click()
    theirs = (tmp_path / "out" / "sample_000.wav").read_bytes()
    assert Path(download.value.path()).read_bytes() == theirs


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(open_page: OpenPage, scheme: str, size: str) -> None:
    page = open_page(scheme, size)
    page.get_by_text("Sampling", exact=True).click()
    page.click("#generate")
    wait_for_results(page)
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    ratio, text = page.evaluate(CONTRAST)
    assert ratio >= 4.5, text  # WCAG AA
