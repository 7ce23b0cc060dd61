from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audiolm.codec import Codec, load_local

SHARED = Path(__file__).resolve().parents[3] / "shared"
DIGITS, TRIAL = SHARED / "audio" / "digits", SHARED / "codec" / "trial_8khz.safetensors"
needs_recordings = pytest.mark.skipif(
    not (DIGITS.is_dir() and TRIAL.is_file()), reason="no recordings and trial codec here"
)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_numbers_and_shapes(make_tiny_codec) -> None:
    codec: Codec = make_tiny_codec()
    assert (codec.sample_rate, codec.channels, codec.hop_length) == (800, 1, 12)
    assert codec.frame_rate == 800 / 12
    assert type(codec.hop_length) is int  # the package's is numpy's
    assert (codec.num_codebooks, codec.codebook_size) == (4, 32)
    for n in (1, 11, 12, 13, 240, 241):
        codes = codec.encode(noise(2, 1, n))
        assert codes.shape == (2, 4, -(-n // 12)) and codes.dtype == torch.int64
        assert codes.min() >= 0 and codes.max() < 32
        assert codec.decode(codes).shape == (2, 1, codes.shape[2] * 12)
        assert codec.decode(codes, num_samples=n).shape == (2, 1, n)


def test_trim_only_cuts(make_tiny_codec) -> None:
    codec = make_tiny_codec()
    codes = codec.encode(noise(1, 1, 100))
    assert torch.equal(codec.decode(codes, 100), codec.decode(codes)[..., :100])


@pytest.mark.parametrize("settings", [{}, {"causal": True, "lstm": 2}, {"norm": "none"}])
def test_codes_and_sound_are_the_packages(make_tiny_codec, package_model, settings) -> None:
    codec = make_tiny_codec(**settings)
    model = package_model(codec)
    x = noise(3, 1, 1000)
    ((codes, scale),) = model.encode(x)
    assert scale is None
    assert torch.equal(codec.encode(x), codes)
    torch.testing.assert_close(codec.decode(codes), model.decode([(codes, None)]))


def test_codes_vary_with_the_sound(make_tiny_codec) -> None:
    """Else the equalities in these tests would say nothing."""
    codes = make_tiny_codec().encode(noise(1, 1, 3000))[0]
    assert all(len(level.unique()) > 16 for level in codes)


def test_fewer_codebooks_are_the_first_ones(make_tiny_codec) -> None:
    x = noise(1, 1, 500)
    every = make_tiny_codec().encode(x)
    for k in (1, 2, 3):
        codec = make_tiny_codec(num_codebooks=k)
        assert torch.equal(codec.encode(x), every[:, :k])
        assert codec.fingerprint == make_tiny_codec().fingerprint
        assert codec.identity()["num_codebooks"] == k
        assert codec.decode(every[:, :k]).shape == (1, 1, 504)


@pytest.mark.parametrize("k", [0, 5])
def test_number_of_codebooks_has_limits(make_tiny_codec, k: int) -> None:
    with pytest.raises(ValueError, match=f"num_codebooks={k}: this codec can use 1 to 4"):
        make_tiny_codec(num_codebooks=k)


def test_precision_outside_changes_nothing(make_tiny_codec) -> None:
    codec = make_tiny_codec(lstm=1)
    x = noise(1, 1, 2000)
    codes = codec.encode(x)
    sound = codec.decode(codes)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(codec.encode(x), codes)
            again = codec.decode(codes)
            assert again.dtype == torch.float32 and torch.equal(again, sound)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_results_can_take_part_in_training(make_tiny_codec) -> None:
    codec = make_tiny_codec()
    codes = codec.encode(noise(1, 1, 100))
    torch.nn.Embedding(32, 2)(codes).sum().backward()
    sound = codec.decode(codes)
    (torch.ones((), requires_grad=True) * sound).sum().backward()


def test_a_sound_does_not_depend_on_its_batch(make_tiny_codec) -> None:
    codec = make_tiny_codec(lstm=1)
    codes = codec.encode(noise(5, 1, 700))
    together = codec.decode(codes)
    for i in range(5):
        assert torch.equal(codec.decode(codes[i : i + 1])[0], together[i])


def test_fingerprint_is_of_settings_and_weights(make_tiny_codec) -> None:
    a = make_tiny_codec()
    assert a.fingerprint == make_tiny_codec().fingerprint
    assert len(a.fingerprint) == 16 and int(a.fingerprint, 16) >= 0
    assert a.fingerprint != make_tiny_codec(seed=1).fingerprint
    other = type(a)({**a.settings, "sample_rate": 900}, a.weights)
    assert a.fingerprint != other.fingerprint
    changed = {k: v.clone() for k, v in a.weights.items()}
    changed["quantizer.vq.layers.3._codebook.embed"][-1, -1] += 1e-3
    assert a.fingerprint != type(a)(a.settings, changed).fingerprint


def test_fingerprint_ignores_training_buffers_and_defaults(make_tiny_codec, package_model) -> None:
    codec = make_tiny_codec()
    state = package_model(codec).state_dict()
    assert any(k.endswith("cluster_size") for k in state)
    plain = {k: v for k, v in codec.settings.items() if k != "segment"}
    assert type(codec)(plain, state).fingerprint == codec.fingerprint


def test_the_codec_keeps_its_own_weights(make_tiny_codec, package_model) -> None:
    codec = make_tiny_codec()
    state = package_model(codec).state_dict()
    copy = type(codec)(codec.settings, state)
    x = noise(1, 1, 400)
    for tensor in state.values():
        tensor.zero_()
    assert torch.equal(copy.encode(x), codec.encode(x))


@pytest.mark.parametrize(
    ("waveform", "words"),
    [
        (torch.zeros(100), "shape (100,)"),
        (torch.zeros(1, 100), "shape (1, 100)"),
        (torch.zeros(1, 2, 100), "mix it down to mono"),
        (torch.zeros(1, 1, 0), "0 samples"),
        (torch.zeros(0, 1, 5), "shape (0, 1, 5)"),
        (torch.zeros(1, 1, 5, dtype=torch.int16), "torch.int16"),
        (torch.tensor([[[0.0, float("nan"), float("inf")]]]), "2 samples that are NaN"),
    ],
)
def test_what_cannot_be_encoded_is_refused(make_tiny_codec, waveform, words: str) -> None:
    with pytest.raises(ValueError) as error:
        make_tiny_codec().encode(waveform)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_stereo_codec_asks_for_two_channels(make_tiny_codec) -> None:
    codec = make_tiny_codec(channels=2)
    assert codec.decode(codec.encode(noise(1, 2, 50))).shape == (1, 2, 60)
    with pytest.raises(ValueError, match="give it 2 channels"):
        codec.encode(noise(1, 1, 50))


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (torch.zeros(4, 5, dtype=torch.long), "shape (4, 5)"),
        (torch.zeros(1, 3, 5, dtype=torch.long), "(batch, 4, frames)"),
        (torch.zeros(1, 4, 0, dtype=torch.long), "at least one"),
        (torch.zeros(1, 4, 5), "torch.float32"),
        (torch.full((1, 4, 5), 32), "from 32 to 32"),
        (torch.full((1, 4, 5), -1), "from -1 to -1"),
    ],
)
def test_what_cannot_be_decoded_is_refused(make_tiny_codec, codes, words: str) -> None:
    with pytest.raises(ValueError) as error:
        make_tiny_codec().decode(codes)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("n", [0, 61, -1])
