"""The codec that comes with the package: small, whole, and true to sound it was not trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audiolm.codec import EncodecCodec, build_model, load_bundled, load_codec
from audiolm.codec.distances import mel_distance, si_snr
from audiolm.codec.load import BUNDLED, BUNDLED_BEFORE
from audiolm.codec.network.chunks import context
from audiolm.demo.melodies import sample_melody, synthesise
from audiolm.demo.report import score_waveforms


@pytest.fixture(scope="module")
def codec() -> EncodecCodec:
    return load_bundled()


@pytest.fixture(scope="module")
def melodies() -> torch.Tensor:
    """(B, 1, N): eight melodies of a seed that neither the codec nor the demo has seen."""
    return torch.stack([synthesise(sample_melody(99, i)) for i in range(8)])


def test_it_is_small_and_says_what_it_is(codec: EncodecCodec) -> None:
    files = list(BUNDLED.iterdir())
    assert sum(file.stat().st_size for file in files) <= 8_000_000
    card = (BUNDLED / "MODEL_CARD.md").read_text(encoding="utf-8")
    for said in (codec.fingerprint, "CC BY-SA", "encodec_24khz", "experiment=bundled_codec"):
        assert said in card
    assert (codec.sample_rate, codec.channels, codec.frame_rate) == (16000, 1, 50.0)
    assert (codec.num_codebooks, codec.codebook_size) == (16, 256)


def test_more_codebooks_are_truer(melodies: torch.Tensor) -> None:
    ratios, distances = [], []
    for num_codebooks in (2, 4, 8, 16):
        codec = load_bundled(num_codebooks)
        decoded = codec.decode(codec.encode(melodies), melodies.shape[-1])
        ratios.append(float(si_snr(decoded, melodies).mean()))
        distances.append(float(mel_distance(decoded, melodies, codec.sample_rate).mean()))
    assert ratios == sorted(ratios)
    assert distances == sorted(distances, reverse=True)
    assert ratios[-1] > 6


def test_fewer_codebooks_are_the_first_ones(codec: EncodecCodec, melodies: torch.Tensor) -> None:
    assert torch.equal(load_bundled(4).encode(melodies[:2]), codec.encode(melodies[:2])[:, :4])


def test_every_codebook_is_in_use(codec: EncodecCodec, melodies: torch.Tensor) -> None:
    noise = 0.05 * torch.randn(4, 1, 5 * 16000, generator=torch.Generator().manual_seed(0))
    codes = torch.cat([codec.encode(x).transpose(0, 1).flatten(1) for x in (melodies, noise)], 1)
    for book in codes:
        assert len(book.unique()) > 32


def test_melodies_are_tracked_right_through_it(melodies: torch.Tensor) -> None:
    codec = load_bundled(8)
    codes = codec.encode(melodies)
    found = score_waveforms(codec.decode(codes), codes, codec)
    assert found.scores.legal_notes > 0.97
    assert found.scores.legal_transitions > 0.95
    assert found.silence < 0.1


def test_silence_stays_quiet(codec: EncodecCodec) -> None:
    decoded = codec.decode(codec.encode(torch.zeros(1, 1, 16000)))
    assert float(decoded.square().mean().sqrt()) < 0.01


def test_a_checkpoint_finds_it_in_the_package(codec: EncodecCodec, tmp_path: Path) -> None:
    found = load_codec(load_bundled(4).identity(), [tmp_path])
    assert (found.num_codebooks, found.fingerprint) == (4, codec.fingerprint)


@pytest.mark.parametrize("fingerprint", BUNDLED_BEFORE)
def test_one_that_came_with_the_package_before_is_refused_with_what_to_do(
    codec: EncodecCodec, tmp_path: Path, fingerprint: str
) -> None:
    assert codec.fingerprint != fingerprint
    then = load_bundled(4).identity() | {"fingerprint": fingerprint}
    with pytest.raises(ValueError, match="came with audiolm before") as caught:
        load_codec(then, [tmp_path])
    assert "prepare.py" in str(caught.value) and "\n" not in str(caught.value)


def test_it_has_no_more_codebooks_than_it_has() -> None:
    with pytest.raises(ValueError, match="16"):
        load_bundled(17)


def test_decoding_in_pieces_is_exact() -> None:
    """Its receptive field is finite: chunks with that much of their neighbours make the whole."""
    codec = load_bundled(8)
    left, right = context(build_model(codec.settings).decoder.model)
    codes = torch.randint(256, (1, 8, 200), generator=torch.Generator().manual_seed(0))
    whole = codec.decode(codes)
    chunks = []
    for begin in range(0, 200, 50):
        before, after = min(left, begin), min(right, 150 - begin)
        chunk = codec.decode(codes[:, :, begin - before : begin + 50 + after])
        start = before * codec.hop_length
        chunks.append(chunk[..., start : start + 50 * codec.hop_length])
    torch.testing.assert_close(torch.cat(chunks, dim=-1), whole, rtol=1e-4, atol=1e-5)
