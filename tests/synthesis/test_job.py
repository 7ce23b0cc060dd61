"""A job of the model's own terms: codes, batches, and what counts as generated."""

from __future__ import annotations

import math

import pytest
import torch

from audiolm.synthesis.synthesizer import Synthesizer

from .conftest import VOCABULARY


def test_what_stands_behind_the_prompt_was_generated(synthesizer: Synthesizer) -> None:
    for prompt, samples, seconds in (
        (None, 800, 1.0),
        (torch.zeros(4, 20), 640, 0.5),
        (torch.zeros(4, 20), 240, 0.0),
        (torch.zeros(4, 20), 100, 0.0),
    ):
        job = synthesizer.job([0], 80, prompt=prompt)
        assert job.generated_seconds(samples) == seconds


@pytest.mark.parametrize("best_of", [1, 3])
def test_batches_change_nothing(synthesizer: Synthesizer, best_of: int) -> None:
    conditions = VOCABULARY.encode([{"label": name} for name in ("no", "oh", "so")] * 2)
    found = [
        synthesizer.job(
            range(3, 9), 25, conditions=conditions, batch_size=size, best_of=best_of
        ).samples()
        for size in (None, 4, 1)
    ]
    assert len(found[0]) == 6 // best_of
    for others in found[1:]:
        for one, two in zip(found[0], others, strict=True):
            assert one.seed == two.seed and torch.equal(one.codes, two.codes)
            assert torch.equal(one.waveform, two.waveform)


@pytest.mark.parametrize("best_of", [1, 2])
def test_samples_that_are_heard_meanwhile_are_the_same(
    synthesizer: Synthesizer, best_of: int
) -> None:
    job = synthesizer.job(range(4), 40, best_of=best_of, audio_samples=470)
    frames: list[int] = []
    heard, made = [], job.samples_heard(frames.append)
    while True:
        try:
            heard.append(next(made))
        except StopIteration as end:
            samples = end.value
            break
    whole = synthesizer.job(range(4), 40, best_of=best_of, audio_samples=470).samples()
    assert frames == list(range(1, max(frames) + 1))
    for one, two in zip(samples, whole, strict=True):
        assert torch.equal(one.waveform, two.waveform) and one.nats_per_code == two.nats_per_code
    if best_of == 1:
        torch.testing.assert_close(torch.cat(heard, dim=1), whole[0].waveform, atol=1e-4, rtol=0)


def test_what_raises_after_a_frame_ends_the_generation(synthesizer: Synthesizer) -> None:
    def at_five(done: int) -> None:
        if done == 5:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        list(synthesizer.job([0, 1], 40).samples_heard(at_five))


def test_scores_are_computed_only_where_they_are_wanted(synthesizer: Synthesizer) -> None:
    job = synthesizer.job([0, 1], 10)
    assert all(math.isnan(sample.nats_per_code) for sample in job.samples(score=False))
    assert all(sample.nats_per_code > 0 for sample in job.samples())


def test_a_sample_is_whole_frames_unless_a_length_is_given(synthesizer: Synthesizer) -> None:
    (whole,) = synthesizer.job([0], 10, conditions=None).samples()
    frames = whole.codes.shape[1]
    assert whole.waveform.shape == (1, 12 * frames) and whole.settings == {"step": 7}
    assert whole.ended == (frames < 10)
