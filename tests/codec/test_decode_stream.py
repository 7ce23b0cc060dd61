"""Sound while the codes come: the same as at once, and no sooner and no later than it is final."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from audiolm.codec import Codec, EncodecCodec, load_bundled

SEGMENTS = {"segment": 0.3, "norm": "time_group_norm", "bins": 512, "channels": 2, "lstm": 1}
KINDS = [
    {},
    {"causal": True},
    {"lstm": 2},
    {"causal": True, "lstm": 1, "true_skip": False},
    {"ratios": [5, 1, 3], "n_residual_layers": 2},
    SEGMENTS,
]
SEGMENT, STRIDE = 20, 18  # frames


def random_codes(codec: Codec, frames: int, batch: int = 1, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, codec.num_codebooks, frames)
    codes = torch.randint(0, codec.codebook_size, shape, generator=generator)
    if codec.settings["segment"] is not None:  # levels that are audible
        codes[:, -1] = 280 + codes[:, -1] // 32
    return codes


def cut(codes: Tensor, sizes: list[int]) -> Iterator[Tensor]:
    """Chunks of these sizes in turn, again and again."""
    begin = 0
    for size in itertools.cycle(sizes):
        if begin >= codes.shape[2]:
            return
        yield codes[:, :, begin : begin + size]
        begin += size


def one_by_one(codec: EncodecCodec, codes: Tensor) -> list[Tensor]:
    """What comes out after each single frame (B, C, n), and at the end."""
    fed: list[int] = []
    after: list[list[Tensor]] = []

    def frames() -> Iterator[Tensor]:
        for frame in torch.split(codes, 1, dim=2):
            fed.append(1)
            yield frame
        fed.append(1)

    for block in codec.decode_stream(frames()):
        after += [[] for _ in range(len(fed) - len(after))]
        after[-1].append(block)
    after += [[] for _ in range(len(fed) - len(after))]
    nothing = torch.zeros(len(codes), codec.channels, 0)
    return [torch.cat([nothing, *blocks], dim=2) for blocks in after]


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_blocks_join_to_the_sound_of_all_codes(make_tiny_codec, settings) -> None:
    codec = make_tiny_codec(**settings)
    for frames in (1, 2, 3, 7, 19, 20, 21, 38, 39, 40, 57, 150):
        codes = random_codes(codec, frames)
        whole = codec.decode(codes)
        joined = torch.cat(list(codec.decode_stream([codes])), dim=2)
        assert joined.shape == whole.shape
        assert (joined - whole).abs().max() <= 2e-6 * whole.abs().max().clamp(min=1)
        for sizes in ([1], [2, 3], [7, 1, 13], [frames - 1 or 1, 1]):
            again = torch.cat(list(codec.decode_stream(cut(codes, sizes))), dim=2)
            assert torch.equal(again, joined), (frames, sizes)


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_what_is_out_does_not_change(make_tiny_codec, settings) -> None:
    """Whatever comes next."""
    codec = make_tiny_codec(**settings)
    codes, other = random_codes(codec, 60), random_codes(codec, 60, seed=1)
    out = one_by_one(codec, codes)
    for known in (5, 18, 19, 20, 25, 38, 45):
        mixed = torch.cat([codes[:, :, :known], other[:, :, known:]], dim=2)
        before, after = (torch.cat(o[:known], dim=2) for o in (out, one_by_one(codec, mixed)))
        assert torch.equal(before, after)


@pytest.mark.parametrize("settings", KINDS[:5], ids=str)
def test_a_frame_is_out_as_soon_as_it_is_final(make_tiny_codec, settings) -> None:
    codec = make_tiny_codec(**settings)
    codec._network.stream_sizes = [1]
    codes = random_codes(codec, 60)
    hop = codec.hop_length
    out = torch.tensor([sound.shape[2] for sound in one_by_one(codec, codes)]).cumsum(0) // hop
    # Behind the start, whose mirrored samples lie some frames ahead, the distance is one number:
    ahead = int(30 - out[29])
    assert (torch.arange(20, 60) + 1 - out[20:60] == ahead).all()
    # none where the codec is causal, and else the least that will do.
    assert ahead == 0 if codec.settings["causal"] else 0 < ahead < 8
    for frame in range(0, 40, 3):
        waited = int((out > frame).nonzero()[0])  # its last sound came with this frame
        if waited == frame:
            continue
        for changed, audible in ((waited, True), (waited + 1, False)):
            other = codes.clone()
            other[:, :, changed] = (other[:, :, changed] + 7) % codec.codebook_size
            difference = (codec.decode(other) - codec.decode(codes))[..., : (frame + 1) * hop]
            assert bool(difference.any()) == audible, (frame, waited, changed)


def test_blocks_are_short_at_first_and_then_of_some_tenths_of_a_second(make_tiny_codec) -> None:
    codec = make_tiny_codec(causal=True)
    sizes = [block.shape[2] // 12 for block in codec.decode_stream([random_codes(codec, 300)])]
    assert sizes[:7] == [1, 2, 4, 8, 16, 27, 27]
    assert sum(sizes) == 300 and set(sizes[5:-1]) == {27}


def test_a_segment_comes_when_it_is_whole_but_for_its_fading_end(make_tiny_codec) -> None:
    codec = make_tiny_codec(**SEGMENTS)
    out = [sound.shape[2] // 12 for sound in one_by_one(codec, random_codes(codec, 50))]
    assert {i: n for i, n in enumerate(out, start=1) if n} == {20: 18, 38: 18, 51: 14}


def test_a_sound_does_not_depend_on_its_batch(make_tiny_codec) -> None:
    for settings in ({"lstm": 1}, SEGMENTS):
        codec = make_tiny_codec(**settings)
        codes = random_codes(codec, 70, batch=3)
        together = torch.cat(list(codec.decode_stream(cut(codes, [3, 1]))), dim=2)
        for i in range(3):
            alone = torch.cat(list(codec.decode_stream([codes[i : i + 1]])), dim=2)
            assert torch.equal(alone[0], together[i])


@pytest.mark.parametrize("settings", [{"causal": True, "lstm": 1}, SEGMENTS], ids=str)
def test_an_endless_stream_is_read_no_further_than_needed(make_tiny_codec, settings) -> None:
    codec = make_tiny_codec(**settings)
    codes = random_codes(codec, 40)
    read = 0

    def endless() -> Iterator[Tensor]:
        nonlocal read
        while True:
            read += 1
            yield codes[:, :, read % 40][:, :, None]

    decoded_frames = 0
    for block in itertools.islice(codec.decode_stream(endless()), 60):
        decoded_frames += block.shape[2] // codec.hop_length
        assert read <= decoded_frames + 27  # a block, of 0.4 s
    assert decoded_frames > 500


def test_results_can_take_part_in_training(make_tiny_codec) -> None:
    codec = make_tiny_codec()
    for sound in codec.decode_stream([random_codes(codec, 30)]):
        (torch.ones((), requires_grad=True) * sound).sum().backward()


def test_no_chunks_no_sound(make_tiny_codec) -> None:
    assert list(make_tiny_codec().decode_stream([])) == []
    assert list(make_tiny_codec(**SEGMENTS).decode_stream([])) == []


@pytest.mark.parametrize("settings", [{"causal": True}, SEGMENTS], ids=str)
def test_chunks_of_no_frames_change_nothing(make_tiny_codec, settings) -> None:
    codec = make_tiny_codec(**settings)
    codes = random_codes(codec, 50)
    empty = codes[:, :, :0]
    chunks = [empty, codes[:, :, :7], empty, empty, codes[:, :, 7:], empty]
    blocks, expected = (list(codec.decode_stream(c)) for c in (chunks, [codes]))
    assert all(map(torch.equal, blocks, expected)) and len(blocks) == len(expected)
    assert list(codec.decode_stream([empty])) == []
    with pytest.raises(ValueError, match="as many codebooks"):
        list(codec.decode_stream([codes[:, :3, :0]]))


def test_bad_chunks_are_refused_when_they_come(make_tiny_codec) -> None:
    codec = make_tiny_codec(causal=True)
    good = random_codes(codec, 30)
    for bad, words in (
        (good + 32, "must lie in"),
        (good[:, :3], "shape (1, 3, 30)"),
        (good.repeat(2, 1, 1), "after some of a batch of 1"),
    ):
        blocks = codec.decode_stream(iter([good, bad]))
        assert next(blocks).shape == (1, 1, 12)
        with pytest.raises(ValueError) as error:
            list(blocks)
        assert words in str(error.value) and "\n" not in str(error.value)


def test_the_bundled_codec_streams(make_tiny_codec: Callable[..., EncodecCodec]) -> None:
    codec = load_bundled()
    codes = random_codes(codec, 120)
    whole = codec.decode(codes)
    out = one_by_one(codec, codes)
    assert (torch.cat(out, dim=2) - whole).abs().max() <= 2e-6
    # Its convolutions see six frames ahead.
    assert [i + 1 for i, sound in enumerate(out) if sound.shape[2]][:4] == [7, 9, 13, 21]
