"""Generated clips beside validation clips, in plain numbers, with training clips as a third.

The training clips are the floor: two sets of real clips differ too, by chance and by what they
hold, and no model has to come closer to the validation clips than the training clips do. How much
is chance is shown by several sets of them, each as large as the generated one.

Letters: K codebooks, T codec frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from audiolm.codec import EncodecCodec
from audiolm.evaluation.clips import Clips, code_usage, latent_features, log_mel_features
from audiolm.evaluation.frechet import Gaussian, fit_gaussian, frechet_distance
from audiolm.evaluation.memorisation import SharedRun
from audiolm.tokens.store import TokenStore

Seconds = NDArray[np.float64]

LONG = 0.95
"""A silence or loop is too long if it is longer than those of this share of the training clips."""

FEATURES: dict[str, Callable[[Clips, EncodecCodec], list[Tensor]]] = {
    "latents": latent_features,
    "log_mel": log_mel_features,
}


class Comparison:
    """Real clips, measured once, that generated ones are then compared with.

    Args:
        validation: clips that the model has not seen.
        training: sets of clips that it has, each of as many as are to be generated.
        codec: decoded them all.
    """

    def __init__(self, validation: Clips, training: Sequence[Clips], codec: EncodecCodec) -> None:
        self.validation, self.training, self.codec = validation, training, codec
        self.reference: dict[str, Gaussian] | None = None
        floors: list[dict[str, float]] = []
        try:
            self.reference = self._gaussians(validation)
            floors = [self._distances(one) for one in training]
        except ValueError:  # too few frames of real clips: all else can be measured
            pass
        self.floors = {name: [floor[name] for floor in floors] for name in FEATURES}

    def _gaussians(self, clips: Clips) -> dict[str, Gaussian]:
        return {name: fit_gaussian(make(clips, self.codec)) for name, make in FEATURES.items()}

    def _distances(self, clips: Clips) -> dict[str, float]:
        found = self._gaussians(clips)
        assert self.reference is not None
        return {name: frechet_distance(found[name], self.reference[name]) for name in FEATURES}

    def metrics(self, generated: Clips, num_frames: int, end_token: bool) -> dict[str, Any]:
        """What is measured of generated clips of at most `num_frames`, beside the real ones.

        A distance is None where there are too few frames for it. `end_token`: whether the model can
        end a clip by itself.
        """
        first, *_ = self.training
        kinds = {"generated": generated, "validation": self.validation, "training": first}
        # Rare things are looked for in all there are.
        rare = [
            np.concatenate([getattr(s, n) for s in self.training]) for n in ("silences", "loops")
        ]
        distances: Mapping[str, float | None] = dict.fromkeys(FEATURES)
        if self.reference is not None:
            with suppress(ValueError):
                distances = self._distances(generated)
        frames = [codes.shape[1] for codes in generated.codes]
        usage = {
            kind: code_usage(clips.codes, self.codec.codebook_size) for kind, clips in kinds.items()
        }
        return {
            "training_sets": len(self.training),
            "num_clips": {kind: len(clips.codes) for kind, clips in kinds.items()},
            "frechet": {
                name: {
                    "generated": distances[name],
                    "training": float(np.median(floors)) if floors else None,
                    "training_sets": floors,
                }
                for name, floors in self.floors.items()
            },
            "seconds": {kind: _quartiles(clips) for kind, clips in kinds.items()},
            "ended": float(np.mean([n < num_frames for n in frames])) if end_token else None,
            "silence": _rates(generated.silences, self.validation.silences, rare[0]),
            "loop": _rates(generated.loops, self.validation.loops, rare[1]),
            "codes_used": {kind: used.tolist() for kind, (used, _) in usage.items()},
            "perplexity": {kind: flat.tolist() for kind, (_, flat) in usage.items()},
        }


def _quartiles(clips: Clips) -> dict[str, float]:
    low, median, high = np.quantile(clips.seconds, (0.25, 0.5, 0.75)).tolist()
    return {"lower_quartile": low, "median": median, "upper_quartile": high}


def _rates(generated: Seconds, validation: Seconds, training: Seconds) -> dict[str, float]:
    """Of each kind, the share of clips in which it is too long: over `limit` seconds."""
    limit = float(np.quantile(training, LONG))
    kinds = {"generated": generated, "validation": validation, "training": training}
    rates = {k: float(np.mean(found > limit)) if len(found) else 0.0 for k, found in kinds.items()}
    return {"limit": limit, **rates}


def describe_runs(
    runs: Sequence[SharedRun | None],
    clips: Clips,
    stores: Sequence[TokenStore],
) -> list[dict[str, Any]]:
    """What each clip shares with the training set: seconds, and where from."""
    described: list[dict[str, Any]] = []
    for run, seconds in zip(runs, clips.seconds.tolist(), strict=True):
        if run is None:
            described.append({"seconds": 0.0, "of_seconds": seconds})
            continue
        rate = clips.frame_rate
        described.append(
            {
                "seconds": run.frames / rate,
                "of_seconds": seconds,
                "at_seconds": run.at / rate,
                "store": str(stores[run.store].path),
                "clip": stores[run.store].record(run.clip)["id"],
                "clip_at_seconds": run.start / rate,
            }
        )
    return described
