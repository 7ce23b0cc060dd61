"""Published metrics by other people's networks: `pip install -e '.[metrics]'`.

    fad      Fréchet distance of CLAP's embeddings of seconds of sound (Kilgour et al. 2019; with
             CLAP rather than VGGish as Gui et al. 2024, "Adapting Frechet Audio Distance for
             Generative Music Evaluation", advise)
    clap     cosine of CLAP's embeddings of a clip and of its text (Wu et al. 2023)
    dnsmos   speech quality as listeners would rate it, 1 to 5 (Reddy et al. 2021, P.808)
    wer      word error rate of a speech recogniser (Radford et al. 2022, Whisper)

Each is a few lines around an existing library, imported when it is asked for, whose weights are
downloaded on first use. CLAP and the recogniser may be folders too.

Letters: C audio channels, N audio samples.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from audiolm.evaluation.frechet import fit_gaussian, frechet_distance

PACKAGES = {
    "fad": ("transformers",),
    "clap": ("transformers",),
    "dnsmos": ("torchmetrics", "librosa", "onnxruntime", "requests"),
    "wer": ("transformers", "torchmetrics"),
}
NEED_TEXTS = ("clap", "wer")
_SPEECH_RATE = 16_000  # Hz, of DNSMOS and of recognisers


@dataclass(frozen=True)
class MetricClips:
    """Clips of one kind as these metrics take them.

    waveforms: (C, N) of each. texts: of each, or its labels; empty where nothing is known.
    """

    waveforms: Sequence[Tensor]
    sample_rate: int
    texts: Sequence[str]


def check_published(names: Sequence[str], have_texts: bool) -> None:
    """Refuse what cannot be measured, before anything is.

    Raises:
        ValueError: for an unknown metric, packages that are missing, and a metric of texts for an
            unconditional model.
    """
    for name in names:
        if name not in PACKAGES:
            raise ValueError(f"published={name} is unknown; choose of {', '.join(PACKAGES)}")
        if name in NEED_TEXTS and not have_texts:
            raise ValueError(
                f"published={name} compares with a clip's conditions, and this model is "
                f"unconditional; omit it"
            )
        missing = [p for p in PACKAGES[name] if importlib.util.find_spec(p) is None]
        if missing:
            raise ValueError(
                f"published={name} needs {', '.join(missing)}; run pip install -e '.[metrics]'"
            )


def measure_published(
    names: Sequence[str], kinds: Mapping[str, MetricClips], clap: str, recogniser: str
) -> dict[str, dict[str, float]]:
    """Each metric of each kind of clips; `fad` is the distance to the kind "validation".

    clap, recogniser: names on the Hugging Face hub, or folders.

    Raises:
        OSError: for weights that cannot be had.
        ValueError: for too few seconds of sound for `fad`.
    """
    measures: dict[str, Callable[[], dict[str, float]]] = {
        "fad": lambda: _frechet_audio_distance(kinds, clap),
        "clap": lambda: _clap_scores(kinds, clap),
        "dnsmos": lambda: {kind: _dnsmos(clips) for kind, clips in kinds.items()},
        "wer": lambda: _word_error_rates(kinds, recogniser),
    }
    return {name: measures[name]() for name in names}


@contextmanager
def _weights_of(name: str, setting: str | None = None) -> Iterator[None]:
    """Errors of getting weights in one line. setting: names a folder that may hold them."""
    try:
        yield
    except (OSError, ValueError) as error:  # no network, no such model, a foreign folder
        first = str(error).strip().splitlines() or [type(error).__name__]
        instead = f", or pass published_models.{setting}=DIR" if setting else ""
        raise OSError(
            f"published={name}: its weights cannot be had ({first[0][:160]}); go online once, as "
            f"they are kept{instead}"
        ) from error


def _mono(clips: MetricClips, rate: int) -> list[NDArray[np.float32]]:
    """The clips as (N,) at another rate."""
    return [
        np.asarray(soxr.resample(w.mean(dim=0).numpy(), clips.sample_rate, rate), np.float32)
        for w in clips.waveforms
    ]


class _Clap:
    """CLAP's network and what prepares sound and texts for it."""

    def __init__(self, name: str, model: str) -> None:
        from transformers import ClapModel, ClapProcessor

        with _weights_of(name, "clap"):
            self.network = ClapModel.from_pretrained(model).eval()
            self.processor = ClapProcessor.from_pretrained(model)
        self.rate: int = self.processor.feature_extractor.sampling_rate

    @torch.inference_mode()
    def of_sound(self, sounds: Sequence[NDArray[np.float32]]) -> Tensor:
        """(sounds, D)."""
        inputs = self.processor(audio=list(sounds), sampling_rate=self.rate, return_tensors="pt")
        return _vectors(self.network.get_audio_features(**inputs))

    @torch.inference_mode()
    def of_texts(self, texts: Sequence[str]) -> Tensor:
        """(texts, D)."""
        inputs = self.processor(text=list(texts), return_tensors="pt", padding=True)
        return _vectors(self.network.get_text_features(**inputs))


def _vectors(output: Any) -> Tensor:
    """The embeddings, which newer versions of the library wrap."""
    vectors: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return vectors


def _frechet_audio_distance(kinds: Mapping[str, MetricClips], model: str) -> dict[str, float]:
    clap = _Clap("fad", model)
    gaussians = {
        kind: fit_gaussian([clap.of_sound(s).T for s in _seconds(clips, clap.rate)])
        for kind, clips in kinds.items()
    }
    reference = gaussians.pop("validation")
    return {kind: frechet_distance(one, reference) for kind, one in gaussians.items()}


def _seconds(clips: MetricClips, rate: int) -> Iterator[list[NDArray[np.float32]]]:
    """The whole seconds of each clip that has some; what is left of a clip is dropped."""
    for sound in _mono(clips, rate):
        if len(sound) >= rate:
            yield list(sound[: len(sound) // rate * rate].reshape(-1, rate))


def _clap_scores(kinds: Mapping[str, MetricClips], model: str) -> dict[str, float]:
    clap = _Clap("clap", model)
    return {
        kind: float(
            torch.nn.functional.cosine_similarity(
                clap.of_sound(_mono(clips, clap.rate)), clap.of_texts(clips.texts)
            ).mean()
        )
        for kind, clips in kinds.items()
    }


def _dnsmos(clips: MetricClips) -> float:
    from torchmetrics.functional.audio.dnsmos import deep_noise_suppression_mean_opinion_score

    sounds = [torch.from_numpy(sound) for sound in _mono(clips, _SPEECH_RATE)]
    with _weights_of("dnsmos"):
        scores = [
            deep_noise_suppression_mean_opinion_score(sound, _SPEECH_RATE, False)
            for sound in sounds
        ]
    return float(torch.stack(scores)[:, 0].mean())  # P.808; then signal, background, overall


def _word_error_rates(kinds: Mapping[str, MetricClips], model: str) -> dict[str, float]:
    from torchmetrics.functional.text import word_error_rate
    from transformers import pipeline

    with _weights_of("wer", "recogniser"):
        recognise = pipeline("automatic-speech-recognition", model=model)
    return {
        kind: float(
            word_error_rate(
                [_plain(recognise(sound)["text"]) for sound in _mono(clips, _SPEECH_RATE)],
                [_plain(text) for text in clips.texts],
            )
        )
        for kind, clips in kinds.items()
    }


def _plain(text: str) -> str:
    """Words alone, without case and punctuation."""
    return " ".join("".join(c if c.isalnum() or c == "'" else " " for c in text.lower()).split())
