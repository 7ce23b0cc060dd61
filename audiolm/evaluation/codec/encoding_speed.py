"""How fast a codec encodes on one thread, beside the plain network of the first bundled codec.

N audio samples, K codebooks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from audiolm.codec.encodec import EncodecCodec
from audiolm.codec.settings import build_model
from audiolm.codec.weights import TRAINING_ONLY
from audiolm.evaluation.codec.evaluated import Evaluated

SECONDS = 30.0
"""Of the sound that is encoded, which is noise: what it is makes no difference to the time."""
REPEATS = 3

PLAIN: dict[str, Any] = {
    "sample_rate": 16000,
    "channels": 1,
    "n_filters": 16,
    "dimension": 64,
    "ratios": [5, 4, 4, 4],
    "n_residual_layers": 1,
    "true_skip": True,
    "compress": 2,
    "lstm": 0,
    "causal": False,
    "norm": "weight_norm",
    "n_q": 8,
    "bins": 256,
}
"""Settings of the codec that came with audiolm 0.1, at 3.2 kbit/s."""


def plain_codec() -> EncodecCodec:
    """A codec of the settings `PLAIN` with random weights, which encodes as fast as with any."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        state = build_model(PLAIN).state_dict()
    return EncodecCodec(PLAIN, {k: w for k, w in state.items() if not k.endswith(TRAINING_ONLY)})


def encoding_speeds(codecs: Mapping[str, Evaluated], seconds: float = SECONDS) -> dict[str, float]:
    """Hours of sound that each of the codecs encodes in an hour of one thread.

    The best of `REPEATS` turns, in which the codecs alternate, by the time that the process spent
    computing: what else the machine does disturbs it little.
    """
    threads = torch.get_num_threads()
    best = dict.fromkeys(codecs, float("inf"))
    try:
        torch.set_num_threads(1)
        for turn in range(REPEATS + 1):  # the first only warms up
            for name, codec in codecs.items():
                generator = torch.Generator().manual_seed(turn)
                count = round(seconds * codec.sample_rate)
                noise = 0.1 * torch.randn(codec.channels, count, generator=generator)
                begin = time.process_time()
                codec.encode_batch([noise])
                if turn:
                    best[name] = min(best[name], time.process_time() - begin)
    finally:
        torch.set_num_threads(threads)
    return {name: seconds / took for name, took in best.items()}
