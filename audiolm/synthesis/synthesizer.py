"""`Synthesizer`: a trained model and its codec, asked for sound from Python.

Letters: B samples, C audio channels, N audio samples, K codebooks, T codec frames.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audiolm.codec import Codec, EncodecCodec, load_codec
from audiolm.generation import Sampling, prepare
from audiolm.generation.engines.engine import Engine, choose_engine
from audiolm.generation.sampling import PLAIN, check_sampling
from audiolm.model.checkpoint import TrainedModel, load_checkpoint
from audiolm.model.likelihood import nats_per_code
from audiolm.run_folder import codec_folders, find_checkpoint
from audiolm.synthesis.conditions import encode_conditions, load_text_encoder
from audiolm.synthesis.job import Job
from audiolm.synthesis.prompt import check_sample, encode_prompt, read_waveform
from audiolm.synthesis.request import (
    SAMPLING,
    Conditions,
    Request,
    Waveform,
    make_request,
    refuse_settings,
)
from audiolm.synthesis.sample import Sample
from audiolm.text_encoder import TextEncoder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Score:
    """How well a model predicts a recording.

    Attributes:
        nats_per_code: mean cross-entropy of its codes, and of its end where the model has ends.
        bits_per_second: what coding a second of it would take under the model.
        uniform_nats_per_code: ln V, what a model that knows nothing gives.
        codec_bits_per_second: what the codec itself takes.
        seconds: length, in whole codec frames.
    """

    nats_per_code: float
    bits_per_second: float
    uniform_nats_per_code: float
    codec_bits_per_second: float
    seconds: float


class Synthesizer:
    """Generates sound with a trained model, and tells how probable the model finds a recording.

    Args:
        trained: the model, in eval mode on its device. The engine that generates takes its weights
            as they are at the first sample: after a change make another Synthesizer.
        codec: the one whose codes it was trained on, on the same device.
        checkpoint: the file that the model is from, for what is written beside samples.
        seconds_loading: how long reading it took.
        text_encoder: that of a model that reads texts by one; without it texts are refused.
    """

    def __init__(
        self,
        trained: TrainedModel,
        codec: EncodecCodec,
        checkpoint: Path | None = None,
        seconds_loading: float = 0.0,
        text_encoder: TextEncoder | None = None,
    ) -> None:
        self.trained = trained
        self.codec = codec
        self.checkpoint = checkpoint
        self.seconds_loading = seconds_loading
        self.text_encoder = text_encoder
        self._engines: dict[tuple[str, str], Engine] = {}

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        device: str = "auto",
        codec_repository: str | Path | None = None,
    ) -> Synthesizer:
        """The model of a run and its codec, ready for use.

        Args:
            path: a run's folder, which stands for its best checkpoint; a checkpoint file; an
                exported folder, or hf://OWNER/NAME for one on the hub; or None for the newest run
                below runs/.
            device: "auto", "cpu" or "cuda"; "auto" takes the GPU where there is one.
            codec_repository: folder with EnCodec's own weight files, where they cannot be
                downloaded.

        Raises:
            FileNotFoundError: no run, no checkpoint, or no codec.
            ValueError: a damaged or foreign file, another codec than the run's, an unknown device.
        """
        began = time.perf_counter()
        checkpoint = find_checkpoint(path)
        trained = load_checkpoint(checkpoint)
        where = choose_device(device)
        trained.model.to(where)
        codec = load_codec(trained.codec, codec_folders(checkpoint), codec_repository).to(where)
        encoder = load_text_encoder(trained.vocabulary, checkpoint)
        texts = None if encoder is None else encoder.to(where)
        return cls(trained, codec, checkpoint, time.perf_counter() - began, texts)

    def __repr__(self) -> str:
        conditions = ", ".join(self.conditions) or "none"
        context = self.trained.context_frames / self.codec.frame_rate
        return (
            f"Synthesizer({str(self.checkpoint) if self.checkpoint else 'a model in memory'}, step "
            f"{self.trained.step}; {self.codec.sample_rate} Hz, context {context:.4g} s, "
            f"conditions: {conditions})"
        )

    @property
    def conditions(self) -> list[str]:
        """The columns that the model can be conditioned on, such as label, speaker, text."""
        words = self.trained.vocabulary
        return [] if words is None else words.columns

    def generate(
        self,
        *,
        duration: float = 5.0,
        seed: int = 0,
        conditions: Conditions | None = None,
        prompt: str | Path | Waveform | Sample | None = None,
        prompt_duration: float | None = None,
        best_of: int = 1,
        sampling: Sampling = SAMPLING,
        engine: str = "auto",
        weights: str = "float32",
        progress: bool = False,
        **named: Any,
    ) -> Sample:
        """Generate a sample.

        With the same settings it is the one that scripts/generate.py writes, to the byte.

        Args: as of `Request`.
            **named: fields of `Sampling` (temperature, top_k, top_p, min_p, greedy, guidance, end,
                repetition_window, repetition_share) and columns of `conditions`, by name:
                generate(label="7", temperature=0.6).

        Raises:
            ValueError: for settings out of range or that do not go together, conditions that the
                model does not know, and a prompt that is too long; one line.
            OSError, AudioError: a prompt that cannot be read.
            FloatingPointError: the model gives NaN.
        """
        settings = {
            "duration": duration,
            "seed": seed,
            "conditions": conditions,
            "prompt": prompt,
            "prompt_duration": prompt_duration,
            "best_of": best_of,
            "sampling": sampling,
            "engine": engine,
            "weights": weights,
            "progress": progress,
        }
        return self._warned(self._asked({**settings, **named}, num_samples=1)).samples()[0]

    def generate_batch(self, num_samples: int = 4, **settings: Any) -> list[Sample]:
        """Generate several samples at once, with the settings of `generate`.

        The i-th has seed `seed` + i, and is the one that `generate` gives for that seed; with
        `best_of`, of the seeds from `seed` + i * `best_of` on.

        Args:
            num_samples: how many.
            **settings: as of `generate`; `conditions` may be a list, with those of each sample.

        Raises:
            As `generate`.
        """
        return self._warned(self._asked(settings, num_samples=num_samples)).samples()

    def stream(self, **settings: Any) -> Iterator[Tensor]:
        """Generate a sample and yield it while it is made: blocks (C, n) float32, on the CPU.

        Joined they are the sample of `generate`, but for rounding of the decoder (1e-6 of the
        peak). Memory is constant, so `duration` may be math.inf.

        Args:
            **settings: as of `generate`, without `best_of`.

        Raises:
            As `generate`; settings are checked at the call.
        """
        job = self._warned(self._asked(settings, num_samples=1, streamed=True))
        return (block for (block,) in job.blocks())

    @torch.inference_mode()
    def score(
        self,
        audio: str | Path | Waveform | Sample,
        conditions: Conditions | None = None,
        **named: Any,
    ) -> Score:
        """How probable the model finds a recording: what scripts/evaluate.py measures of a clip.

        A recording longer than the model's context is cut into windows, as in evaluation.

        Args:
            audio: a file, a waveform (C, N) at the codec's sample rate, or a sample's own codes.
            conditions: what is said in it, by column; also by name: score("7.wav", label="7").

        Raises:
            ValueError: for conditions that the model does not know, settings of generation, and
                waveforms that are none.
            OSError, AudioError: a file that cannot be read.
        """
        trained, codec = self.trained, self.codec
        refuse_settings(named)
        given = {} if conditions is None else {"conditions": conditions}
        request = make_request(self.conditions, {**given, **named})
        rows, _ = encode_conditions(
            request.conditions_of_each(), trained.vocabulary, self.text_encoder
        )
        if isinstance(audio, Sample):
            check_sample(audio, codec)
            codes, ends = audio.codes, bool(audio.ended)
        else:
            codes = codec.encode(read_waveform(audio, codec)[None])[0]
            ends = trained.model.end_token
        nats = nats_per_code(
            trained.model, trained.pattern, codes, trained.context_frames, rows, ends
        )
        seconds = codes.shape[1] / codec.frame_rate
        return Score(
            nats_per_code=nats,
            bits_per_second=nats * (codes.numel() + ends) / math.log(2) / seconds,
            uniform_nats_per_code=math.log(codec.codebook_size),
            codec_bits_per_second=codec.num_codebooks
            * math.log2(codec.codebook_size)
            * codec.frame_rate,
            seconds=seconds,
        )

    def job(
        self,
        seeds: Sequence[int],
        num_frames: int,
        *,
        sampling: Sampling = PLAIN,
        conditions: Mapping[str, Tensor] | None = None,
        **more: Any,
    ) -> Job:
        """Samples in the model's own terms: conditions as tensors, lengths in frames.

        Args:
            seeds: one a sample, B in all.
            num_frames: T of each at most.
            sampling: how codes are chosen.
            conditions: B rows, from the model's vocabulary; None for none.
            **more: as of `Job`.
        """
        settings = {"step": self.trained.step}
        return Job(
            self.trained,
            self.codec,
            seeds,
            num_frames,
            sampling=sampling,
            conditions=conditions,
            **{"settings": settings, **more},
        )

    def prepare(self, request: Request) -> Job:
        """Do all that can be done before the first frame: encode the prompt, build the engine.

        Raises:
            As `generate`.
        """
        trained = self.trained
        num_frames = frames_of_duration(request.duration, self.codec)
        prompt = encode_prompt(request, self.codec, trained.context_frames)
        check_sampling(request.sampling, trained.model, trained.vocabulary)
        described = request.conditions_of_each()
        candidates = [row for row in described for _ in range(request.best_of)]
        conditions, notes = encode_conditions(candidates, trained.vocabulary, self.text_encoder)
        count = len(candidates)
        began = time.perf_counter()
        engine = self._engine(request, num_frames, count)
        building = time.perf_counter() - began
        endless = request.duration == math.inf
        job = Job(
            trained,
            self.codec,
            [request.seed + i for i in range(count)],
            num_frames,
            None if endless else round(request.duration * self.codec.sample_rate),
            prompt,
            request.sampling,
            conditions,
            engine,
            best_of=request.best_of,
            progress=request.progress,
            settings=self._settings(request, prompt, engine, building),
            described=described,
            notes=notes,
        )
        if not request.streamed:
            job.check_fits_a_wav()
        return job

    def _settings(
        self, request: Request, prompt: Tensor | None, engine: Engine, building: float
    ) -> dict[str, Any]:
        """What is written beside every sample."""
        return {
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "step": self.trained.step,
            "prompt": _name_of(request.prompt),
            "prompt_seconds": 0.0 if prompt is None else prompt.shape[1] / self.codec.frame_rate,
            "conditioning": {},  # each sample's own
            "sampling": dataclasses.asdict(request.sampling),
            "best_of": request.best_of,
            "codec": self.trained.codec,
            "engine": engine.name,
            "weights": request.weights,
            "seconds_loading": self.seconds_loading,
            "seconds_building": building,
        }

    def _engine(self, request: Request, num_frames: int | None, batch: int) -> Engine:
        """Ready for the first frame; what was rounded and packed once is kept."""
        trained = self.trained
        steps = None if num_frames is None else trained.pattern.num_steps(num_frames)
        name = choose_engine(request.engine, trained.model, steps)
        engine = prepare(
            trained.model,
            trained.pattern,
            num_frames,
            trained.context_frames,
            batch,
            sampling=request.sampling,
            engine=self._engines.get((name, request.weights), name),
            weights=request.weights,
        )
        self._engines[name, request.weights] = engine
        return engine

    def _asked(self, settings: Mapping[str, Any], **fixed: Any) -> Job:
        if "num_samples" in settings:
            raise ValueError("num_samples is for several samples; pass it to generate_batch")
        return self.prepare(make_request(self.conditions, {**settings, **fixed}))

    def _warned(self, job: Job) -> Job:
        for note in job.notes:
            log.warning(note)
        return job


def choose_device(device: str | torch.device) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one.

    Raises:
        ValueError: for another name, and a GPU that is not there.
    """
    device = str(device)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device={device} is unknown; choose auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda: torch sees no GPU here; pass device=cpu")
    return torch.device(device)


def frames_of_duration(duration: float, codec: Codec) -> int | None:
    """The frames that hold so many seconds; None for no limit.

    Raises:
        ValueError: for less than a sample of sound.
    """
    if not duration >= 1 / codec.sample_rate:
        raise ValueError(f"duration={duration} s must be above 0")
    return None if duration == math.inf else math.ceil(duration * codec.frame_rate)


def _name_of(prompt: object) -> str | None:
    if prompt is None or isinstance(prompt, str | Path):
        return None if prompt is None else str(prompt)
    return f"sample of seed {prompt.seed}" if isinstance(prompt, Sample) else "waveform"
