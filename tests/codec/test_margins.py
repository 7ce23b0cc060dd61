"""A section of a recording, encoded with its margins, has the codes that it has in the whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

SEGMENTS = {"segment": 0.6, "norm": "time_group_norm", "bins": 512}


def section(codec, x: Tensor, begin: int, end: int) -> Tensor:
    """Codes (K, end - begin) of frames begin .. end, from no more than `codec.margins` says."""
    grid, left, right = codec.margins
    assert begin % grid == 0
    first = max(0, begin - -(-left // grid) * grid)
    part = x[:, first * codec.hop_length : (end + right) * codec.hop_length]
    return codec.encode(part[None])[0, :, begin - first : end - first]


@pytest.mark.parametrize(
    "settings",
    [{}, {"causal": True}, {"lstm": 2}, SEGMENTS | {"channels": 2}],
    ids=str,
)
def test_stretches_are_as_in_the_whole(make_tiny_codec, settings) -> None:
    codec = make_tiny_codec(**settings)
    x = torch.randn(codec.channels, 30_011, generator=torch.Generator().manual_seed(0))
    whole = codec.encode(x[None])[0]
    step = -(-40 // codec.margins.grid) * codec.margins.grid
    cuts = [*range(0, whole.shape[1], step), whole.shape[1]]
    joined = torch.cat([section(codec, x, a, b) for a, b in pairwise(cuts)], 1)
    assert joined.shape == whole.shape and len(cuts) > 10
    # Rounding differs between shapes; without margins a tenth would differ.
    assert (joined == whole).float().mean() > 0.999


def test_segments_need_whole_segments_and_an_lstm_five_seconds(make_tiny_codec) -> None:
    plain, lstm = make_tiny_codec().margins, make_tiny_codec(lstm=1).margins
    assert plain.grid == lstm.grid == 1 and plain.right == lstm.right
    assert lstm.left - plain.left == round(5 * 800 / 12)
    segmented = make_tiny_codec(**SEGMENTS).margins
    assert segmented == (38, 38, 2)