def test_the_length_asked_must_be_there(make_tiny_codec, n: int) -> None:
    with pytest.raises(ValueError, match=f"num_samples={n}: 5 frames hold 1 to 60 samples"):
        make_tiny_codec().decode(torch.zeros(1, 4, 5, dtype=torch.long), n)


def test_small_unsigned_codes_from_a_store_decode(make_tiny_codec) -> None:
    codec = make_tiny_codec()
    codes = codec.encode(noise(1, 1, 100))
    for dtype in (torch.uint8, torch.int16, torch.uint16):
        assert torch.equal(codec.decode(codes.to(dtype)), codec.decode(codes))


@needs_recordings
def test_real_speech_goes_through_a_trained_codec() -> None:
    import soundfile

    codec = load_local(TRIAL)
    clips = [
        torch.from_numpy(soundfile.read(path, dtype="float32")[0])[None]
        for path in sorted(DIGITS.glob("*.wav"))[:12]
    ]
    alone = [codec.encode(clip[None])[0] for clip in clips]
    together = codec.encode_batch(clips)
    same = sum(int((a == b).sum()) for a, b in zip(alone, together, strict=True))
    assert same >= 0.999 * sum(a.numel() for a in alone)
    for clip, codes in zip(clips, together, strict=True):
        sound = codec.decode(codes[None], clip.shape[1])[0]
        assert torch.cosine_similarity(sound, clip).item() > 0.6


def test_weight_normalisation_is_folded_away(make_tiny_codec) -> None:
    """In the network that runs, not in the weights that are saved."""
    codec = make_tiny_codec(true_skip=False)
    assert any(key.endswith("weight_g") for key in codec.weights)
    assert not any(key.endswith(("weight_g", "weight_v")) for key in codec._model.state_dict())
