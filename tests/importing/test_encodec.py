"""EnCodec of transformers' and audiocraft's files gives their codes and their sound."""

from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.codec import EncodecCodec, load_codec, load_local, load_transformers
from audiolm.codec.transformers import from_transformers
from audiolm.importing.encodec import read_codec

from .conftest import hf_codec

# The sizes of facebook/encodec_32khz, 57 million numbers.
FULL = {
    "sampling_rate": 32_000,
    "num_filters": 64,
    "hidden_size": 128,
    "upsampling_ratios": [8, 5, 4, 4],
    "num_lstm_layers": 2,
    "use_causal_conv": False,
    "use_conv_shortcut": False,
    "codebook_size": 2048,
    "target_bandwidths": [2.2],
}


def imported(theirs: Any, **changes: Any) -> EncodecCodec:
    return from_transformers(theirs.config.to_dict(), theirs.state_dict(), "test", **changes)


def compare(theirs: Any, ours: EncodecCodec, samples: int) -> None:
    """All codes, and the sound within 1e-5."""
    torch.manual_seed(samples)
    sound = torch.randn(1, theirs.config.audio_channels, samples) * 0.3
    with torch.inference_mode():
        expected = theirs.encode(sound, torch.ones_like(sound).bool()).audio_codes[0]
        codes = ours.encode(sound)
        if codes.shape[2] > 8:
            # Not a constant that anything would give.
            assert all(len(book.unique()) > 2 for book in codes[0])
        assert torch.equal(codes, expected)
        decoded = theirs.decode(expected[None], [None])[0]
        found = ours.decode(codes)
        assert found.abs().max() > 1e-3
        torch.testing.assert_close(found, decoded[..., : found.shape[-1]], rtol=0, atol=1e-5)


