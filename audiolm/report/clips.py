"""Clips to listen to inside a page: a player, and the spectrogram of what it plays.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from torch import Tensor

from audiolm.audio import AudioError, read_audio
from audiolm.audio.flac import flac_bytes
from audiolm.report.files import RunFiles
from audiolm.report.theme import new_axes, svg
from audiolm.spectrogram import plot_mel

MOST_SECONDS = 20.0
"""Of a clip that are played."""
COLUMNS = 150
"""About half of the frames of a spectrogram."""


@dataclass(frozen=True)
class Wanted:
    """A clip that a page would have.

    Attributes:
        group: of clips that stand beside each other.
        title: above the player.
        file: in the run's folder.
        rank: the lower, the sooner it is taken into a page that has no room for all.
        about: what it was conditioned on, if that is known.
    """

    group: str
    title: str
    file: str
    rank: int
    about: str = ""


@dataclass(frozen=True)
class Player:
    """A clip in a page."""

    title: str
    seconds: Markup
    file: str
    source: str
    """The sound, as an address that holds it."""
    picture: Markup
    about: str

    @property
    def size(self) -> int:
        """Bytes in the page."""
        return len(self.source) + len(self.picture) + len(self.about)


def make_players(
    files: RunFiles, wanted: Sequence[Wanted], budget: int, first_figure: int
) -> tuple[dict[str, list[Player]], list[str]]:
    """The clips that fit, by group, each in the order given; and the files of those that do not.

    A file that cannot be played is put among what is missing.

    Args:
        files: the run's.
        wanted: what the page would have.
        budget: bytes in the page for all of them.
        first_figure: number of the first spectrogram among the page's figures.
    """
    made: dict[int, Player] = {}
    omitted = []
    for index in sorted(range(len(wanted)), key=lambda i: wanted[i].rank):
        try:
            player = _make_player(files, wanted[index], first_figure + index)
        except (AudioError, OSError, ValueError) as error:
            files.missing[wanted[index].file] = f"it cannot be played: {error}"
            continue
        if player.size > budget:
            omitted.append(wanted[index].file)
            continue
        budget -= player.size
        made[index] = player
    groups: dict[str, list[Player]] = {}
    for index in sorted(made):
        groups.setdefault(wanted[index].group, []).append(made[index])
    return groups, sorted(omitted)


def _make_player(files: RunFiles, wanted: Wanted, figure_number: int) -> Player:
    waveform, rate = read_audio(files.run.path / wanted.file, duration=MOST_SECONDS)
    # What is played, of a file that may be longer.
    files.holds(wanted.file, {"seconds": waveform.shape[1] / rate})
    return Player(
        wanted.title,
        files.number(wanted.file, "seconds", style=".2f"),
        wanted.file,
        sound_address(waveform, rate),
        spectrogram(waveform, rate, figure_number, wanted.title),
        wanted.about,
    )


def spectrogram(waveform: Tensor, sample_rate: int, figure_number: int, title: str) -> Markup:
    """The mel spectrogram of (C, N) as an element of a page.

    Raises:
        ValueError: as `log_mel_spectrogram`.
    """
    figure, (axes,) = new_axes(width=3.6, height=2.0)
    plot_mel(axes, waveform, sample_rate, COLUMNS, spacing=0.12)
    axes.images[0].set_interpolation("none")
    axes.set_xlabel("time (s)")
    return svg(figure, figure_number, f"spectrogram: {title}")


def sound_address(waveform: Tensor, sample_rate: int) -> str:
    """The waveform (C, N) as an address that holds it.

    Raises:
        ValueError: as `flac_bytes`.
    """
    sound = base64.b64encode(flac_bytes(waveform, sample_rate)).decode("ascii")
    return f"data:audio/flac;base64,{sound}"
