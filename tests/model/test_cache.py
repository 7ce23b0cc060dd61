"""The key/value cache, as a row of steps and as a ring; and positions past their table."""

import math

import pytest
import torch

from audiolm.model.attention import CausalSelfAttention
from audiolm.model.cache import KeyValueCache
from audiolm.model.language_model import AudioLM
from audiolm.model.positions import RotaryPositions


def steps(count: int, first: int = 0) -> torch.Tensor:
    """(1, 1, count, 1): each step is its own number."""
    return torch.arange(first, first + count, dtype=torch.float32).view(1, 1, count, 1)


def test_a_ring_holds_the_last_steps() -> None:
    cache = KeyValueCache.allocate(1, 1, 5, 1, ring=True)
    keys, values = cache.update(steps(3), -steps(3))
    assert keys.flatten().tolist() == [0, 1, 2] and values.flatten().tolist() == [0, -1, -2]
    for step in range(3, 23):
        keys, values = cache.update(steps(1, step), -steps(1, step))
        held = list(range(max(0, step - 4), step + 1))
        assert sorted(keys.flatten().tolist()) == held
        assert torch.equal(values, -keys)
        assert cache.length == step + 1


def test_a_full_cache_takes_no_more_unless_it_is_a_ring() -> None:
    cache = KeyValueCache.allocate(1, 1, 2, 1)
    cache.update(steps(2), steps(2))
    with pytest.raises(AssertionError):
        cache.update(steps(1, 2), steps(1, 2))


def test_rows_share_memory_and_kind() -> None:
    cache = KeyValueCache.allocate(3, 1, 4, 1, ring=True)
    row = cache.rows(1, 2)
    row.update(steps(2), steps(2))
    assert cache.keys[1].flatten().tolist() == [0, 1, 0, 0]
    assert cache.length == 0 and row.length == 2 and row.ring


def test_attention_past_max_seq_len_wants_a_ring() -> None:
    attention = CausalSelfAttention(8, 2, 4, rotary=RotaryPositions(4, 4)).eval()
    ring = KeyValueCache.allocate(1, 2, 4, 4, ring=True)
    for _ in range(9):
        assert attention(torch.randn(1, 1, 8), ring).shape == (1, 1, 8)
    plain = KeyValueCache.allocate(1, 2, 9, 4)
    attention(torch.randn(1, 4, 8), plain)
    with pytest.raises(ValueError, match="5 steps exceeds max_seq_len=4"):
        attention(torch.randn(1, 1, 8), plain)


def test_added_positions_have_an_end_with_a_ring_too() -> None:
    model = AudioLM(2, 5, 4, embed_dim=8, num_layers=1, num_heads=2, positions="learned").eval()
    caches = model.make_caches(1, ring=True)
    model.extend(torch.zeros(1, 2, 4, dtype=torch.long), caches)
    with pytest.raises(ValueError, match="5 steps exceeds max_seq_len=4"):
        model.extend(torch.zeros(1, 2, 1, dtype=torch.long), caches)


def test_rotary_angles_past_the_table_are_those_of_a_longer_one() -> None:
    short, long = RotaryPositions(8, 10), RotaryPositions(8, 100)
    for first, count in ((0, 10), (8, 5), (10, 1), (70, 30)):
        for found, expected in zip(
            short.angles(first, count), long.angles(first, count), strict=True
        ):
            assert torch.equal(found, expected)
    assert short.cosines.shape == (10, 8)


def test_rotary_angles_far_out_are_exact() -> None:
    """A day of sound at 75 frames a second and more; in float32 angles they would be noise."""
    position = 123_456_789
    cosines, _ = RotaryPositions(8, 4).angles(position, 1)
    exact = [math.cos(position * 10_000.0 ** (-i / 4)) for i in range(4)]
    torch.testing.assert_close(cosines[0, :4], torch.tensor(exact), rtol=0, atol=1e-6)
