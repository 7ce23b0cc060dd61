"""That every candidate trains, on the same codes, and what the section says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

import audiolm.benchmarks.limits as limits
import audiolm.benchmarks.trainee as trainee_module
from audiolm.benchmarks.lightning_loop import BARE, LOOP, lightning_loop
from audiolm.benchmarks.rounds import Measurement
from audiolm.benchmarks.sizes import MUSICGEN, OURS, PLAIN, ModelSize
from audiolm.benchmarks.train import TrainSettings, make_trainees, train_section

SIZE = ModelSize(
    embed_dim=48, num_layers=2, num_heads=4, num_codebooks=3, codebook_size=32, frames=20
)
OPTIM = {"lr": 1e-2, "warmup_steps": 0}
TRAINER = {"accelerator": "cpu", "devices": 1, "gradient_clip_val": 1.0, "num_sanity_val_steps": 0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.01)
    monkeypatch.setattr(limits, "READ_BYTES", 2**16)
    monkeypatch.setattr(trainee_module, "SECONDS", 0.01)


def peers() -> list[str]:
    try:
        import transformers  # noqa: F401
    except ImportError:
        return ["plain_gpt"]
    return ["plain_gpt", "musicgen"]


def test_every_candidate_learns_the_same_codes() -> None:
    settings = TrainSettings(2, peers(), kernels=("from_scratch", "fused"), optim=OPTIM)
    trainees = make_trainees(settings, SIZE, {})
    assert [t.name for t in trainees[:4]] == [
        OURS,
        f"{OURS}, from_scratch attention",
        f"{OURS}, fused attention",
        PLAIN,
    ]
    for trainee in trainees:
        losses = [trainee.step(bf16=i % 2 == 1) for i in range(12)]
        assert losses[0] == pytest.approx(math.log(32), abs=0.2), trainee.name
        assert losses[-1] < losses[0] - 0.3, trainee.name
        assert all(p.grad is None for p in trainee.model.parameters())
        assert all(p.dtype == torch.float32 for p in trainee.model.parameters())


def test_a_peer_that_is_not_installed_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object) -> None:
        raise ImportError("no transformers")

    monkeypatch.setattr("audiolm.benchmarks.train.musicgen", missing)
    facts: dict[str, str] = {}
    trainees = make_trainees(TrainSettings(2, optim=OPTIM), SIZE, facts)
    assert [t.name for t in trainees] == [OURS, PLAIN]
    assert facts == {MUSICGEN: "not measured: no transformers"}


def test_what_is_compiled_is_compared_with_what_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compiled.append(self))
    settings = TrainSettings(2, peers(), compile=True, lightning_steps=0, optim=OPTIM)
    section = train_section(settings, SIZE, 1, show_progress=False)
    names = {
        f.name.removesuffix(", fp32") for f in section.measurements if f.name.endswith(", fp32")
    }
    plainly = {name for name in names if not name.endswith(", compiled")}
    assert names == plainly | {f"{name}, compiled" for name in plainly}
    assert len(compiled) == len(plainly) == len({id(model) for model in compiled})
    assert f"{OURS}, compiled, fp32 / {PLAIN}, compiled, fp32" in section.facts
    assert f"{OURS}, fp32 / {PLAIN}, fp32" in section.facts
    ratios = [name for name in section.facts if " / " in name and "default" not in name]
    assert all(name.count("compiled") in (0, 2) for name in ratios)


def shares(measurements: Sequence[Measurement]) -> list[float]:
    return [measurement.share for measurement in measurements if measurement.share is not None]


def test_the_section_has_measurements_with_shares_and_says_the_work() -> None:
    settings = TrainSettings(2, peers(), lightning_steps=2, optim=OPTIM, trainer=TRAINER)
    section = train_section(settings, SIZE, 1, show_progress=False)
    names = [measurement.name for measurement in section.measurements]
    assert f"{OURS}, fp32" in names and f"{PLAIN}, fp32" in names and LOOP in names
    found = shares(section.measurements)
    assert len(found) >= 2 and all(0 < share < 1.2 for share in found)
    assert "120 codes in 44 steps of the sequence" in section.facts["step"]
    assert "3.4" in section.facts[PLAIN] and "nats per code at first" in section.facts[OURS]
    assert f"{OURS}, fp32 / {PLAIN}, fp32" in section.facts
    assert section.facts[f"{LOOP} / {BARE}"].endswith("%)")


def test_lightning_and_the_bare_loop_take_as_many_steps(capfd: pytest.CaptureFixture[str]) -> None:
    loop, bare = lightning_loop(SIZE, 2, {}, OPTIM, TRAINER, 3, 2, show_progress=False)
    assert (loop.name, bare.name) == (LOOP, BARE)
    assert len(loop.samples) == len(bare.samples) == 2
    assert loop.work == bare.work == 3 * 2 * 3 * 20
    assert loop.ratio is not None and loop.against == BARE
    assert "step" not in capfd.readouterr().out, "the trainer's own lines are kept back"


def test_ctrl_c_in_lightnings_loop_is_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("audiolm.benchmarks.trainee.Trainee.steps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lightning_loop(SIZE, 2, {}, OPTIM, TRAINER, 1, 1, show_progress=False)
