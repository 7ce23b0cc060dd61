"""What was generated, as cards of a page: a player, its spectrogram, its settings, its files.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup
from torch import Tensor

from audiolm.report.clips import sound_address, spectrogram
from audiolm.synthesis.sample import Sample, with_ending

MOST_RESULTS = 20
"""That a page keeps."""

_figure_numbers = itertools.count(1)

STYLE = """
.html-container:has(.audiolm) { padding: 0; }
.audiolm .clips { display: grid; gap: 1rem; margin-bottom: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.audiolm .pairs { grid-template-columns: 1fr 1fr; }
.audiolm figure { margin: 0; padding: .75rem; background: var(--card); border-radius: 6px;
  min-width: 0; color: var(--ink); }
.audiolm figcaption { font-size: .875rem; margin-bottom: .4rem; overflow-wrap: anywhere; }
.audiolm .about, .audiolm summary, .audiolm p { color: var(--soft); font-size: .875rem; }
.audiolm svg { display: block; width: 100%; height: auto; fill: var(--ink); }
.audiolm audio { display: block; width: 100%; height: 2.5rem; margin: .4rem 0; }
.audiolm a { color: var(--accent); padding: 0; margin: 0 .75rem 0 0; font-size: .875rem; }
.audiolm pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .75rem; color: var(--ink);
  background: none; padding: 0; max-height: 24rem; overflow-y: auto; }
.audiolm summary { cursor: pointer; }
@media (max-width: 34rem) { .audiolm .pairs { grid-template-columns: 1fr; } }
"""


@dataclass(frozen=True)
class Card:
    """A sound in the page.

    Attributes:
        title: above it.
        about: a line more.
        source: the sound's address.
        picture: its spectrogram.
        details: its settings, as text; "" for none.
        links: names and addresses of files to download.
    """

    title: str
    about: str
    source: str
    picture: Markup
    details: str = ""
    links: tuple[tuple[str, str], ...] = ()


def style() -> str:
    """The style of the cards, in the report's colours; Gradio marks a dark page with a class."""
    report = (files("audiolm.report") / "templates" / "style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", report, flags=re.S)[:2]
    return f".audiolm {{{light}}}\n.dark .audiolm {{color-scheme: dark; {dark}}}\n{STYLE}"


def file_address(path: Path) -> str:
    """Where the app serves a file."""
    return f"gradio_api/file={quote(str(path.resolve()))}"


def card_of_sample(sample: Sample, stem: Path, model: str = "") -> Card:
    """A sample that was saved as STEM.wav and STEM.json.

    model: which one it is of, where there are several.
    """
    words = [f"{name} {value}" for name, value in (sample.settings["conditioning"] or {}).items()]
    if sample.settings["prompt"] is not None:
        words.append(f"continues {sample.settings['prompt_seconds']:.4g} s of a recording")
    words.append(f"{sample.nats_per_code:.2f} nats per code")
    words.append(f"temperature {sample.settings['sampling']['temperature']}")
    title = f"seed {sample.seed} · {sample.duration:.2f} s"
    wav, json = with_ending(stem, ".wav"), with_ending(stem, ".json")
    return Card(
        f"{model} · {title}" if model else title,
        ", ".join(words),
        file_address(wav),
        spectrogram(sample.waveform, sample.sample_rate, next(_figure_numbers), title),
        json.read_text(encoding="utf-8"),
        tuple((path.suffix[1:].upper(), file_address(path)) for path in (wav, json)),
    )


def card_of_sound(title: str, about: str, waveform: Tensor, sample_rate: int) -> Card:
    """A sound (C, N) that is in no file: it is inside the page."""
    return Card(
        title,
        about,
        sound_address(waveform, sample_rate),
        spectrogram(waveform, sample_rate, next(_figure_numbers), title),
    )


def cards_html(cards: Sequence[Card], kind: str = "") -> str:
    """The cards as HTML; "" for none. kind: "pairs" for two in a row."""
    if not cards:
        return ""
    body = Markup("\n").join(_card_html(card) for card in cards)
    return str(
        Markup('<div class="audiolm"><div class="clips {}">{}</div></div>').format(kind, body)
    )


def _card_html(card: Card) -> Markup:
    links = Markup("").join(
        Markup('<a href="{}" download>{}</a>').format(address, name) for name, address in card.links
    )
    details = Markup("<details><summary>settings</summary><pre>{}</pre></details>").format(
        card.details
    )
    return Markup(
        '<figure><figcaption>{}<br><span class="about">{}</span></figcaption>{}'
        '<audio controls preload="metadata" src="{}"></audio>{}{}</figure>'
    ).format(
        card.title, card.about, card.picture, card.source, links, details if card.details else ""
    )
