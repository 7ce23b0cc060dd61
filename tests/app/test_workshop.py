"""The app's samples are those of generate.py, and Stop stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from audiolm.app.results import Card
from audiolm.app.workshop import StoppedByUser, Workshop
from audiolm.synthesis.request import SAMPLING
from audiolm.synthesis.synthesizer import Synthesizer

from ..scripts.conftest import RunScript, run_script
from .conftest import MakeRun

__all__ = ["run_script"]

VALUES = {"num_samples": 2, "duration": 1.5, "seed": 5, "end": False, "temperature": 1.1}
CONDITIONS = {"label": "no", "text": "oh so"}


def ignore(done: int, of: int | None) -> None: ...


def finish(made: Any) -> tuple[list[torch.Tensor], list[Card], str]:
    """The blocks that were heard, the cards and the line."""
    blocks = []
    while True:
        try:
            blocks.append(next(made))
        except StopIteration as end:
            return (blocks, *end.value)


def saved(workshop: Workshop, run: str = "one") -> list[Path]:
    return sorted((workshop.checkpoint.parents[2] / run / "generated").glob("*/*.wav"))


@pytest.mark.parametrize("best_of", [1, 2])
def test_a_sample_is_that_of_generate_py(
    workshop: Workshop, run_script: RunScript, tmp_path: Path, best_of: int
) -> None:
    frames: list[tuple[int, int | None]] = []
    made = workshop.generate(
        "me", {**VALUES, "best_of": best_of}, CONDITIONS, lambda *each: frames.append(each)
    )
    blocks, cards, line = finish(made)
    ran = run_script(
        "generate", f"ckpt_path={workshop.checkpoint}", f"out={tmp_path / 'out'}",
        "num_samples=2", "duration=1.5", "seed=5", "sampling.end=false",
        "sampling.temperature=1.1", "conditioning.label=no", "conditioning.text=oh so",
        f"best_of={best_of}",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    theirs = sorted((tmp_path / "out").glob("*.wav"))
    ours = saved(workshop)
    assert len(cards) == len(ours) == len(theirs) == 2 and "2 samples in `" in line
    for our, their in zip(ours, theirs, strict=True):
        assert our.read_bytes() == their.read_bytes()
        about, other = (json.loads(f.with_suffix(".json").read_text()) for f in (our, their))
        assert about.keys() == other.keys()
        measured = {"seconds_loading", "seconds_building", "frames_per_second", "realtime_factor"}
        assert all(about[key] == other[key] for key in about.keys() - measured)
    total = frames[-1][1]
    assert [done for done, _ in frames] == list(range(1, (total or 0) + 1))
    if best_of == 1:  # what was heard is the first sample
        whole = workshop.synthesizer.generate(
            **{k: v for k, v in VALUES.items() if k != "num_samples"}, conditions=CONDITIONS
        )
        assert torch.allclose(torch.cat(blocks, dim=1), whole.waveform, atol=1e-4)


def test_a_browser_s_recording_is_continued_as_by_generate_py(
    workshop: Workshop, run_script: RunScript, tmp_path: Path
) -> None:
    """Browsers record at 48 kHz in 16 bits, and some in stereo."""
    recording = tmp_path / "recorded.wav"
    noise = np.random.default_rng(0).integers(-9000, 9000, (48_000, 2), np.int16)
    soundfile.write(recording, noise, 48_000, subtype="PCM_16")
    values = {**VALUES, "prompt": str(recording), "prompt_duration": "0.5", "num_samples": 1}
    _, cards, _ = finish(workshop.generate("me", values, {}, ignore))
    assert "s of a recording" in cards[0].about
    ran = run_script(
        "generate", f"ckpt_path={workshop.checkpoint}", f"out={tmp_path / 'out'}",
        "num_samples=1", "duration=1.5", "seed=5", "sampling.end=false",
        "sampling.temperature=1.1", f"prompt={recording}", "prompt_duration=0.5",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    (ours,) = saved(workshop)
    assert ours.read_bytes() == (tmp_path / "out" / "sample_000.wav").read_bytes()


def test_the_cards_hold_settings_and_files(workshop: Workshop) -> None:
    _, cards, _ = finish(workshop.generate("me", VALUES, CONDITIONS, ignore))
    assert [card.title for card in cards] == ["seed 5 · 1.50 s", "seed 6 · 1.50 s"]
    assert json.loads(cards[0].details)["conditioning"] == CONDITIONS
    assert [name for name, _ in cards[0].links] == ["WAV", "JSON"]
    assert cards[0].source.endswith("/sample_000.wav")


def test_stop_ends_it_within_a_frame_and_keeps_nothing(workshop: Workshop) -> None:
    seen = []

    def stop_at_ten(done: int, of: int | None) -> None:
        seen.append(done)
        if done == 10:
            assert workshop.stop("me")
            assert not workshop.stop("somebody else")

    with pytest.raises(StoppedByUser):
        finish(workshop.generate("me", VALUES, {}, stop_at_ten))
    assert seen == list(range(1, 11)) and saved(workshop) == []
    assert not workshop.stop("me")
    assert len(finish(workshop.generate("me", VALUES, {}, ignore))[1]) == 2


def test_stop_is_also_for_those_who_wait(workshop: Workshop) -> None:
    workshop.enter("me")
    assert workshop.stop("me")
    with pytest.raises(StoppedByUser):
        finish(workshop.generate("me", VALUES, {}, ignore))
    workshop.enter("you")
    assert workshop.stop("you", leaving=True) and not workshop.stop("you")


def test_two_checkpoints_on_the_same_seeds(workshop: Workshop) -> None:
    cards = workshop.compare("me", "other", VALUES, CONDITIONS, ignore)
    seeds = [json.loads(card.details)["seed"] for card in cards]
    models = [card.title.split(" · ")[0] for card in cards]
    assert seeds == [5, 5, 6, 6] and models == ["this", "other"] * 2
    ours, theirs = saved(workshop), saved(workshop, "other")
    assert ours[0].read_bytes() != theirs[0].read_bytes()
    other = Synthesizer.load(workshop.others["other"])
    sample = other.generate_batch(**VALUES, conditions=CONDITIONS)[0]
    again = sample.save(workshop.checkpoint.parent / "again.wav")
    assert again.read_bytes() == theirs[0].read_bytes()
    with pytest.raises(ValueError, match="no checkpoint /etc/passwd to compare with"):
        workshop.compare("me", "/etc/passwd", VALUES, CONDITIONS, ignore)


def test_samples_go_to_a_folder_of_choice(make_run: MakeRun, tmp_path: Path) -> None:
    synthesizer = Synthesizer.load(make_run("run"))
    workshop = Workshop(synthesizer, Synthesizer.load, {}, sampling=SAMPLING, out=tmp_path / "out")
    finish(workshop.generate("me", VALUES, {}, ignore))
    assert len(list((tmp_path / "out").glob("*/sample_00?.wav"))) == 2
    assert workshop.folders() == [tmp_path / "out"]
    assert not (tmp_path / "run" / "generated").exists()
