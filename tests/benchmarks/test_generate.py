"""That all ways to generate give as many codes after the same prompt, and what the sections say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import audiolm.benchmarks.limits as limits
import audiolm.benchmarks.trainee as trainee_module
from audiolm.benchmarks.generate import Decoder, GenerateSettings, _Generation, generate_section
from audiolm.benchmarks.length import LengthSettings, length_section
from audiolm.benchmarks.musicgen import musicgen, musicgen_decode
from audiolm.benchmarks.plain_gpt import plain_decode, plain_gpt
from audiolm.benchmarks.sizes import PATTERN, ModelSize
from audiolm.benchmarks.trainee import random_codes
from audiolm.model import deinterleave, interleave, make_pattern
from audiolm.model.language_model import shift_right

SIZE = ModelSize(
    embed_dim=48, num_layers=2, num_heads=4, num_codebooks=3, codebook_size=32, frames=20
)
PROMPT = random_codes(replace(SIZE, frames=5), 2)
SETTINGS = GenerateSettings(
    frames=8,
    prompt_frames=4,
    top_k=10,
    batches=(1, 3),
    weights=("float32",),
    peers=("plain_gpt",),
    rounds=1,
    large={"embed_dim": 96, "num_layers": 3},
    large_codebooks=(2, 4),
    large_frames=6,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short samples, and no compiler."""
    monkeypatch.setattr(limits, "SECONDS", 0.01)
    monkeypatch.setattr(limits, "READ_BYTES", 2**16)
    monkeypatch.setattr(trainee_module, "SECONDS", 0.01)

    def no_compiler(*arguments: object) -> None:
        raise ValueError("no compiler")

    monkeypatch.setattr("audiolm.generation.engines.engine.load_library", no_compiler)


def test_the_plain_gpt_reads_the_same_with_and_without_memory() -> None:
    model = plain_gpt(SIZE).eval()
    steps = torch.randint(33, (2, 3, 12), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        whole = model(steps)
        memory = model.allocate(2, 12)
        parts = [model(steps[:, :, :7], memory)]
        parts += [model(steps[:, :, i : i + 1], memory, i) for i in range(7, 12)]
        ahead = model(steps[:, :, :5])
    assert torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-5)
    assert torch.allclose(ahead, whole[:, :5], atol=1e-5), "nothing from the future"


def test_the_plain_gpt_goes_on_from_a_prompt() -> None:
    codes = plain_decode(plain_gpt(SIZE).eval(), PROMPT, 15, 10)
    assert codes.shape == (2, 3, 15) and torch.equal(codes[:, :, :5], PROMPT)
    assert int(codes.min()) >= 0 and int(codes.max()) < 32


@pytest.mark.parametrize("cache", [None, "static"])
def test_musicgen_goes_on_from_a_prompt(cache: str | None) -> None:
    pytest.importorskip("transformers")
    steps = []
    codes = musicgen_decode(
        musicgen(SIZE, "sdpa").eval(),
        PROMPT,
        15,
        10,
        cache=cache,
        each_step=lambda: steps.append(1),
    )
    assert codes.shape == (2, 3, 15) and torch.equal(codes[:, :, :5], PROMPT)
    assert int(codes.max()) < 32
    assert len(steps) == 15 - 5 + 3 - 1, "the delay's steps too, as all candidates take"


@pytest.mark.parametrize("name", ["plain GPT", "MusicGen", "MusicGen, static cache"])
def test_what_is_generated_follows_from_all_that_was_before(name: str) -> None:
    """Each code is the most probable one after the prompt and the codes before it."""
    positions = make_pattern(PATTERN, 3).positions(15)
    torch.manual_seed(0)
    if name == "plain GPT":
        plain = plain_gpt(SIZE).eval()
        codes = plain_decode(plain, PROMPT, 15, top_k=1)
        steps = interleave(codes, positions, 32)
        with torch.inference_mode():
            logits = plain(shift_right(steps, 32)).transpose(1, 2)
    else:
        pytest.importorskip("transformers")
        peer = musicgen(SIZE, "sdpa").eval()
        cache = "static" if "static" in name else None
        codes = musicgen_decode(peer, PROMPT, 15, top_k=1, cache=cache)
        steps = interleave(codes, positions, 32)
        with torch.inference_mode():
            output = peer(shift_right(steps, 32).flatten(0, 1), use_cache=False)
            logits = output.logits.view(*steps.shape, 32)
    # Of equal ones it may be either.
    best = logits.amax(dim=-1)
    taken = logits.gather(-1, steps.clamp(max=31)[..., None])[..., 0]
    short = deinterleave(best - taken, positions)[:, :, 5:]
    assert short.max() < 1e-4 < best.std()
    assert len(codes[:, :, 5:].unique()) > 5


