"""What a synthesizer promises, whatever the model: seeds, batches, streams, prompts, scores."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from audiolm.audio import write_wav
from audiolm.model.likelihood import nats_per_code
from audiolm.synthesis.request import Request
from audiolm.synthesis.sample import Sample
from audiolm.synthesis.synthesizer import Synthesizer

from .conftest import CONTEXT, VOCABULARY

ENDLESS = {"duration": 0.91, "end": False}  # 61 frames: more than two contexts


def same(one: Sample, two: Sample) -> bool:
    return torch.equal(one.codes, two.codes) and torch.equal(one.waveform, two.waveform)


def test_a_sample_depends_on_its_seed_and_not_on_the_batch(synthesizer: Synthesizer) -> None:
    batch = synthesizer.generate_batch(3, seed=5, label="no", **ENDLESS)
    assert [sample.seed for sample in batch] == [5, 6, 7]
    alone = synthesizer.generate(seed=6, label="no", **ENDLESS)
    assert same(alone, batch[1]) and alone.nats_per_code == batch[1].nats_per_code
    assert not same(batch[0], batch[1])


def test_each_sample_has_its_own_conditions(synthesizer: Synthesizer) -> None:
    rows = [{"label": "no"}, {"label": "so", "speaker": "ada"}]
    batch = synthesizer.generate_batch(2, conditions=rows, best_of=2, **ENDLESS)
    assert [sample.settings["conditioning"] for sample in batch] == rows
    alone = synthesizer.generate(label="so", speaker="ada", seed=2, best_of=2, **ENDLESS)
    assert same(alone, batch[1])
    assert not same(alone, synthesizer.generate(label="oh", seed=2, best_of=2, **ENDLESS))


def test_a_stream_is_the_sample(synthesizer: Synthesizer) -> None:
    for settings in (ENDLESS, {"duration": 3.0, "seed": 4, "temperature": 1.3}):
        blocks = list(synthesizer.stream(label="no", **settings))
        sample = synthesizer.generate(label="no", **settings)
        assert len(blocks) > 1 and all(block.shape[0] == 1 for block in blocks)
        joined = torch.cat(blocks, dim=1)
        torch.testing.assert_close(joined, sample.waveform, rtol=0, atol=1e-5)


def test_a_stream_has_no_end_of_its_own(synthesizer: Synthesizer) -> None:
    stream = synthesizer.stream(duration=math.inf, end=False)
    assert isinstance(stream, Iterator)
    assert sum(next(stream).shape[1] for _ in range(10)) > 100


def test_the_best_of_several_is_the_most_probable(synthesizer: Synthesizer) -> None:
    candidates = synthesizer.generate_batch(4, seed=8, label="no", duration=0.5)
    best = synthesizer.generate(seed=8, label="no", duration=0.5, best_of=4)
    lowest = min(candidates, key=lambda sample: sample.nats_per_code)
    assert same(best, lowest) and best.seed == lowest.seed


def test_a_prompt_of_any_kind_survives(synthesizer: Synthesizer, tmp_path: Path) -> None:
    codec = synthesizer.codec
    waveform = 0.1 * torch.randn(1, 20 * 12 + 5, generator=torch.Generator().manual_seed(0))
    write_wav(tmp_path / "start.wav", waveform, codec.sample_rate, subtype="FLOAT")
    codes = codec.encode(waveform[None, :, : 20 * 12])[0]
    prompts: list[Any] = [waveform, waveform[0].numpy(), tmp_path / "start.wav"]
    samples = [synthesizer.generate(prompt=prompt, **ENDLESS) for prompt in prompts]
    for sample in samples:
        assert torch.equal(sample.codes[:, :20], codes) and sample.codes.shape == (4, 61)
        assert sample.settings["prompt_seconds"] == pytest.approx(20 * 12 / 800)
        assert same(sample, samples[0])
    longer = synthesizer.generate(prompt=samples[0], prompt_duration=0.4, seed=1, **ENDLESS)
    kept = int(0.4 * codec.frame_rate)
    assert torch.equal(longer.codes[:, :kept], samples[0].codes[:, :kept])
    assert not torch.equal(longer.codes, samples[0].codes)


def test_a_waveform_may_be_any_array_of_numpys(synthesizer: Synthesizer) -> None:
    sound = 0.1 * np.random.default_rng(0).standard_normal((1, 600))[:, :240]
    plain = synthesizer.score(np.ascontiguousarray(sound, np.float32))
    for other in (sound[:, ::-1][:, ::-1], sound.astype(">f4"), sound.tolist(), sound[0]):
        assert synthesizer.score(other) == plain
    assert synthesizer.score(sound[:, ::-1]) != plain


@pytest.mark.parametrize("setting", [{"duration": 2.0}, {"seed": 1}, {"top_k": 3}])
def test_a_score_has_no_settings_of_generation(
    synthesizer: Synthesizer, setting: dict[str, Any]
) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} is a setting of generation, .* omit it"):
        synthesizer.score(torch.zeros(1, 100), label="no", **setting)


def test_a_score_is_that_of_the_codes(synthesizer: Synthesizer, tmp_path: Path) -> None:
    codec, trained = synthesizer.codec, synthesizer.trained
    waveform = 0.1 * torch.randn(1, 900, generator=torch.Generator().manual_seed(0))
    score = synthesizer.score(waveform, label="no", speaker="ada")
    codes = codec.encode(waveform[None])[0]
    assert codes.shape[1] > CONTEXT  # two windows and a part of one
    rows = VOCABULARY.encode([{"label": "no", "speaker": "ada"}])
    nats = nats_per_code(trained.model, trained.pattern, codes, CONTEXT, rows, ended=True)
    assert score.nats_per_code == pytest.approx(nats)
    bits = nats * (codes.numel() + 1) / math.log(2)
    assert score.bits_per_second * score.seconds == pytest.approx(bits)
    assert score.seconds == 75 * 12 / 800
    assert score.uniform_nats_per_code == math.log(32)
    assert score.codec_bits_per_second == pytest.approx(4 * 5 * 800 / 12)
    write_wav(tmp_path / "clip.wav", waveform, 800, subtype="FLOAT")
    assert synthesizer.score(tmp_path / "clip.wav", {"label": "no", "speaker": "ada"}) == score
    assert synthesizer.score(waveform).nats_per_code != score.nats_per_code


def test_a_generated_sample_scores_its_own_nats(synthesizer: Synthesizer) -> None:
    sample = synthesizer.generate(label="no", seed=4, duration=3.0, temperature=1.3)
    trained = synthesizer.trained
    rows = VOCABULARY.encode([{"label": "no"}])
    nats = nats_per_code(
        trained.model, trained.pattern, sample.codes, CONTEXT, rows, ended=sample.ended
    )
    assert sample.nats_per_code == pytest.approx(nats)
    assert synthesizer.score(sample, label="no").nats_per_code == pytest.approx(nats)


def test_a_vector_may_be_a_file_and_unknown_characters_are_named(
    synthesizer: Synthesizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.save(tmp_path / "v.npy", np.array([1.0, 2.0]))
    by_file = synthesizer.generate(text="Oh? no!", embedding=str(tmp_path / "v.npy"), **ENDLESS)
    assert "no text in training had them: ?!" in caplog.text
    by_list = synthesizer.generate(text="oh no", embedding=[1.0, 2.0], **ENDLESS)
    assert same(by_file, by_list)


def test_settings_are_those_of_the_request() -> None:
    given = inspect.signature(Synthesizer.generate).parameters
    for each in dataclasses.fields(Request):
        if each.name in ("num_samples", "streamed", "conditions"):
            continue
        assert given[each.name].default == each.default, each.name


def test_engines_are_built_once(synthesizer: Synthesizer) -> None:
    synthesizer.generate(engine="eager", **ENDLESS)
    first = synthesizer._engines["eager", "float32"]
    synthesizer.generate(engine="eager", duration=0.2, label="no")
    assert synthesizer._engines["eager", "float32"] is first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temprature": 0.5}, "temprature is neither .* did you mean temperature"),
        ({"lable": "no"}, r"did you mean label\?; its conditions are label, speaker, text"),
        ({"label": "noo"}, "label=noo is not a label of this model"),
        ({"conditions": {"mood": "sad"}}, "mood is not a condition of this model"),
        ({"temperature": 0}, "temperature=0 must be"),
        ({"top_k": 0}, "top_k=0 must be a whole number from 1"),
        ({"duration": 0}, "duration=0 must be a number above 0"),
        ({"duration": math.inf}, r"duration=inf .* use stream\(\)"),
        ({"duration": math.nan}, "duration=nan"),
        ({"duration": "5"}, "duration=5 must be a number"),
        ({"duration": 1e12}, r"duration=1000000000000\.0 must be"),
        ({"duration": 1e9}, "duration=1e[+]09 is more than a WAV file .* 2,684,354 s"),
        ({"seed": -1}, "seed=-1 must be a whole number from 0"),
        ({"seed": 2**64}, f"seed={2**64} must be"),
        ({"seed": 2**32 - 1, "best_of": 2}, "last sample's seed=4294967296 must .* lower seed="),
        ({"prompt_duration": math.inf}, "prompt_duration=inf must .* omit it for all"),
        ({"best_of": 0}, "best_of=0 must be a whole number from 1"),
        ({"num_samples": 2}, "num_samples is for several samples; .* generate_batch"),
        ({"engine": "fast"}, "engine='fast' is unknown"),
        ({"weights": "int4"}, "int4"),
        ({"guidance": -1}, "guidance=-1"),
        ({"prompt": torch.zeros(1, 5)}, "has 5 samples, less than one frame of 12"),
        ({"prompt": torch.zeros(1, 600)}, "the prompt of 0.75 s .* context of 0.45 s"),
        ({"prompt": torch.zeros(2, 100)}, "this codec takes"),
        ({"prompt": torch.full((1, 100), math.nan)}, "NaN or infinite"),
        ({"prompt": torch.zeros(1, 100), "prompt_duration": 0}, "prompt_duration=0 must"),
        ({"prompt": torch.zeros(100, 1)}, r"shape \(100, 1\): .* transpose it"),
        ({"prompt": 3}, "int is no sound; give a file's path"),
        ({"prompt_duration": 1}, "prompt_duration=1 is of a prompt, and there is none"),
        ({"conditions": 3}, "conditions=3 must be a mapping"),
        ({"conditions": ["no"]}, "conditions=.* must be a mapping"),
        ({"sampling": {"top_k": 3}}, "must be a Sampling; .* by name"),
        ({"sampling": {"top_k": 3}, "top_p": 0.5}, "must be a Sampling; .* by name"),
        ({"conditions": 3, "label": "no"}, "conditions=3 must be a mapping"),
        ({"conditions": ["no"], "label": "no"}, "conditions=.* must be a mapping"),
        ({"prompt": [[0.0, 1.0], [0.0]]}, r"the list holds no waveform .* shape \(1, samples\)"),
        ({"prompt": ["a"]}, "the list holds no waveform"),
        ({"prompt": np.array([None])}, "the ndarray holds no waveform"),
        ({"prompt": np.zeros(100, np.int16)}, "give floating point samples"),
        ({"embedding": [1.0]}, "embedding has 1 numbers, this model wants 2"),
    ],
    ids=str,
)
def test_bad_input_is_answered_in_one_line(
    synthesizer: Synthesizer, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        synthesizer.generate(**settings)
    assert "\n" not in str(refused.value)


def test_what_does_not_go_together_is_refused_at_the_call(
    synthesizer: Synthesizer, make_synthesizer: Callable[..., Synthesizer]
) -> None:
    with pytest.raises(ValueError, match="best_of=2 chooses among whole samples"):
        synthesizer.stream(best_of=2)
    with pytest.raises(ValueError, match="conditions of 1 samples for num_samples=2"):
        synthesizer.generate_batch(2, conditions=[{"label": "no"}])
    plain = make_synthesizer(None)
    assert plain.conditions == [] and plain.generate(duration=0.2).codes.shape[1] > 0
    with pytest.raises(ValueError, match=r"label is neither .* it has no conditions"):
        plain.generate(label="no")
    with pytest.raises(ValueError, match=r"^label: .* trained without conditions"):
        plain.generate(conditions={"label": "no"})
    with pytest.raises(ValueError, match="label is neither"):
        plain.score(torch.zeros(1, 100), label="no")


def test_folders_without_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="no run with a checkpoint"):
        Synthesizer.load()
    with pytest.raises(FileNotFoundError, match=r"is not a run's folder: .* runs/NAME/TIME"):
        Synthesizer.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.ckpt"):
        Synthesizer.load("nowhere.ckpt")
    for thing in (3, b"run", ["run"]):
        with pytest.raises(ValueError, match=r"is not a path; give it as text, or as a Path"):
            Synthesizer.load(thing)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"ckpt_path=FILE, or in Python audiolm\.load"):
        Synthesizer.load()


def test_numbers_of_numpy_are_numbers(synthesizer: Synthesizer) -> None:
    plain = synthesizer.generate(duration=0.2, seed=3, temperature=0.5, top_k=5)
    numpys = synthesizer.generate(
        duration=np.float32(0.2), seed=np.int64(3), temperature=np.float64(0.5), top_k=np.uint8(5)
    )
    assert torch.equal(plain.codes, numpys.codes)
    json.dumps(numpys.describe())  # and are written as such


def test_the_codes_of_another_codec_are_refused(synthesizer: Synthesizer) -> None:
    sample = synthesizer.generate(duration=0.2)
    synthesizer.generate(duration=0.4, prompt=sample)
    codec = {**sample.settings["codec"], "fingerprint": "another"}
    others = [
        dataclasses.replace(sample, settings={**sample.settings, "codec": codec}),
        dataclasses.replace(sample, codes=sample.codes[:1]),
        dataclasses.replace(sample, frame_rate=2 * sample.frame_rate),
    ]
    for other in others:
        with pytest.raises(ValueError, match=r"the sample is of codec .* pass its waveform"):
            synthesizer.generate(duration=0.4, prompt=other)
        with pytest.raises(ValueError, match="the sample is of codec"):
            synthesizer.score(other)