@pytest.mark.parametrize("pad_mode", ["reflect", "constant"])
def test_32khz_of_full_size(pad_mode: str) -> None:
    torch.manual_seed(0)
    theirs = hf_codec(**FULL, pad_mode=pad_mode)
    ours = imported(theirs)
    assert (ours.sample_rate, ours.frame_rate, ours.num_codebooks) == (32_000, 50.0, 4)
    for samples in (6400, 6401, 4999):
        compare(theirs, ours, samples)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pad_mode": "constant"},
        {"use_causal_conv": True},
        {"use_causal_conv": True, "pad_mode": "constant"},
        {"use_conv_shortcut": True, "num_residual_layers": 2},
        {"num_lstm_layers": 2, "upsampling_ratios": [4, 3, 2], "compress": 1},
    ],
    ids=str,
)
def test_tiny_ones(changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    theirs = hf_codec(**changes)
    for samples in (400, 403, 61, 7):
        compare(theirs, imported(theirs), samples)


def test_pad_mode_is_heard() -> None:
    """The other one gives other codes: so the comparisons above see it."""
    torch.manual_seed(0)
    theirs = hf_codec(pad_mode="constant")
    theirs.config.pad_mode = "reflect"
    ours = imported(theirs)
    sound = torch.randn(1, 1, 400)
    assert not torch.equal(ours.encode(sound), theirs.encode(sound).audio_codes[0])


@pytest.mark.parametrize("pad_mode", ["reflect", "constant"])
def test_the_folder_is_read_and_written(tmp_path: Path, pad_mode: str) -> None:
    torch.manual_seed(0)
    theirs = hf_codec(pad_mode=pad_mode)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_codec(tmp_path / "theirs")
    ours.save(tmp_path / "ours")
    again = load_local(tmp_path / "ours")
    assert again.settings["pad_mode"] == pad_mode
    assert again.fingerprint == ours.fingerprint == imported(theirs).fingerprint
    compare(theirs, again, 400)


def test_a_codec_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder, or of the hub's cache; what a run keeps of it is found again."""
    torch.manual_seed(0)
    theirs = hf_codec()
    snapshot = tmp_path / "models--ann--codec" / "snapshots" / "abc"
    theirs.save_pretrained(snapshot)
    (tmp_path / "models--ann--codec" / "refs").mkdir()
    (tmp_path / "models--ann--codec" / "refs" / "main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in (str(snapshot), "hf://ann/codec"):
        codec = load_transformers(name, num_codebooks=2)
        assert codec.num_codebooks == 2 and codec.fingerprint == imported(theirs).fingerprint
    codec.save(tmp_path / "run")
    again = load_codec(codec.identity(), [tmp_path / "run"])
    sound = torch.randn(1, 1, 400)
    assert torch.equal(again.encode(sound), codec.encode(sound))
    with pytest.raises(FileNotFoundError, match="no such file; give the folder"):
        load_transformers(str(tmp_path / "nothing"))


def test_segments_are_normalised_as_theirs() -> None:
    """As the 48 kHz model: within a segment the network's codes are theirs."""
    torch.manual_seed(0)
    theirs = hf_codec(
        audio_channels=2,
        norm_type="time_group_norm",
        normalize=True,
        chunk_length_s=1.0,
        overlap=0.01,
        codebook_size=512,
        target_bandwidths=[4 * 9 * 200 / 1000],
    )
    ours = imported(theirs)
    assert (ours.channels, ours.num_codebooks) == (2, 5)
    sound = torch.randn(1, 2, 800) * 0.3
    with torch.inference_mode():
        expected = theirs.encode(sound).audio_codes[0]
    assert torch.equal(ours.encode(sound)[:, :-1], expected)


@pytest.mark.parametrize("pad_mode", ["reflect", "constant"])
def test_chunks_and_batches_are_the_whole(pad_mode: str) -> None:
    """Long recordings and unlike lengths, which go other ways through the network."""
    torch.manual_seed(0)
    theirs = hf_codec(pad_mode=pad_mode)
    ours = imported(theirs)
    long = torch.randn(1, 1, int(ours.sample_rate * 25) + 3) * 0.3
    with torch.inference_mode():
        expected = theirs.encode(long).audio_codes[0]
        sound = theirs.decode(expected[None], [None])[0]
    codes = ours.encode(long)
    assert (codes == expected).float().mean() > 0.999
    torch.testing.assert_close(ours.decode(expected), sound, rtol=0, atol=1e-5)
    clips = [long[0, :, :n] for n in (400, 61, 7, 1203)]
    for clip, found in zip(clips, ours.encode_batch(clips), strict=True):
        assert torch.equal(found, ours.encode(clip[None])[0])


def test_dual_mono_is_two_passes() -> None:
    torch.manual_seed(0)
    theirs = hf_codec()
    mono, stereo = imported(theirs), imported(theirs, dual_mono=True)
    assert (stereo.channels, stereo.num_codebooks) == (2, 8)
    assert mono.fingerprint != stereo.fingerprint
    sound = torch.randn(2, 2, 405) * 0.3
    codes = stereo.encode(sound)
    for side in (0, 1):
        assert torch.equal(codes[:, side::2], mono.encode(sound[:, side : side + 1]))
        decoded = stereo.decode(codes, 405)[:, side]
        assert torch.equal(decoded, mono.decode(codes[:, side::2], 405)[:, 0])
    streamed = torch.cat(list(stereo.decode_stream(codes.split(7, dim=2))), dim=2)
    torch.testing.assert_close(streamed, stereo.decode(codes), rtol=0, atol=1e-5)
    assert stereo.latents(sound).shape == (2, 16, codes.shape[2])


def test_dual_mono_takes_as_many_left_as_right(tmp_path: Path) -> None:
    torch.manual_seed(0)
    codec = imported(hf_codec(), dual_mono=True)
    codec.save(tmp_path)
    sound = torch.randn(1, 2, 400)
    assert torch.equal(load_local(tmp_path, 4).encode(sound), codec.encode(sound)[:, :4])
    for wrong in (1, 3, 9, 10):
        with pytest.raises(ValueError, match="can use 2 to 8, as many left as right"):
            load_local(tmp_path, wrong)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel_size": 5}, "kernel_size=5 of the codec, read is 7"),
        ({"normalize": True}, "normalize=True with chunk_length_s=None of the codec"),
        ({"model_type": "dac"}, "of type dac; read are those of encodec"),
        ({"num_filters": 5}, "is .* the settings ask for"),
        ({"pad_mode": "circular"}, "pad_mode='circular': must be one of reflect, constant"),
        ({"num_lstm_layers": 3}, "codec weights lack decoder.model.*lstm"),
    ],
)
def test_what_is_not_the_same_is_refused(change: dict[str, Any], message: str) -> None:
    theirs = hf_codec()
    with pytest.raises(ValueError, match=f"test.*{message}"):
        from_transformers({**theirs.config.to_dict(), **change}, theirs.state_dict(), "test")
