from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from audiolm.codec.network.chunks import Buffer, context, stream

KINDS = [
    {},
    {"causal": True},
    {"lstm": 2},
    {"causal": True, "lstm": 1, "true_skip": False},
    {"ratios": [5, 1, 3], "n_residual_layers": 2},
]


def blocks_of(x: Tensor, size: int) -> Iterator[Tensor]:
    return (x[..., i : i + size] for i in range(0, x.shape[-1], size))


@pytest.mark.parametrize("settings", KINDS, ids=str)
@pytest.mark.parametrize("chunk", [1, 16, 50])
def test_encoding_in_pieces_gives_the_whole(
    make_tiny_codec, package_model, settings, chunk: int
) -> None:
    codec = make_tiny_codec(**settings)
    model = package_model(codec)
    hop = codec.hop_length
    long = torch.randn(1, 1, 160 * hop, generator=torch.Generator().manual_seed(0))
    # The last chunk is anything from one sample to a chunk and its context.
    for n in (1, 16 * hop, 17 * hop + 1, 50 * hop - 1, 67 * hop, 100 * hop + 1, 160 * hop):
        x = long[..., :n]
        expected = model.encoder(x)
        for size in (n, 50 * hop + 3, 11) if n < 100 * hop else (n, 97):
            parts = list(stream(model.encoder.model, blocks_of(x, size), [chunk]))
            assert parts[-1].shape[-1] > 0
            found = torch.cat(parts, dim=-1)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", KINDS, ids=str)
@pytest.mark.parametrize("chunk", [1, 16])
def test_decoding_in_pieces_gives_the_whole(
    make_tiny_codec, package_model, settings, chunk: int
) -> None:
    decoder = package_model(make_tiny_codec(**settings)).decoder
    long = torch.randn(1, 8, 120, generator=torch.Generator().manual_seed(0))
    for t in (1, 2, 17, 64, 120):
        z = long[..., :t]
        found = torch.cat(list(stream(decoder.model, blocks_of(z, 10), [chunk])), dim=-1)
        torch.testing.assert_close(found, decoder(z), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"causal": True}], ids=str)
def test_the_context_covers_what_a_frame_depends_on(
    make_tiny_codec, package_model, settings
) -> None:
    codec = make_tiny_codec(**settings)
    encoder = package_model(codec).encoder
    left, right = context(encoder.model)
    hop, frame = codec.hop_length, 30
    x = torch.randn(1, 1, 60 * hop, requires_grad=True)
    encoder(x)[0, :, frame].square().sum().backward()
    touched = x.grad[0, 0].nonzero()
    assert touched.min() >= (frame - left) * hop
    assert touched.max() < (frame + 1 + right) * hop
    assert right == 0 if settings else touched.max() >= (frame + 1) * hop


def test_without_context_the_result_differs(make_tiny_codec, package_model, monkeypatch) -> None:
    """The equalities above would notice a context that is too small."""
    import audiolm.codec.network.chunks as chunks

    model = package_model(make_tiny_codec())
    x = torch.randn(1, 1, 1200, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(chunks, "context", lambda m: chunks.Context(0, 0))
    found = torch.cat(list(stream(model.encoder.model, [x], [20])), dim=-1)
    assert not torch.allclose(found, model.encoder(x), atol=1e-2)


@pytest.mark.parametrize("settings", [{}, {"lstm": 1, "causal": True}], ids=str)
def test_long_recordings_agree(make_tiny_codec, package_model, settings) -> None:
    codec = make_tiny_codec(**settings)
    model = package_model(codec)
    n = 25 * codec.sample_rate + 7  # more than two chunks
    x = torch.randn(1, 1, n, generator=torch.Generator().manual_seed(0))
    expected = model.quantizer.vq.encode(model.encoder(x)).transpose(0, 1)
    whole = codec.encode(x)
    assert whole.shape == expected.shape == (1, 4, -(-n // codec.hop_length))
    assert (whole == expected).float().mean() > 0.999
    among = codec.encode_batch([x[0, :, :50], x[0], x[0, :, :999]])
    assert torch.equal(among[1], whole[0])
    sound = model.decoder(model.quantizer.decode(whole.transpose(0, 1)))
    torch.testing.assert_close(codec.decode(whole), sound, rtol=1e-4, atol=1e-5)


def test_the_stream_reads_no_further_than_it_must(make_tiny_codec, package_model) -> None:
    layers = package_model(make_tiny_codec()).encoder.model
    read = 0

    def recording() -> Iterator[Tensor]:
        nonlocal read
        while True:  # without end
            read += 100
            yield torch.randn(1, 1, 100)

    next(stream(layers, recording(), [600]))
    assert read < 11 * 800


def test_buffer_is_a_queue() -> None:
    buffer, x = Buffer(), torch.arange(20)
    for block in (x[:3], x[3:3], x[3:10], x[10:]):
        buffer.push(block)
    assert torch.equal(buffer.head(2), x[:2]) and torch.equal(buffer.head(12), x[:12])
    buffer.drop(0)
    buffer.drop(5)
    assert buffer.size == 15 and torch.equal(buffer.head(15), x[5:])
    buffer.drop(15)
    assert buffer.size == 0