def test_what_a_step_reads_is_counted() -> None:
    model = plain_gpt(SIZE)
    matrices = SIZE.num_layers * 12 * 48**2 + 3 * 32 * 48
    decoder = Decoder("plain", model, lambda p, n: p, lambda p, n: p, "int8", "bfloat16")
    read = decoder.gb_a_step(SIZE, batch=2, past=10)
    assert read == pytest.approx((matrices + 2 * 2 * 2 * 48 * 10 * 2) / 1e9)


def test_too_few_codes_are_not_measured() -> None:
    short = Decoder("short", plain_gpt(SIZE), lambda p, n: p, lambda p, n: p)
    with pytest.raises(RuntimeError, match="short did not continue the prompt"):
        _Generation(short, SIZE, 5, 1)()


def test_the_section_has_measurements_with_shares() -> None:
    section = generate_section(SETTINGS, SIZE, show_progress=False)
    shares = {f.name: f.share for f in section.measurements if f.share is not None}
    assert "batch 1: this package, eager, float32" in shares
    assert "batch 3: plain GPT, float32" in shares
    assert all(0 < share < 1.2 for share in shares.values())
    large = [name for name in shares if "codebooks: this package" in name]
    assert len(large) == 2
    assert all("x real time" in section.facts[name] for name in large)
    assert "ms a step, ready after" in section.facts["batch 3: plain GPT, float32"]
    key = "batch 1: this package, eager, float32 / plain GPT, float32"
    assert " x (" in section.facts[key]


def test_the_section_measures_musicgen() -> None:
    pytest.importorskip("transformers")
    settings = replace(SETTINGS, peers=("musicgen",), batches=(2,), large_codebooks=())
    section = generate_section(settings, SIZE, show_progress=False)
    names = [f.name for f in section.measurements]
    for kind in ("growing cache", "static cache"):
        assert f"batch 2: MusicGen, {kind}, float32" in names


@pytest.mark.parametrize("name", ["frames", "prompt_frames", "large_frames", "rounds"])
def test_nothing_to_generate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"generate\.{name}=0 must be a whole number from 1"):
        generate_section(replace(SETTINGS, **{name: 0}), SIZE, show_progress=False)


LENGTH = LengthSettings(
    contexts=(8, 16), step_frames=32, frames=(6, 14, 30), last=3, window=12, top_k=10, peers=()
)


def test_length_is_measured_in_training_and_generation() -> None:
    section = length_section(LENGTH, SIZE, show_progress=False)
    names = [measurement.name for measurement in section.measurements]
    assert "train 8 frames" in names and "train 16 frames, checkpointing" in names
    assert "generate this package, 30 frames" in names
    by_name = {measurement.name: measurement for measurement in section.measurements}
    found = by_name["generate this package, 30 frames"]
    assert (
        len(found.samples) == LENGTH.rounds and found.against == "generate this package, 6 frames"
    )
    kept = [
        float(section.facts[f"train 16 frames{how}"].split()[0]) for how in ("", ", checkpointing")
    ]
    assert kept[1] <= kept[0]
    assert " x (" in section.facts["generate this package, time a frame at 30 against at 6 frames"]


def test_length_measures_musicgen() -> None:
    pytest.importorskip("transformers")
    section = length_section(replace(LENGTH, peers=("musicgen",)), SIZE, show_progress=False)
    found = [f for f in section.measurements if f.name.startswith("generate MusicGen")]
    assert len(found) == 3 and all(s.seconds > 0 for f in found for s in f.samples)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"contexts": (0, 4)}, r"length\.contexts=0 must be a whole number from 1"),
        ({"contexts": ()}, r"length\.contexts=\[\] measures nothing"),
        ({"frames": (6, 7)}, r"length\.frames=\[6, 7\] must grow, each by at least"),
        ({"frames": (2,)}, r"length\.frames=\[2\] must grow"),
        ({"frames": ()}, r"length\.frames=\[\] must grow"),
        ({"last": 0}, r"at least length\.last=0"),
    ],
)
def test_lengths_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        length_section(replace(LENGTH, **wrong), SIZE, show_progress=False)
