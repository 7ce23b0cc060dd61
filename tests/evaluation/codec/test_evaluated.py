from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from audiolm.codec.encodec import EncodecCodec
from audiolm.codec.settings import build_model
from audiolm.evaluation.codec.encoding_speed import PLAIN, encoding_speeds, plain_codec
from audiolm.evaluation.codec.evaluated import Autoencoder, kbps_of, load_evaluated

MakeCodec = Callable[..., EncodecCodec]


def write_checkpoint(path: Path, settings: dict[str, Any], fitted: bool, **more: Any) -> Path:
    torch.manual_seed(1)
    state = build_model(settings).state_dict()
    for name, weight in state.items():
        if name.endswith(".inited"):
            weight.fill_(fitted)
        elif name.endswith(".embed") and fitted:
            weight.normal_()
    torch.save(
        {
            "state_dict": {f"model.{name}": weight for name, weight in state.items()}
            | {"spectral_head.linear.bias": torch.zeros(3)},
            "hyper_parameters": {"settings": settings},
            "audiolm_codec_format": 2,
            **more,
        },
        path,
    )
    return path


def clip(seconds: float, rate: int = 8000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.1 * torch.randn(1, round(rate * seconds), generator=generator)


def test_by_default_what_3_2_kbps_allow_and_half(
    make_tiny_codec: MakeCodec, tmp_path: Path
) -> None:
    # Codes of 5 bits at 16000 / 800 = 20 frames a second: 32 codebooks are 3.2 kbit/s.
    settings = {"sample_rate": 16000, "ratios": [10, 80]}
    for n_q, expected in ((40, [16, 32]), (4, [2, 4]), (1, [1])):
        folder = tmp_path / str(n_q)
        make_tiny_codec(**settings, n_q=n_q).save(folder)
        codecs = load_evaluated(folder)
        assert [codec.num_codebooks for codec in codecs] == expected
        assert kbps_of(codecs[-1]) == pytest.approx(0.1 * expected[-1])


def test_the_autoencoder_is_the_codec_without_its_codebooks(
    make_tiny_codec: MakeCodec, package_model: Callable[..., Any], tmp_path: Path
) -> None:
    codec = make_tiny_codec()
    codec.save(tmp_path)
    (loaded,) = load_evaluated(tmp_path, [0])
    assert isinstance(loaded, Autoencoder) and kbps_of(loaded) == 0
    clips = [clip(0.3), clip(11.0)]  # the second in two pieces
    model = package_model(codec)
    for wave, latents in zip(clips, loaded.encode_batch(clips), strict=True):
        decoded = loaded.decode(latents[None], wave.shape[1])
        assert decoded.shape == (1, *wave.shape)
        expected = model.decoder(model.encoder(wave[None]))[..., : wave.shape[1]]
        assert torch.allclose(decoded, expected, atol=1e-5)


def test_checkpoints(make_tiny_codec: MakeCodec, tmp_path: Path) -> None:
    settings = make_tiny_codec().settings
    unfitted = write_checkpoint(tmp_path / "early.ckpt", settings, fitted=False)
    assert [codec.num_codebooks for codec in load_evaluated(unfitted)] == [0]
    with pytest.raises(ValueError, match="not fitted yet"):
        load_evaluated(unfitted, [0, 2])
    fitted = load_evaluated(write_checkpoint(tmp_path / "late.ckpt", settings, fitted=True))
    assert [codec.num_codebooks for codec in fitted] == [2, 4]
    (early,), wave = load_evaluated(unfitted), clip(0.2)
    late = load_evaluated(tmp_path / "late.ckpt", [0])[0]
    assert torch.equal(early.encode_batch([wave])[0], late.encode_batch([wave])[0])


def test_an_average_of_the_weights_is_taken(make_tiny_codec: MakeCodec, tmp_path: Path) -> None:
    settings = make_tiny_codec().settings
    state = {f"model.{k}": w for k, w in build_model(settings).state_dict().items()}
    plain = write_checkpoint(tmp_path / "plain.ckpt", settings, fitted=False)
    average = write_checkpoint(tmp_path / "a.ckpt", settings, fitted=False, ema_state_dict=state)
    one, other = (load_evaluated(path)[0].encode_batch([clip(0.2)])[0] for path in (plain, average))
    assert not torch.equal(one, other)


def test_what_is_no_codec(make_tiny_codec: MakeCodec, tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "hyper_parameters": {}}, tmp_path / "model.ckpt")
    with pytest.raises(ValueError, match="no checkpoint of a codec"):
        load_evaluated(tmp_path / "model.ckpt")
    with pytest.raises(FileNotFoundError):
        load_evaluated(tmp_path / "none.ckpt")
    with pytest.raises(FileNotFoundError):
        load_evaluated(tmp_path)
    make_tiny_codec().save(tmp_path)
    with pytest.raises(ValueError, match="can use 1 to 4"):
        load_evaluated(tmp_path, [5])
    make_tiny_codec(segment=0.6, bins=512).save(tmp_path / "segments")
    with pytest.raises(ValueError, match="segments"):
        load_evaluated(tmp_path / "segments", [0])


def test_encoding_speeds(make_tiny_codec: MakeCodec) -> None:
    threads = torch.get_num_threads()
    tiny, large = make_tiny_codec(), make_tiny_codec(n_filters=64)
    speeds = encoding_speeds({"tiny": tiny, "large": large}, seconds=2.0)
    assert speeds["tiny"] > 2 * speeds["large"] > 0
    assert torch.get_num_threads() == threads
    plain = plain_codec()
    assert kbps_of(plain) == 3.2 and plain.settings["ratios"] == PLAIN["ratios"]
    assert plain.encode_batch([clip(0.1, 16000)])[0].shape == (8, 5)
