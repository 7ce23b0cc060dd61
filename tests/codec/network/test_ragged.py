from __future__ import annotations

import pytest
import torch

KINDS = [
    {},
    {"causal": True},
    {"lstm": 2},
    {"causal": True, "lstm": 1},
    {"true_skip": False, "n_residual_layers": 2},
    {"ratios": [5, 1, 3], "causal": True, "norm": "none"},
]


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_a_batch_gives_each_clip_the_codes_it_gets_alone(
    make_tiny_codec, package_model, settings
) -> None:
    codec = make_tiny_codec(**settings)
    model = package_model(codec)
    hop = codec.hop_length
    random = torch.Generator().manual_seed(0)
    lengths = [1, 2, 3, hop - 1, hop, hop + 1, 2 * hop, 7 * hop - 1, 7 * hop, 7 * hop + 1, 40 * hop]
    lengths += torch.randint(1, 50 * hop, (20,), generator=random).tolist()
    clips = [torch.randn(1, n, generator=random) for n in lengths]
    for clip, codes in zip(clips, codec.encode_batch(clips), strict=True):
        expected = model.quantizer.vq.encode(model.encoder(clip[None]))[:, 0]
        assert codes.shape == (4, -(-clip.shape[1] // hop))
        assert torch.equal(codes, expected), clip.shape


def test_plain_padding_would_not_do(make_tiny_codec, package_model) -> None:
    """The reason for ragged.py: zeros at the right change a clip's last frames."""
    codec = make_tiny_codec()
    model = package_model(codec)
    clip = torch.randn(1, 1, 1000, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(clip, (0, 500))
    latents, expected = model.encoder(padded)[..., :84], model.encoder(clip)
    assert torch.allclose(latents[..., :60], expected[..., :60], atol=1e-5)
    assert not torch.allclose(latents[..., 80:], expected[..., 80:], atol=1e-2)


def test_order_is_kept_and_an_empty_batch_is_empty(make_tiny_codec) -> None:
    codec = make_tiny_codec()
    clips = [torch.randn(1, n) for n in (300, 5, 900, 5, 24)]
    assert [c.shape[1] for c in codec.encode_batch(clips)] == [25, 1, 75, 1, 2]
    assert codec.encode_batch([]) == []


def test_many_clips_go_in_batches_of_bounded_size(make_tiny_codec, monkeypatch) -> None:
    import audiolm.codec.network.continuous as continuous

    codec = make_tiny_codec()
    sizes = []
    original = continuous.ragged_encode

    def counted(encoder, clips):  # type: ignore[no-untyped-def]
        sizes.append(len(clips) * max(c.shape[1] for c in clips))
        return original(encoder, clips)

    monkeypatch.setattr(continuous, "ragged_encode", counted)
    clips = [torch.randn(1, 50 + 37 * (i % 40)) for i in range(200)]
    codec.encode_batch(clips)
    ten_seconds = 10 * codec.sample_rate
    assert len(sizes) > 1 and max(sizes) <= ten_seconds + codec.hop_length * 200
